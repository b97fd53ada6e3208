"""Connections that carry frames, servers, connection pools, TLS, and blocking access to all of it.

Modules in reading order:

    address      `host:port`
    network      the interface to sockets; the test kit has one in memory
    tls          TLS contexts, and how a server accepts TLS and plain text on one port
    connection   reads frames from a transport and writes frames to it
    unfinished   limits the memory of incomplete frames over all connections
    peer         calls and serves requests over a connection, in both directions
    server       listens, tracks connections, finds the handler of a request, stops after running requests are served
    pool         one shared connection for each address
    blocking     a connection for one thread, without an event loop
    portal       an event loop in a thread, for blocking code
    loops        creates the event loop (uvloop where installed); periodic tasks; failures without memory
"""

from pocketmq.net.address import LARGEST_PORT, Address, reachable, resolved
from pocketmq.net.connection import CloseReason, Connection, ConnectionSettings
from pocketmq.net.loops import QUIET_S, LoopFailures, Repeating, Steps, end_of_input, new_loop
from pocketmq.net.network import AcceptSettings, Listener, Network, TcpNetwork, TurnedAway
from pocketmq.net.peer import Peer, PeerSettings, Waiting
from pocketmq.net.pool import Pool, PoolSettings
from pocketmq.net.portal import Portal, refuse_in_a_loop
from pocketmq.net.server import (
    Check,
    Dispatcher,
    Handler,
    PlainRequest,
    Reply,
    Request,
    Server,
    ServerCounters,
    ServerSettings,
)
from pocketmq.net.tls import ClientTlsFiles, ServerTls, ServerTlsFiles, TlsMode, client_context, server_context
from pocketmq.net.unfinished import UnfinishedLimits

__all__ = [
    "LARGEST_PORT",
    "QUIET_S",
    "AcceptSettings",
    "Address",
    "Check",
    "ClientTlsFiles",
    "CloseReason",
    "Connection",
    "ConnectionSettings",
    "Dispatcher",
    "Handler",
    "Listener",
    "LoopFailures",
    "Network",
    "Peer",
    "PeerSettings",
    "PlainRequest",
    "Pool",
    "PoolSettings",
    "Portal",
    "Repeating",
    "Reply",
    "Request",
    "Server",
    "ServerCounters",
    "ServerSettings",
    "ServerTls",
    "ServerTlsFiles",
    "Steps",
    "TcpNetwork",
    "TlsMode",
    "TurnedAway",
    "UnfinishedLimits",
    "Waiting",
    "client_context",
    "end_of_input",
    "new_loop",
    "reachable",
    "refuse_in_a_loop",
    "resolved",
    "server_context",
]
