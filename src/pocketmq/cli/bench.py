"""`pocketmq bench`: measure a running cluster with a short load, and show latency percentiles.

    senders    send, wait for the reply, send the next … until the time is up ──► latency of each send
    consumer   receives all messages meanwhile ───────────────────────────────► end to end: from before the send to the handler

Both run in this process and use one clock. The loop is closed: each sender has one send in flight, so a slow cluster gets fewer
messages instead of a longer queue. The topic and the group of the measurement are always deleted at the end.
"""

import asyncio
import contextlib
import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

import pocketmq
from pocketmq.cli.cluster_options import Cluster, cluster_options, with_advice
from pocketmq.cli.commands import ExitCode, number_option
from pocketmq.cli.output import Column, json_option, show_json, show_rows, show_text
from pocketmq.clock import Clock, SystemClock
from pocketmq.errors import NetworkError, PocketMQError
from pocketmq.model.human import count
from pocketmq.net import Portal

if TYPE_CHECKING:
    from pocketmq.client.admin.admin import AsyncAdmin

INDEX_BYTES: Final = 8
WARM_UP_S: Final = 20.0
"""The time limit for the first message: the group needs a rebalance first."""
DRAIN_S: Final = 10.0
"""The time limit for the last messages."""


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """The load of a measurement."""

    topic: str
    seconds: float
    body_bytes: int
    concurrency: int
    queues: int


class Measured(msgspec.Struct, kw_only=True):
    """The result; latencies in seconds."""

    seconds: float = 0.0
    send_s: list[float] = msgspec.field(default_factory=list)
    end_to_end_s: list[float] = msgspec.field(default_factory=list)
    failures: Counter[str] = msgspec.field(default_factory=Counter)
    """By the kind of error."""
    duplicates: int = 0

    @property
    def missing(self) -> int:
        """Messages that were sent but not consumed in time."""
        return len(self.send_s) - len(self.end_to_end_s)


async def measure(cluster: Cluster, load: Load, clock: Clock) -> Measured:
    async with pocketmq.AsyncAdmin(cluster.name_servers, **cluster.options) as admin:
        await admin.topics.create(load.topic, queues=load.queues)
        try:
            return await _Run(load, clock).run(cluster)
        finally:
            await _clean_up(admin, load.topic)


class _Run:
    """A running measurement."""

    def __init__(self, load: Load, clock: Clock) -> None:
        self._load = load
        self._clock = clock
        self._measured = Measured()
        self._sent_at: dict[int, float] = {}
        self._seen: set[int] = set()
        self._next = 0
        self._warm = asyncio.Event()
        self._all_consumed = asyncio.Event()

    async def run(self, cluster: Cluster) -> Measured:
        load, options = self._load, cluster.options
        consumer = pocketmq.AsyncPushConsumer(
            cluster.name_servers, group=load.topic, start_at="first", own_thread=False, **options
        )
        consumer.on(load.topic)(self._consume)
        async with pocketmq.AsyncProducer(cluster.name_servers, group=load.topic, **options) as producer, consumer:
            await self._warm_up(producer)
            began = self._clock.monotonic()
            await asyncio.gather(*(self._send_until(producer, began + load.seconds) for _ in range(load.concurrency)))
            self._measured.seconds = self._clock.monotonic() - began
            await self._drain()
        return self._measured

    async def _warm_up(self, producer: "pocketmq.AsyncProducer") -> None:
        """Wait for a first message, which does not count."""
        await producer.send(self._load.topic, self._body(-1))
        try:
            async with asyncio.timeout(WARM_UP_S):
                await self._warm.wait()
        except TimeoutError:
            raise NetworkError(
                f"a message sent to topic {self._load.topic} was not consumed within {WARM_UP_S:.0f} s; "
                "`pocketmq doctor` may find the reason"
            ) from None

    async def _send_until(self, producer: "pocketmq.AsyncProducer", until: float) -> None:
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

    async def _consume(self, message: pocketmq.StoredMessage) -> None:
        now = self._clock.monotonic()
        index = int.from_bytes(message.body[:INDEX_BYTES], "big", signed=True)
        if index < 0:
            self._warm.set()
        elif index in self._seen:
            self._measured.duplicates += 1
        elif index in self._sent_at:
            self._seen.add(index)
            self._measured.end_to_end_s.append(now - self._sent_at[index])
            if not self._measured.missing:
                self._all_consumed.set()

    async def _drain(self) -> None:
        while self._measured.missing > 0:
            self._all_consumed.clear()
            try:
                async with asyncio.timeout(DRAIN_S):
                    await self._all_consumed.wait()
            except TimeoutError:
                return

    def _body(self, index: int) -> bytes:
        return index.to_bytes(INDEX_BYTES, "big", signed=True).ljust(self._load.body_bytes, b"x")


