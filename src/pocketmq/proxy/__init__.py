"""The gRPC server, for the official clients of RocketMQ 5. It needs `pocketmq[grpc]`.

    official client ── gRPC ──► server ── remoting ──► name server, brokers

To brokers it is a client for each of its clients, so there is one implementation of every rule, and it works in front of any
cluster: of this process, of other processes, of Apache RocketMQ.

Modules in reading order:

    messages     the messages of gRPC clients, from rocketmq.proto
    settings     addresses, access and limits
    statuses     the status of a call; which one an error of a broker has
    callers      who makes a call: metadata and signature
    conversion   messages of gRPC as messages of the remoting protocol, and back
    sessions     the clients, each with its connections to brokers
    routes       routes and assignments
    sending      sends, transactions, recalls
    leases       acknowledgements, changes and renewals of leases
    receiving    receives
    telemetry    settings of clients, commands to clients, heartbeats
    server       the server, with the handlers of all methods
"""
