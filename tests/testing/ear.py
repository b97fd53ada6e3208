"""A protocol that remembers, and a pair of them joined in memory."""

import asyncio

from tests.net.talk import SERVER

from pocketmq.net.address import Address
from pocketmq.testing.memory_net import MemoryNetwork


class Ear(asyncio.Protocol):
    """Records its bytes, their times, and the close reason."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.pieces: list[tuple[float, bytes]] = []
        self.ended = False
        self.lost: list[Exception | None] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.pieces.append((asyncio.get_running_loop().time(), data))

    def eof_received(self) -> None:
        self.ended = True

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)

    @property
    def heard(self) -> bytes:
        return b"".join(piece for _, piece in self.pieces)


async def pair(network: MemoryNetwork, address: Address = SERVER) -> tuple[Ear, Ear]:
    server = Ear()
    listener = await network.listen(lambda: server, address)
    client = await network.connect(Ear, address)
    listener.close()
    return client, server
