"""The bodies of requests and responses. Most bodies are JSON and have a type here.

Modules in reading order:

    properties_text   Java's properties format
    clients           heartbeats and connections; consumer groups
    topics            topics, routes, offsets and statistics
    registration      the registration of a broker with a name server
"""
