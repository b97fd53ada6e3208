"""A proxy for a name server and its broker that behaves like a bad network.

    client ──► proxy ──► name server      routes are changed to the address of the proxy of the broker
    client ──► proxy ──► broker

    cut         a connection ends at any byte, by a reset
    late        bytes are delayed by up to 300 ms, independently in each direction
    stall       no byte passes for two seconds, and no connection is closed
    twice       some bytes are passed twice: the rest of the stream is invalid
    again       a complete frame is passed twice: the protocol allows this, so peers must accept it

One of these is chosen at random for each read. While `is_calm`, all bytes pass at once.
"""

import asyncio
import random
import struct
from collections import Counter
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final, Self

from pocketmq.codes import RequestCode
from pocketmq.protocol.command import Command, decode_command, encode_command
from pocketmq.protocol.frames import FrameSplitter

_PIECE: Final = 16 * 1024
_CHANCES: Final = {"cut": 0.004, "stall": 0.002, "twice": 0.002, "again": 0.02, "late": 0.15}
"""For each piece; small, as a client sends thousands of them."""
_STALL_S: Final = 2.0
_LATE_S: Final = 0.3


class BadLine:
    """Use it as `async with BadLine(name_server_port, broker_port, seed) as line:`; clients use `line.name_server`."""

    def __init__(self, name_server_port: int, broker_port: int, seed: int) -> None:
        self._name_server_port = name_server_port
        self._broker_port = broker_port
        self._dice = random.Random(seed)
        self._servers: list[asyncio.Server] = []
        self._open: set[asyncio.Task[None]] = set()
        self._place = 0
        self.is_calm = True
        self.done: Counter[str] = Counter()
        """What was done to bytes, and how often."""
        self.name_server = ""

    async def __aenter__(self) -> Self:
        broker = await asyncio.start_server(self._to_broker, "127.0.0.1", 0)
        name_server = await asyncio.start_server(self._to_name_server, "127.0.0.1", 0)
        self._servers = [broker, name_server]
        self._place = broker.sockets[0].getsockname()[1]
        self.name_server = f"127.0.0.1:{name_server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *exc: object) -> None:
        for server in self._servers:
            server.close()
        for task in list(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    # the name server: only addresses are changed

    async def _to_name_server(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        codes: dict[int, int] = {}
        there, back = await asyncio.open_connection("127.0.0.1", self._name_server_port)
        forth = self._keep(self._pass_frames(reader, back, codes, is_answer=False))
        home = self._keep(self._pass_frames(there, writer, codes, is_answer=True))
        await _until_one_ends(forth, home, writer, back)

    async def _pass_frames(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, codes: dict[int, int], *, is_answer: bool
    ) -> None:
        frames = FrameSplitter()
        while data := await reader.read(_PIECE):
            for frame in frames.feed(data):
                command = decode_command(frame)
                if not is_answer:
                    codes[command.opaque] = command.code
                elif codes.pop(command.opaque, 0) in (
                    RequestCode.GET_ROUTEINFO_BY_TOPIC,
                    RequestCode.GET_BROKER_CLUSTER_INFO,
                ):
                    command = self._moved(command)
                writer.write(encode_command(command))
            await writer.drain()

    def _moved(self, answer: Command) -> Command:
        real, place = f"127.0.0.1:{self._broker_port}".encode(), f"127.0.0.1:{self._place}".encode()
        answer.body = answer.body.replace(real, place)
        return answer

    # the broker: here things happen

    async def _to_broker(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._broker_port)
        forth, home = self._keep(self._pass_bytes(reader, back)), self._keep(self._pass_bytes(there, writer))
        await _until_one_ends(forth, home, writer, back)

    async def _pass_bytes(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_PIECE):
            what = "" if self.is_calm else self._thrown()
            if what:
                self.done[what] += 1
            if what == "cut":
                writer.write(data[: self._dice.randrange(len(data) + 1)])
                await writer.drain()
                return
            if what in ("late", "stall"):
                await asyncio.sleep(_STALL_S if what == "stall" else self._dice.random() * _LATE_S)
            elif what == "twice":
                at = self._dice.randrange(len(data))
                data = data[:at] + data[max(0, at - 100) : at] + data[at:]
            elif what == "again":
                data = _first_frame(data) + data
            writer.write(data)
            await writer.drain()

    def _thrown(self) -> str:
        chance = self._dice.random()
        for what, part in _CHANCES.items():
            if chance < part:
                return what
            chance -= part
        return ""

    def _keep(self, passing: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(_quietly(passing))
        self._open.add(task)
        task.add_done_callback(self._open.discard)
        return task


def _first_frame(data: bytes) -> bytes:
    """The frame that a piece begins with, if it begins with a whole one."""
    if len(data) < 8:
        return b""
    (length,) = struct.unpack(">I", data[:4])
    return data[: 4 + length] if 4 + length <= len(data) else b""


async def _quietly(passing: Coroutine[Any, Any, None]) -> None:
    with suppress(OSError):
        await passing


async def _until_one_ends(forth: asyncio.Task[None], home: asyncio.Task[None], *writers: asyncio.StreamWriter) -> None:
    """A connection that ends on one side ends on the other."""
    await asyncio.wait((forth, home), return_when=asyncio.FIRST_COMPLETED)
    for task in (forth, home):
        task.cancel()
    for writer in writers:
        writer.transport.abort()
