"""Shared by the tests of `net`: connections that record what they receive, and waiting for conditions."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest
import uvloop

from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.errors import PocketMQError
from pocketmq.net.address import Address
from pocketmq.net.connection import Connection, ConnectionSettings
from pocketmq.net.peer import Peer
from pocketmq.protocol.command import Command, encode_command
from pocketmq.protocol.frames import Frame
from pocketmq.testing.memory_net import MemoryNetwork, Weather

T = TypeVar("T")

SERVER = Address("10.0.0.1", 10911)
LOOPBACK = Address("127.0.0.1", 0)
BRISK = Weather(delay_s=(0.001, 0.001), segment_bytes=(1 << 20, 1 << 20), window_bytes=1 << 20)
"""Every write arrives as one read, a millisecond later."""

every_loop = pytest.mark.parametrize(
    "new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)

NewLoop = Callable[[], asyncio.AbstractEventLoop]


def run_on(new_loop: NewLoop, main: Coroutine[Any, Any, T], timeout_s: float = 20) -> T:
    """Run `main` on a real loop, with a timeout."""

    async def limited() -> T:
        async with asyncio.timeout(timeout_s):
            return await main

    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(limited())


async def until(condition: Callable[[], object], timeout_s: float = 10) -> None:
    """Return when `condition()` is true; it fails the test when it never is."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 what is waited for lies outside the loop: sockets, threads
            await asyncio.sleep(0.002)


class Recorder:
    """A connection, what it received, and its close reason. `answer` is what it writes in each turn."""

    def __init__(self, settings: ConnectionSettings | None = None, answer: bytes = b"") -> None:
        self.turns: list[list[Frame]] = []
        self.lost: list[PocketMQError] = []
        self.answer = answer
        self.connection = Connection(self._turn, lambda _, reason: self.lost.append(reason), None, settings)

    def _turn(self, connection: Connection, frames: list[Frame]) -> None:
        self.turns.append(frames)
        if self.answer:
            connection.write(self.answer)

    @property
    def heard(self) -> list[Frame]:
        return [frame for turn in self.turns for frame in turn]


async def joined(client: Recorder, server: Recorder, weather: Weather = BRISK) -> MemoryNetwork:
    """Connect two recorders in memory."""
    network = MemoryNetwork(weather=weather)
    await network.listen(lambda: server.connection, SERVER)
    await network.connect(lambda: client.connection, SERVER)
    return network


def frame_of(code: int = RequestCode.HEART_BEAT, body: bytes = b"") -> bytes:
    return encode_command(Command(code, body=body))


def echo(peer: Peer, request: Command) -> Command:
    """A `serve` that returns the body."""
    return request.reply(ResponseCode.SUCCESS, body=request.body)


def ask(body: bytes = b"", code: int = RequestCode.QUERY_CONSUMER_OFFSET) -> Command:
    return Command(code, body=body)
