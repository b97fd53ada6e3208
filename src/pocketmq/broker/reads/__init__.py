"""What a pull needs besides the store.

Modules in reading order:

    filters         evaluates a subscription: tags, SQL92
    checked_pulls   caches the outcome of a pull's permission checks until something changes
    arrivals        long polling: held pulls by queue, and when they are woken
"""
