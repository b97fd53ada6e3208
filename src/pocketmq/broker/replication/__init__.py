"""Replication: the log of a master is copied to slaves by RocketMQ's stream.

Modules in reading order:

    frames    the bytes of the stream
    serving   the master's side: sends its log to the slaves
"""
