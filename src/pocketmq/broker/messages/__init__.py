"""From a send request to a record in the store.

Modules in reading order:

    destinations   whether a client may send to a topic, and to which queue, with RocketMQ's order of checks
    appending      appends messages that the broker writes itself: in which topic, and when they are safe
"""
