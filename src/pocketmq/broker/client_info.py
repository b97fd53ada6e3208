"""Who speaks over a connection, as its last heartbeat said."""

from collections.abc import Hashable
from typing import NamedTuple

from pocketmq.protocol.bodies.connections import ClientConnection


class ClientInfo(NamedTuple):
    """`connection` is any token that stands for the connection; `language` is the name of a `codes.Language`."""

    connection: Hashable
    client_id: str
    address: str
    language: str
    version: int

    def described(self) -> ClientConnection:
        """The client as an administrator is shown it."""
        return ClientConnection(self.client_id, self.address, self.language, self.version)
