"""Handlers of requests to a broker, one class per family.

Modules in reading order:

    destinations     where a send goes: its topic, which may be created, and its queue
    sending          sends of one message and of batches
    pulling          pulls, and long polling
    checked_pulls    caches the outcome of a pull's permission checks until something changes
    offsets          queries and commits of offsets; search by time
    resets           admin: reset, compare and clone the offsets of groups
    retries          messages that a consumer sends back (code 36): retry topic or dead-letter topic
    transactions     commits and rollbacks (code 37), and repeated check-backs (code 323)
    recalling        recalls of timed messages
    replying         replies to request messages
    clients          heartbeats, unregistration, member lists, queue locks
    message_queries  messages by key and by log offset; entries of a consume queue
    topics           admin: create, change, list and delete topics
    groups           admin: create, change, list, forbid and delete groups
    relays           admin requests that the broker forwards to a client
    administration   admin: settings, statistics, maintenance, replica state
"""
