"""The name server: brokers register their address and topics, clients query them. Name servers do not know each other.

    net.server ──► dispatcher ──► handlers ──► routes (brokers, topics)      pure; receives the time
                                         ├──► kv_config                      one file, replaced as a whole
                                         └──► settings                       some may change at run time

Modules in reading order:

    settings      every limit, interval and switch, with RocketMQ's defaults
    server        builds, starts and stops a name server
    handlers      one handler class for each family of requests
    route_tables  tables of brokers and of topics, and their limits
    routes        applies registrations, answers routes, expires silent brokers
    kv_config     namespace, key and value; the only state that survives a restart
"""
