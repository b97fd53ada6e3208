"""Handlers of requests to a name server, one module for each family, with a table of request code and handler.

Modules in reading order:

    brokers    registration, heartbeats, cluster information
    topics     topic routes and topic lists
    settings   query and change the configuration
"""
