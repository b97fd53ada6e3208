"""What a pull needs besides the store.

Modules in reading order:

    filters         evaluates a subscription: tags, SQL92
    arrivals        long polling: held pulls by queue, and when they are woken
"""
