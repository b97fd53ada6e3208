"""`pocketmq bench`: a quick measurement of a running cluster, with its percentiles.

A short load on a running cluster, and how it took it: messages are sent and read again by one program, on a topic of its own.

    lanes ── send, wait for the answer, send the next … until time is up ──► latency of each send
    member ── reads all of it meanwhile ──────────────────────────────────► from before the send to the handler: end to end

Both ends are in one process, so one clock tells all times. The loop is closed: at most as many sends are under way as there are
lanes, so a slow cluster gets fewer messages and not a longer queue. Whatever happens, topic and group are deleted in the end.
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
from pocketmq.cli.asking import Cluster, advised, on_a_cluster
from pocketmq.cli.commands import ExitCode
from pocketmq.cli.screen import Column, json_option, show_json, show_rows, tell
from pocketmq.clock import Clock, SystemClock
from pocketmq.errors import NetworkError, PocketMQError
from pocketmq.model.human import count
from pocketmq.net.portal import Portal

if TYPE_CHECKING:
    from pocketmq.client.admin.admin import AsyncAdmin

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


MAX_SECONDS: Final = 120
MAX_BODY_BYTES: Final = 1 << 20
MAX_LANES: Final = 1_024
PERCENTILES: Final = (50.0, 90.0, 99.0, 99.9)


def _ms(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.2f} ms"


_COLUMNS: Final = (
    Column("what"),
    *(Column(f"p{percent:g}", told=_ms) for percent in PERCENTILES),
    Column("max", "longest", told=_ms),
)


@click.command("bench")
@on_a_cluster
@click.option(
    "--seconds", type=click.FloatRange(0.1, MAX_SECONDS), default=5.0, show_default=True, help="How long it sends."
)
@click.option(
    "--body-bytes",
    type=click.IntRange(INDEX_BYTES, MAX_BODY_BYTES),
    default=1_024,
    show_default=True,
    metavar="N",
    help="The size of each message.",
)
@click.option(
    "--lanes",
    type=click.IntRange(1, MAX_LANES),
    default=32,
    show_default=True,
    metavar="N",
    help="Sends that are under way at the same time.",
)
@click.option(
    "--queues", type=click.IntRange(1, 1_024), default=4, show_default=True, metavar="N", help="Of its topic."
)
@json_option
def bench(cluster: Cluster, seconds: float, body_bytes: int, lanes: int, queues: int, as_json: bool) -> int:
    """Send messages to a running cluster and read them again, and tell how long that took.

    One process on this machine does both, so it tells what one Python client gets, and not the most that the cluster can do. It uses
    a topic and a group of its own, which are deleted in the end.

    \b
    Exit code: 0  all messages were stored and read
               1  some failed, or were not read again in time
               3  the cluster cannot be used
    """
    clock = SystemClock()
    load = Load(
        topic=f"pocketmq-bench-{clock.now_ms()}", seconds=seconds, body_bytes=body_bytes, lanes=lanes, queues=queues
    )
    with advised(), Portal("pocketmq bench") as portal:
        measured = portal.run(measure(cluster, load, clock))
    rows = [
        {"what": "send", **percentiles(measured.send_s)},
        {"what": "end to end", **percentiles(measured.end_to_end_s)},
    ]
    if as_json:
        show_json([{**_totals(measured, load), "send": rows[0], "end_to_end": rows[1]}])
    else:
        _tell(measured, load)
        show_rows(rows, _COLUMNS, as_json=False, empty="")
    return ExitCode.OK if not measured.failures and not measured.missing else ExitCode.REPAIRABLE


def percentiles(seconds: Sequence[float]) -> dict[str, float | None]:
    """In milliseconds, each of them a time that was measured; None when there is none."""
    ordered = sorted(seconds)
    if not ordered:
        return dict.fromkeys((*(f"p{percent:g}" for percent in PERCENTILES), "max"))
    places = {f"p{percent:g}": math.ceil(len(ordered) * percent / 100) - 1 for percent in PERCENTILES}
    found: dict[str, float | None] = {name: ordered[place] * 1000 for name, place in places.items()}
    return {**found, "max": ordered[-1] * 1000}


def _totals(measured: Measured, load: Load) -> dict[str, Any]:
    sent = len(measured.send_s)
    return {
        "seconds": measured.seconds,
        "sent": sent,
        "read": len(measured.end_to_end_s),
        "missing": measured.missing,
        "twice": measured.twice,
        "failures": dict(measured.failures),
        "per_s": sent / measured.seconds if measured.seconds else None,
        "mib_per_s": sent * load.body_bytes / measured.seconds / (1 << 20) if measured.seconds else None,
        "body_bytes": load.body_bytes,
        "lanes": load.lanes,
        "queues": load.queues,
    }


def _tell(measured: Measured, load: Load) -> None:
    totals = _totals(measured, load)
    tell(
        f"{count(totals['sent'], 'message')} of {load.body_bytes:,} bytes in {measured.seconds:.1f} s: "
        f"{totals['per_s']:,.0f} messages a second, {totals['mib_per_s']:,.1f} MiB a second."
    )
    tell(f"By one process, {load.lanes} sends under way at once, {load.queues} queues, read by one member meanwhile.")
    for kind, many in measured.failures.most_common():
        tell(f"Failed: {many:,} by {kind}.")
    if measured.missing:
        tell(f"Not read again in time: {measured.missing:,}.")
    if measured.twice:
        tell(f"Read more than once: {measured.twice:,}.")
    tell("")
