"""Clients that send and consume numbers: ours, or the Java client in its own process. Each is started once."""

import asyncio
import subprocess
from contextlib import AsyncExitStack
from typing import Final, Self

from conformance.java_programs import start
from pocketmq.client import AsyncProducer, AsyncPushConsumer
from pocketmq.errors import PocketMQError
from pocketmq.model.message import StoredMessage

SEND_MS: Final = 2_000
LEAVE_S: Final = 60.0


class OurTraveller:
    """Our producer and our consumer."""

    def __init__(self, name_server: str, topic: str, group: str) -> None:
        self._topic = topic
        self._producer = AsyncProducer(name_server, group=f"P{group}", send_timeout_ms=SEND_MS, instance_name="line")
        self._consumer = AsyncPushConsumer(name_server, group=group, start_at="first", instance_name="line")
        self._consumer.on(topic)(self._listen)
        self._parts = AsyncExitStack()
        self.got: list[str] = []

    async def __aenter__(self) -> Self:
        await self._parts.enter_async_context(self._producer)
        await self._parts.enter_async_context(self._consumer)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._parts.aclose()

    async def _listen(self, message: StoredMessage) -> None:
        self.got.append(message.body.decode())

    async def store(self, number: str) -> None:
        """Try until it is stored."""
        while True:
            try:
                if (await self._producer.send(self._topic, number.encode())).is_ok:
                    return
            except PocketMQError:
                await asyncio.sleep(0.02)


class JavaTraveller:
    """The program `Crossing`, which reads commands from its standard input."""

    def __init__(self, version: str, name_server: str, topic: str, group: str) -> None:
        self._version = version
        self._arguments = name_server, "Crossing", topic, group
        self._process: subprocess.Popen[str] | None = None
        self._reading: asyncio.Task[None] | None = None
        self._stored: dict[str, asyncio.Event] = {}
        self._running = asyncio.Event()
        self.got: list[str] = []

    async def __aenter__(self) -> Self:
        name_server, *arguments = self._arguments
        self._process = await asyncio.to_thread(start, self._version, name_server, *arguments)
        self._reading = asyncio.create_task(self._read())
        await self._running.wait()
        return self

    async def __aexit__(self, *exc: object) -> None:
        process, reading = self._process, self._reading
        assert process is not None
        assert process.stdin is not None
        assert reading is not None
        process.stdin.close()
        try:
            await asyncio.to_thread(process.wait, LEAVE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            await asyncio.to_thread(process.wait)
        await reading
        assert process.stdout is not None
        process.stdout.close()

    async def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        while line := await asyncio.to_thread(self._process.stdout.readline):
            match line.split():
                case ["running"]:
                    self._running.set()
                case ["stored", number]:
                    self._stored[number].set()
                case ["got", number]:
                    self.got.append(number)

    async def store(self, number: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._stored[number] = asyncio.Event()
        self._process.stdin.write(f"{number}\n")
        self._process.stdin.flush()
        await self._stored[number].wait()
