"""Replication: the log of a master is copied to slaves by RocketMQ's stream.

Modules in reading order:

    serving      the master's side: sends its log to the slaves
    following    the slave's side: copies the log of its master
    metadata     copies topics, groups, offsets and progress
    refusals     the requests that a slave refuses
"""