async def _clean_up(admin: "AsyncAdmin", topic: str) -> None:
    for delete in (admin.groups.delete(topic), admin.topics.delete(topic)):
        with contextlib.suppress(PocketMQError):
            await delete


MAX_SECONDS: Final = 120
MAX_BODY_BYTES: Final = 1 << 20
MAX_CONCURRENCY: Final = 1_024
PERCENTILES: Final = (50.0, 90.0, 99.0, 99.9)


def _ms(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.2f} ms"


_COLUMNS: Final = (
    Column("what"),
    *(Column(f"p{percent:g}", shown_as=_ms) for percent in PERCENTILES),
    Column("max", "max", shown_as=_ms),
)


@click.command("bench")
@cluster_options
@click.option(
    "--seconds",
    type=click.FloatRange(0.1, MAX_SECONDS),
    default=5.0,
    show_default=True,
    help="The duration of the load.",
)
@number_option("--body-bytes", "The size of each message body.", least=INDEX_BYTES, most=MAX_BODY_BYTES, default=1_024)
@number_option("--concurrency", "The number of concurrent sends.", most=MAX_CONCURRENCY, default=32)
@number_option("--queues", "The number of queues of the topic.", most=1_024, default=4)
@json_option
def bench(cluster: Cluster, seconds: float, body_bytes: int, concurrency: int, queues: int, as_json: bool) -> int:
    """Send messages to a running cluster, consume them, and show the latencies.

    One process does both, so the result shows what one Python client gets, not the maximum of the cluster. The command
    creates a topic and a group, and deletes them at the end.

    \b
    Exit code: 0  all messages were stored and consumed
               1  some messages failed, or were not consumed in time
               3  the cluster does not work
    """
    clock = SystemClock()
    load = Load(
        topic=f"pocketmq-bench-{clock.now_ms()}",
        seconds=seconds,
        body_bytes=body_bytes,
        concurrency=concurrency,
        queues=queues,
    )
    with with_advice(), Portal("pocketmq bench") as portal:
        measured = portal.run(measure(cluster, load, clock))
    rows = [
        {"what": "send", **percentiles(measured.send_s)},
        {"what": "end to end", **percentiles(measured.end_to_end_s)},
    ]
    if as_json:
        show_json([{**_totals(measured, load), "send": rows[0], "end_to_end": rows[1]}])
    else:
        _show_totals(measured, load)
        show_rows(rows, _COLUMNS, as_json=False, empty="")
    return ExitCode.OK if not measured.failures and not measured.missing else ExitCode.REPAIRABLE


def percentiles(seconds: Sequence[float]) -> dict[str, float | None]:
    """Percentiles in milliseconds, each a measured value; None if there are no values."""
    ordered = sorted(seconds)
    if not ordered:
        return dict.fromkeys((*(f"p{percent:g}" for percent in PERCENTILES), "max"))
    ranks = {f"p{percent:g}": math.ceil(len(ordered) * percent / 100) - 1 for percent in PERCENTILES}
    found: dict[str, float | None] = {name: ordered[rank] * 1000 for name, rank in ranks.items()}
    return {**found, "max": ordered[-1] * 1000}


def _totals(measured: Measured, load: Load) -> dict[str, Any]:
    sent = len(measured.send_s)
    return {
        "seconds": measured.seconds,
        "sent": sent,
        "read": len(measured.end_to_end_s),
        "missing": measured.missing,
        "duplicates": measured.duplicates,
        "failures": dict(measured.failures),
        "per_s": sent / measured.seconds if measured.seconds else None,
        "mib_per_s": sent * load.body_bytes / measured.seconds / (1 << 20) if measured.seconds else None,
        "body_bytes": load.body_bytes,
        "concurrency": load.concurrency,
        "queues": load.queues,
    }


def _show_totals(measured: Measured, load: Load) -> None:
    totals = _totals(measured, load)
    show_text(
        f"{count(totals['sent'], 'message')} of {load.body_bytes:,} bytes in {measured.seconds:.1f} s: "
        f"{totals['per_s']:,.0f} messages/s, {totals['mib_per_s']:,.1f} MiB/s."
    )
    show_text(f"One process, {load.concurrency} concurrent sends, {load.queues} queues, one consumer.")
    for kind, many in measured.failures.most_common():
        show_text(f"Failed with {kind}: {many:,}.")
    if measured.missing:
        show_text(f"Not consumed in time: {measured.missing:,}.")
    if measured.duplicates:
        show_text(f"Consumed more than once: {measured.duplicates:,}.")
    show_text("")
