"""The bodies of requests and responses, one module for each family. Most bodies are JSON and have a type here.

Modules in reading order:

    body              base class, data versions, key-value tables
    properties_text   Java's properties format
    clients           heartbeats and connections
    groups            consumer groups
    offsets           offsets of groups
    topics            topics and static topics
    routes            topic routes and clusters
    stats             statistics of topics, groups and brokers
    running_info      running info of a consumer; result of a direct consumption
    access            users and access rules of release 5; access keys of release 4
    pop               queue assignment by the broker, and pop consumption
"""
