"""Every request of the protocol, declared once: `API[code]` gives its headers and which server handles it.

Each family has a module that ends in its rows. `protocol.fields` reads and writes the headers.

Modules in reading order:

    row       one row: request code, headers, server
    sending   sends, batches, replies, send-backs, recalls
    pulling   pulls, and queries of messages by key and id
    offsets   offsets of queues and groups
    clients   heartbeats, connections, requests to clients
    groups    consumer groups
    topics    topics of a broker
    routes    the name server
    brokers   settings, statistics, clean-up and replication of a broker
    pop       pop consumption
"""

from typing import Final

from pocketmq.codes import RequestCode
from pocketmq.protocol.api import brokers, clients, groups, offsets, pop, pulling, routes, sending, topics
from pocketmq.protocol.api.row import Api, Envelope, Server

__all__ = ["API", "Api", "Envelope", "Server"]

_FAMILIES = (
    sending,
    pulling,
    offsets,
    clients,
    groups,
    topics,
    routes,
    brokers,
    pop,
)


def _joined() -> dict[RequestCode, Api]:
    table: dict[RequestCode, Api] = {}
    for family in _FAMILIES:
        for row in family.ROWS:
            assert row.code not in table, f"{row.code.name} is declared twice"
            table[row.code] = row
    return table


API: Final = _joined()
