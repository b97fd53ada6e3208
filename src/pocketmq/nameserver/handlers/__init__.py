"""Handlers of requests to a name server, one class per family.

Modules in reading order:

    brokers    registration, heartbeats, cluster information
    topics     topic routes and topic lists
    settings   query and change the configuration
"""
