"""Connections that carry frames, servers, connection pools, TLS, and blocking access to all of it.

Modules in reading order:

    address      `host:port`
    network      the interface to sockets; the test kit has one in memory
    tls          TLS contexts, and how a server accepts TLS and plain text on one port
    connection   reads frames from a transport and writes frames to it
    unfinished   limits the memory of incomplete frames over all connections
    peer         calls and serves requests over a connection, in both directions
    dispatcher   from a request to its handler and back
    server       listens, tracks connections, stops after running requests are served
    pool         one shared connection for each address
    blocking     a connection for one thread, without an event loop
    portal       an event loop in a thread, for blocking code
    loops        creates the event loop (uvloop where installed); periodic tasks; failures without memory
"""
