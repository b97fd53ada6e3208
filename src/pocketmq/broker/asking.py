"""Asking clients: over the connection that the client itself has opened, in the other direction.

The tables of a broker take any token for a connection; here it is the peer at its other end.
"""

from collections.abc import Hashable

from pocketmq.broker.client_info import ClientInfo
from pocketmq.codes import RequestCode, Version
from pocketmq.errors import ImpossibleRequest
from pocketmq.net.peer import Peer
from pocketmq.protocol.command import Command
from pocketmq.protocol.fields import Fields, write_fields


def peer_of(connection: Hashable) -> Peer:
    """The peer that stands behind a connection of the tables."""
    assert isinstance(connection, Peer), "whoever sends a heartbeat to a broker is a peer"
    return connection


async def ask(connection: Hashable, code: RequestCode, header: Fields, body: bytes, timeout_ms: int) -> Command:
    """The client's answer, whatever its code. CallTimedOut or another NetworkError when there is none."""
    return await peer_of(connection).call(Command(code, write_fields(header), body), timeout_ms / 1000)


def require_version(client: ClientInfo, oldest: Version) -> None:
    """Refuse to ask a client what it would not understand."""
    if client.version < oldest:
        raise ImpossibleRequest(
            f"The Consumer <{client.client_id}> Version <{client.version}> too low to finish, "
            f"please upgrade it to {oldest.name}"
        )
