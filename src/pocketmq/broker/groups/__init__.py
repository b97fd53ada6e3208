"""Consumer groups and their members.

Modules in reading order:

    groups           subscription group configuration, and which groups may not consume
    consumer_group   one group with connected members: their subscriptions, and the group's as a whole
    members          connected producers and consumers, by group and by connection
    notices          notifies members that their group changed, so that they rebalance; calls to clients
    offsets          committed offsets of each group and queue
    leases           messages that members have popped, and positions of pops
    orders           the last batches of orderly pops
    queue_locks      locks on queues for orderly consumption
"""
