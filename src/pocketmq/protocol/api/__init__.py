"""Every request of the protocol, declared once: `API[code]` tells its headers and who serves it.

One file per family; each ends in its rows. Headers are read and written by `protocol.fields`.
"""

from typing import Final

from pocketmq.codes import RequestCode
from pocketmq.protocol.api import (
    access,
    assignment,
    brokers,
    clients,
    groups,
    offsets,
    pop,
    pulling,
    routes,
    sending,
    topics,
    transactions,
)
from pocketmq.protocol.api.envelope import Envelope
from pocketmq.protocol.api.row import Api, Server

__all__ = ["API", "Api", "Envelope", "Server"]

_FAMILIES = (
    sending,
    pulling,
    offsets,
    clients,
    assignment,
    groups,
    topics,
    transactions,
    routes,
    brokers,
    access,
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
