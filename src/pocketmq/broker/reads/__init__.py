"""What a pull or a pop needs besides the store.

Modules in reading order:

    filters         evaluates a subscription: tags, SQL92
    arrivals        long polling: held pulls by queue, and when they are woken
    waiting_pops    the same for pops and notifications, by group
    replicas        slaves that follow the log
"""
