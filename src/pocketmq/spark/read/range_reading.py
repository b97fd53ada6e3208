"""Ranges of queues become Arrow batches. Several pulls run ahead in parallel while earlier ones are decoded.

    ranges ──► chunks of about a buffer ──► pulls in flight, limited ──► in order ──► decoder ──► batches
                     ▲                            │
                     └── the rest of a chunk ─────┘

Brokers often return only 32 messages, so one pull after the other would mostly wait. A chunk is the number of messages that fill
a buffer, by the average so far. If it turns out larger it is cut, and its rest comes next. The task pulls by itself, see `chunks`.
`ChunkPulls` uses the client's event loop instead, and handles everything: failures, losses, encrypted connections.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack
from typing import Any, Final

from pocketmq.errors import CallTimedOut, DataLost, PocketMQError, TopicNotFound
from pocketmq.model import MessageQueue, QueueRange
from pocketmq.protocol.body_pack import is_pack
from pocketmq.spark.broker_facts import Answer, Puller, refuses_sql
from pocketmq.spark.decode.decoding import Decoder, Pulled
from pocketmq.spark.python_processes import keep_memory, short_errors
from pocketmq.spark.read.chunks import AwaitedChunk, Chunk, DirectChunks, messages_of_next, unpacked
from pocketmq.spark.read.data_loss import loss_text
from pocketmq.spark.read.offsets import Cause, Lost
from pocketmq.spark.read.planning import ReadPartition
from pocketmq.spark.schema import NULLS_ANYWHERE, NeverNull
from pocketmq.spark.shared_clients import READING, ReadingCore, SharedClient

log = logging.getLogger("pocketmq.spark")

CHUNKS_AHEAD: Final = 4
FIRST_CHUNK: Final = 512
"""Messages in a chunk before their size is known."""
RETRY_S: Final = 0.1
GAP_S: Final = 5.0
"""Time for a broker to report that messages which it skips are deleted. After that, messages that it still claims to have never
existed, as in compacted topics; messages in a hole did exist, and are lost.
"""


class ChunkPulls:
    """Pulls ranges for one task, on an event loop."""

    def __init__(self, puller: Puller, partition: ReadPartition) -> None:
        self._puller = puller
        self._partition = partition
        self._wanted = {one.queue.topic: partition.subscription(one.queue.topic) for one in partition.slices}
        self._gappy_queues: set[MessageQueue] = set()

    async def pull(self, wanted: QueueRange) -> Chunk:
        """All of a range, or as much as fills a buffer. CallTimedOut if there is no progress for too long."""
        found: list[bytes] = []
        lost: list[Lost] = []
        offset, size = wanted.start, 0
        while offset < wanted.end and size < self._partition.buffer_bytes:
            left = QueueRange(wanted.queue, offset, wanted.end)
            next_one = await self._next(left)
            if isinstance(next_one, Lost):
                lost.append(next_one)
                offset = next_one.range.end
                continue
            found.append(next_one.records)
            size += len(next_one.records)
            offset = next_one.next_offset
        done, rest = wanted.split(offset)
        return Chunk(Pulled(done, b"".join(found)), rest, lost)

    async def _next(self, left: QueueRange) -> Answer | Lost:
        """A response that makes progress, or the range that is lost instead."""
        partition = self._partition
        limit = min(partition.pull_messages, len(left))
        loop = asyncio.get_running_loop()
        began = loop.time()
        deadline = began + partition.poll_timeout_ms / 1000
        gap_deadline = began if left.queue in self._gappy_queues else min(began + GAP_S, deadline)
        while True:
            failure: PocketMQError | None = None
            subscription = self._wanted[left.queue.topic]
            try:
                answer = await self._puller.pull(left.queue, left.start, subscription, limit, partition.pull_bytes)
                if left.start < answer.bounds.min or left.start >= answer.bounds.max:
                    if (lost_range := await self._lost_range(left)) is not None:
                        return lost_range
                elif answer.next_offset > left.start and not (answer.is_gap and loop.time() < gap_deadline):
                    return (self._lost_in_gap(left, answer) if answer.is_gap else None) or answer
            except TopicNotFound:
                if not await self._puller.is_deleted(left.queue):
                    raise
                return Lost(left, Cause.DELETION)
            except PocketMQError as error:
                if refuses_sql(error) and partition.condition is not None and not subscription.is_tag:
                    self._filter_without_sql(left.queue)
                    continue
                if not error.retriable:
                    raise
                failure = error
            if loop.time() >= deadline:
                raise CallTimedOut(
                    f"{left.queue} returned no message from offset {left.start} within {partition.poll_timeout_ms} ms; "
                    "check its broker, or raise rocketmqConsumer.pollTimeoutMs"
                ) from failure
            await asyncio.sleep(RETRY_S)

    def _filter_without_sql(self, queue: MessageQueue) -> None:
        """A broker that accepted SQL92 when the read was planned refuses it: its setting changed, or this is a slave."""
        log.warning("The filter is applied after reading %s: broker %s refuses SQL92", queue.topic, queue.broker_name)
        self._wanted[queue.topic] = self._partition.subscription_without_sql(queue.topic)

    def _lost_in_gap(self, left: QueueRange, gap: Answer) -> Lost | None:
        """None unless messages existed. Later gaps of the queue do not wait again, as compacted topics have many."""
        if left.queue not in self._gappy_queues:
            self._gappy_queues.add(left.queue)
            log.warning("%s has gaps, the first at offset %d; continuing after each of them", left.queue, left.start)
        if not gap.is_hole:
            return None
        return Lost(QueueRange(left.queue, left.start, min(gap.next_offset, left.end)), Cause.HOLE)

    async def _lost_range(self, left: QueueRange) -> Lost | None:
        """The lost part of a range, by the bounds at the master; None if the next message exists after all."""
        low, high = await self._puller.bounds(left.queue)
        if left.start < low:
            return Lost(QueueRange(left.queue, left.start, min(low, left.end)), Cause.RETENTION)
        return Lost(left, Cause.TRUNCATION) if left.start >= high else None


def pull_ahead(
    partition: ReadPartition, start: Callable[[QueueRange], AwaitedChunk], *, ahead: int = CHUNKS_AHEAD
) -> Generator[Pulled, None, None]:
    """The ranges of a partition in order; `start` begins to pull a range. DataLost if messages are lost and the policy is fail."""
    waiting = deque(partition.slices)
    in_flight: deque[AwaitedChunk] = deque()
    count, largest = FIRST_CHUNK, 0
    try:
        while waiting or in_flight:
            while waiting and len(in_flight) < ahead:
                first = waiting.popleft()
                end = min(first.end, first.start + count)
                if end < first.end:
                    waiting.appendleft(QueueRange(first.queue, end, first.end))
                in_flight.append(start(QueueRange(first.queue, first.start, end)))
            chunk = in_flight.popleft().result()
            if chunk.rest is not None:
                in_flight.appendleft(start(chunk.rest))
            _settle(chunk.lost, partition.on_data_loss)
            if chunk.pulled.records:
                largest = chunk.largest or largest
                count = messages_of_next(chunk, partition.buffer_bytes, largest)
                yield chunk.pulled
    finally:
        for awaited in in_flight:
            awaited.cancel()


def decoded(pulls: Iterable[Pulled], decoder: Decoder, buffer_bytes: int) -> Iterator[Any]:
    """Record batches of about a buffer each."""
    gathered: list[Pulled] = []
    for pulled in pulls:
        is_packed = is_pack(pulled.records)
        if not is_packed:
            gathered.append(pulled)
        if gathered and (is_packed or sum(len(one.records) for one in gathered) * 2 >= buffer_bytes):
            yield from decoder.batches(gathered)
            gathered = []
        if is_packed:
            yield from unpacked(pulled, decoder.schema)
    if gathered:
        yield from decoder.batches(gathered)


def read_partition(partition: ReadPartition, never_null: NeverNull = NULLS_ANYWHERE) -> Iterator[Any]:
    """The record batches of one Spark task. `never_null` is what the schema says about nulls."""
    keep_memory()
    decoder = Decoder(
        partition.columns,
        never_null=never_null,
        tags=partition.tags,
        condition=partition.condition,
        namespace=partition.connection.namespace,
        check_crc=partition.check_crc,
    )
    with (
        short_errors(),
        READING.borrow(partition.connection, partition.idle_timeout_ms) as client,
        ExitStack() as leave,
    ):
        ahead = pull_ahead(partition, _pull_starter(client, partition, leave))
        leave.callback(ahead.close)
        yield from decoded(ahead, decoder, partition.buffer_bytes)


def _pull_starter(
    client: SharedClient[ReadingCore], partition: ReadPartition, leave: ExitStack
) -> Callable[[QueueRange], AwaitedChunk]:
    """Pull on this thread if possible, pull_by_loop on the event loop."""
    core = client.core()
    pulls = ChunkPulls(core.puller(partition.group), partition)

    def by_loop(wanted: QueueRange) -> AwaitedChunk:
        return client.submit(pulls.pull(wanted))

    topics = {wanted.queue.topic for wanted in partition.slices}
    try:
        direct = client.call(core.direct_pulls(partition.group, topics, partition.pull_bytes))
    except PocketMQError as error:
        log.info("Pulling by the event loop: %s", error)
        direct = None
    if direct is None:
        return by_loop
    chunks = DirectChunks(direct, partition, core.targets.wire_queue, by_loop)
    leave.callback(chunks.close)
    return chunks.start


def _settle(lost: list[Lost], policy: str) -> None:
    if not lost:
        return
    if policy == "fail":
        raise DataLost(loss_text(lost))
    log.warning("%s", loss_text(lost))
