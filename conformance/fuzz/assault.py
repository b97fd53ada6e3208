"""Several connections at a time send invalid bytes until the time is over.

burst    many frames at once, some of them complete; answers are read or not
drip     a frame byte by byte, abandoned at a random byte
replay   the same frame again and again
noise    random bytes

A connection ends by a close, a reset, or a half close. The server may close it at any time.
"""

import asyncio
import random
import socket
import struct
from collections import Counter
from contextlib import suppress
from typing import Final

from conformance.fuzz.frames import Mutations, requests

CONNECTIONS: Final = 8
_MOST_READ: Final = 1 << 20


class Assault:
    """What one run of it does to a server at `port`. `sent` counts by tactic."""

    def __init__(self, port: int, seed: int) -> None:
        self._port = port
        self._seed = seed
        self.sent: Counter[str] = Counter()

    async def run(self, seconds: float) -> None:
        end = asyncio.get_running_loop().time() + seconds
        await asyncio.gather(*(self._connections(number, end) for number in range(CONNECTIONS)))

    async def _connections(self, number: int, end: float) -> None:
        dice = random.Random(f"{self._seed}/{number}")
        mutations = Mutations(dice)
        loop = asyncio.get_running_loop()
        while loop.time() < end:
            try:
                async with asyncio.timeout(5):
                    reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            except (OSError, TimeoutError):
                await asyncio.sleep(0.05)
                continue
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(10):
                    await self._one(dice, mutations, reader, writer)
            await _ended(dice, writer)

    async def _one(
        self, dice: random.Random, mutations: Mutations, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        tactic = dice.choice(("burst", "burst", "burst", "drip", "replay", "noise"))
        frame = dice.choice(requests())
        if tactic == "burst":
            frames = [mutations.of(dice.choice(requests())) for _ in range(dice.randrange(1, 40))]
            writer.write(b"".join(frames))
            self.sent[tactic] += len(frames)
        elif tactic == "drip":
            for byte in frame[: dice.randrange(1, 120)]:
                writer.write(bytes((byte,)))
                await writer.drain()
            self.sent[tactic] += 1
        elif tactic == "replay":
            count = dice.randrange(2, 60)
            writer.write(mutations.of(frame) * count)
            self.sent[tactic] += count
        else:
            writer.write(mutations.noise())
            self.sent[tactic] += 1
        await writer.drain()
        if dice.random() < 0.7:
            with suppress(TimeoutError):
                async with asyncio.timeout(dice.choice((0.01, 0.05, 0.2))):
                    await reader.read(_MOST_READ)


async def _ended(dice: random.Random, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        if dice.random() < 0.3:
            connection = writer.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif dice.random() < 0.3 and writer.can_write_eof():
            writer.write_eof()
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
