"""A name server and a broker inside another program, in one event loop.

Modules in reading order:

    server   `pocketmq.Server`
"""
