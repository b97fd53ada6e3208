"""The broker stores messages and serves producers, consumers and administrators.

It builds on the protocol, the network and the store, and imports neither the name server nor the client. Rules are pure
modules that receive what they need (the time, a subscription, a record); only coroutines wait.

Modules in reading order:

    settings              every limit, interval and switch, with RocketMQ's defaults
    replication_settings  settings of the replication
    setting_keys          RocketMQ's names for these settings, in broker.conf and in admin requests
    broker                starts and stops a broker
    state                 tables, store, settings and statistics: what handlers and workers share
    parts                 builds the parts of a broker and connects them
    requests/             handles everything that one socket read brings, and flow control
    handlers/             one handler class per family of requests
    access                which permission each request code needs
    topics                the topics of this broker and their configuration
    messages              checks the destination of a message and appends it to the store
    reads/                filters and long polling
    groups/               consumer groups: members, offsets, leases, queue locks
    delivery/             delayed messages and timed messages
    pop/                  leases of messages: pops, acks, and the end of leases
    replication/          copies the log to slaves
    transactions/         half messages, decisions of producers, check-backs
    stats/                statistics and runtime information
    metrics               all metrics of a broker, read from its parts
    registration_data     requests that register the broker's identity and topics with a name server
    registration          registers with every name server, and repeats that
    snapshots             writes the tables (topics, groups, offsets) to disk and loads them at start
"""
