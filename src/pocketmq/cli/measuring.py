"""A short load on a running cluster, and how it took it: messages are sent and read again by one program, on a topic of its own.

    lanes ── send, wait for the answer, send the next … until time is up ──► latency of each send
    member ── reads all of it meanwhile ──────────────────────────────────► from before the send to the handler: end to end

Both ends are in one process, so one clock tells all times. The loop is closed: at most as many sends are under way as there are
lanes, so a slow cluster gets fewer messages and not a longer queue. Whatever happens, topic and group are deleted in the end.
"""

import asyncio
import contextlib
from collections import Counter
from typing import TYPE_CHECKING, Final

import msgspec

import pocketmq
from pocketmq.cli.asking import Cluster
from pocketmq.clock import Clock
from pocketmq.errors import NetworkError, PocketMQError

if TYPE_CHECKING:
    from pocketmq.client.admin import AsyncAdmin

INDEX_BYTES: Final = 8
WARM_UP_S: Final = 20.0
"""How long the first message may take to come back: the group has to share out its queues first."""
DRAIN_S: Final = 10.0
"""How long the last ones may take."""


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What is measured."""

    topic: str
    seconds: float
    body_bytes: int
    lanes: int
    queues: int


class Measured(msgspec.Struct, kw_only=True):
    """What came of it; latencies in seconds."""

    seconds: float = 0.0
    send_s: list[float] = msgspec.field(default_factory=list)
    end_to_end_s: list[float] = msgspec.field(default_factory=list)
    failures: Counter[str] = msgspec.field(default_factory=Counter)
    """By the kind of error."""
    twice: int = 0
    """Messages that came more than once."""

    @property
    def missing(self) -> int:
        """Sent, and not read again in time."""
        return len(self.send_s) - len(self.end_to_end_s)


async def measure(cluster: Cluster, load: Load, clock: Clock) -> Measured:
    async with pocketmq.AsyncAdmin(cluster.name_servers, **cluster.options) as admin:
        await admin.topics.create(load.topic, queues=load.queues)
        try:
            return await _Run(load, clock).run(cluster)
        finally:
            await _clean_up(admin, load.topic)


class _Run:
    """One load, under way."""

    def __init__(self, load: Load, clock: Clock) -> None:
        self._load = load
        self._clock = clock
        self._measured = Measured()
        self._sent_at: dict[int, float] = {}
        self._seen: set[int] = set()
        self._next = 0
        self._warm = asyncio.Event()
        self._all_read = asyncio.Event()

    async def run(self, cluster: Cluster) -> Measured:
        load, options = self._load, cluster.options
        consumer = pocketmq.AsyncPushConsumer(
            cluster.name_servers, group=load.topic, start_at="first", own_thread=False, **options
        )
        consumer.on(load.topic)(self._read)
        async with pocketmq.AsyncProducer(cluster.name_servers, group=load.topic, **options) as producer, consumer:
            await self._warm_up(producer)
            began = self._clock.monotonic()
            await asyncio.gather(*(self._lane(producer, began + load.seconds) for _ in range(load.lanes)))
            self._measured.seconds = self._clock.monotonic() - began
            await self._drain()
        return self._measured

    async def _warm_up(self, producer: "pocketmq.AsyncProducer") -> None:
        """Until a first message comes back; it does not count."""
        await producer.send(self._load.topic, self._body(-1))
        try:
            async with asyncio.timeout(WARM_UP_S):
                await self._warm.wait()
        except TimeoutError:
            raise NetworkError(
                f"a message was sent to topic {self._load.topic} and not read again within {WARM_UP_S:.0f} s: "
                "`pocketmq doctor` may say why"
            ) from None

    async def _lane(self, producer: "pocketmq.AsyncProducer", until: float) -> None:
        while (at := self._clock.monotonic()) < until:
            index, self._next = self._next, self._next + 1
            self._sent_at[index] = at
            try:
                await producer.send(self._load.topic, self._body(index))
            except PocketMQError as error:
                self._measured.failures[type(error).__name__] += 1
                del self._sent_at[index]
            else:
                self._measured.send_s.append(self._clock.monotonic() - at)

    async def _read(self, message: pocketmq.StoredMessage) -> None:
        now = self._clock.monotonic()
        index = int.from_bytes(message.body[:INDEX_BYTES], "big", signed=True)
        if index < 0:
            self._warm.set()
        elif index in self._seen:
            self._measured.twice += 1
        elif index in self._sent_at:
            self._seen.add(index)
            self._measured.end_to_end_s.append(now - self._sent_at[index])
            if not self._measured.missing:
                self._all_read.set()

    async def _drain(self) -> None:
        while self._measured.missing > 0:
            self._all_read.clear()
            try:
                async with asyncio.timeout(DRAIN_S):
                    await self._all_read.wait()
            except TimeoutError:
                return

    def _body(self, index: int) -> bytes:
        return index.to_bytes(INDEX_BYTES, "big", signed=True).ljust(self._load.body_bytes, b"x")


async def _clean_up(admin: "AsyncAdmin", topic: str) -> None:
    for delete in (admin.groups.delete(topic), admin.topics.delete(topic)):
        with contextlib.suppress(PocketMQError):
            await delete
