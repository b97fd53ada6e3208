"""Ranges of queues become Arrow batches: pulled ahead, several pulls side by side, while others are decoded.

    slices ──► chunks of about a buffer ──► pulls under way, at most some ──► in their order ──► decoder ──► batches
                     ▲                            │
                     └── what did not fit ────────┘

Brokers answer with what they like, often 32 messages: one pull after the other would wait most of the time. A chunk is as many
messages as fill a buffer by the average so far; one that turns out larger is cut, and its rest comes next. The task pulls by itself, see
`chunks`; `ChunkPulls` is the way over the client's loop, which copes with everything: failures, losses, lines that are encrypted.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack
from typing import Any, Final

from pocketmq.errors import CallTimedOut, DataLost, PocketMQError
from pocketmq.model.queue import MessageQueue, QueueRange
from pocketmq.model.subscription import Subscription
from pocketmq.protocol.body_pack import is_pack
from pocketmq.spark.broker_facts import Answer, Puller
from pocketmq.spark.decode.decoding import Decoder, Pulled
from pocketmq.spark.python_processes import keep_memory, short_errors
from pocketmq.spark.read.chunks import AwaitedChunk, Chunk, DirectChunks, messages_of_next, unpacked
from pocketmq.spark.read.data_loss import loss_text
from pocketmq.spark.read.offsets import Cause, Lost
from pocketmq.spark.read.planning import ReadPartition
from pocketmq.spark.schema import NULLS_ANYWHERE, NeverNull
from pocketmq.spark.worker_connections import READING, Held, ReadingCore

log = logging.getLogger("pocketmq.spark")

CHUNKS_AHEAD: Final = 4
FIRST_CHUNK: Final = 512
"""Messages of a chunk while nothing is known of their size."""
RETRY_S: Final = 0.1
GAP_S: Final = 5.0
"""So long a broker may take to tell that messages are gone which it passes over. What it still claims to have then never was there, as in
topics that are compacted; but what lies in a hole was, and is lost.
"""


class ChunkPulls:
    """Pulls ranges for one task; nothing here knows of threads."""

    def __init__(self, puller: Puller, partition: ReadPartition) -> None:
        self._puller = puller
        self._partition = partition
        self._wanted = {one.queue.topic: partition.subscription(one.queue.topic) for one in partition.slices}
        self._with_gaps: set[MessageQueue] = set()

    async def pull(self, wanted: QueueRange) -> Chunk:
        """All of a range, or as much as fills a buffer. CallTimedOut when nothing comes for too long."""
        found: list[bytes] = []
        lost: list[Lost] = []
        offset, size = wanted.start, 0
        while offset < wanted.end and size < self._partition.buffer_bytes:
            left = QueueRange(wanted.queue, offset, wanted.end)
            answer, gone = await self._next(left, self._wanted[wanted.queue.topic])
            if gone is not None:
                lost.append(gone)
                offset = gone.range.end
                continue
            found.append(answer.records)
            size += len(answer.records)
            offset = answer.next_offset
        done, rest = wanted.split(offset)
        return Chunk(Pulled(done, b"".join(found)), rest, lost)

    async def _next(self, left: QueueRange, subscription: Subscription) -> tuple[Answer, Lost | None]:
        """An answer that leads on, or what is gone instead."""
        partition = self._partition
        limit = min(partition.pull_messages, len(left))
        loop = asyncio.get_running_loop()
        began = loop.time()
        deadline = began + partition.poll_timeout_ms / 1000
        gap_deadline = began if left.queue in self._with_gaps else min(began + GAP_S, deadline)
        while True:
            failure: PocketMQError | None = None
            try:
                answer = await self._puller.pull(left.queue, left.start, subscription, limit, partition.pull_bytes)
                if left.start < answer.bounds.min or left.start >= answer.bounds.max:
                    if (gone := await self._gone(left)) is not None:
                        return answer, gone
                elif answer.next_offset > left.start and not (answer.is_gap and loop.time() < gap_deadline):
                    return answer, self._lost_in_gap(left, answer) if answer.is_gap else None
            except PocketMQError as error:
                if not error.retriable:
                    raise
                failure = error
            if loop.time() >= deadline:
                raise CallTimedOut(
                    f"{left.queue} gave nothing from {left.start} on within {partition.poll_timeout_ms} ms; "
                    "is its broker well? rocketmqConsumer.pollTimeoutMs says how long a task waits"
                ) from failure
            await asyncio.sleep(RETRY_S)

    def _lost_in_gap(self, left: QueueRange, gap: Answer) -> Lost | None:
        """None where nothing was. The queue is not waited for again, as topics that are compacted have many gaps."""
        if left.queue not in self._with_gaps:
            self._with_gaps.add(left.queue)
            log.warning("%s has gaps, the first that was seen at %d", left.queue, left.start)
        if not gap.is_hole:
            return None
        return Lost(QueueRange(left.queue, left.start, min(gap.next_offset, left.end)), Cause.HOLE)

    async def _gone(self, left: QueueRange) -> Lost | None:
        """What is gone of a range by the word of the master; None when it has the next message after all."""
        low, high = await self._puller.bounds(left.queue)
        if left.start < low:
            return Lost(QueueRange(left.queue, left.start, min(low, left.end)), Cause.RETENTION)
        return Lost(left, Cause.TRUNCATION) if left.start >= high else None


def pulled_ahead(
    partition: ReadPartition, start: Callable[[QueueRange], AwaitedChunk], *, ahead: int = CHUNKS_AHEAD
) -> Generator[Pulled, None, None]:
    """The slices of a partition in their order; `start` begins to pull a range. DataLost if that is to fail."""
    waiting = deque(partition.slices)
    under_way: deque[AwaitedChunk] = deque()
    count, largest = FIRST_CHUNK, 0
    try:
        while waiting or under_way:
            while waiting and len(under_way) < ahead:
                first = waiting.popleft()
                end = min(first.end, first.start + count)
                if end < first.end:
                    waiting.appendleft(QueueRange(first.queue, end, first.end))
                under_way.append(start(QueueRange(first.queue, first.start, end)))
            chunk = under_way.popleft().result()
            if chunk.rest is not None:
                under_way.appendleft(start(chunk.rest))
            _settle(chunk.lost, partition.on_data_loss)
            if chunk.pulled.records:
                largest = chunk.largest or largest
                count = messages_of_next(chunk, partition.buffer_bytes, largest)
                yield chunk.pulled
    finally:
        for awaited in under_way:
            awaited.cancel()


def decoded(pulls: Iterable[Pulled], decoder: Decoder, buffer_bytes: int) -> Iterator[Any]:
    """Record batches, of about a buffer each."""
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
    """What a task of Spark reads: record batches. `never_null` is what the schema of the read says of nulls."""
    keep_memory()
    decoder = Decoder(
        partition.columns,
        never_null=never_null,
        tags=partition.subscription("any").tags_set,
        namespace=partition.connection.namespace,
        check_crc=partition.check_crc,
    )
    with (
        short_errors(),
        READING.borrow(partition.connection, partition.idle_timeout_ms) as client,
        ExitStack() as leave,
    ):
        ahead = pulled_ahead(partition, _way_to_pull(client, partition, leave))
        leave.callback(ahead.close)
        yield from decoded(ahead, decoder, partition.buffer_bytes)


def _way_to_pull(
    client: Held[ReadingCore], partition: ReadPartition, leave: ExitStack
) -> Callable[[QueueRange], AwaitedChunk]:
    """By this thread itself where that is possible, else over the loop."""
    core = client.core()
    pulls = ChunkPulls(core.puller(partition.group), partition)

    def over_the_loop(wanted: QueueRange) -> AwaitedChunk:
        return client.submit(pulls.pull(wanted))

    topics = {wanted.queue.topic for wanted in partition.slices}
    try:
        direct = client.call(core.direct_pulls(partition.group, topics, partition.pull_bytes))
    except PocketMQError as error:
        log.info("topics are pulled over the loop: %s", error)
        direct = None
    if direct is None:
        return over_the_loop
    chunks = DirectChunks(direct, partition, core.reach.wire_queue, over_the_loop)
    leave.callback(chunks.close)
    return chunks.start


def _settle(lost: list[Lost], policy: str) -> None:
    if not lost:
        return
    if policy == "fail":
        raise DataLost(loss_text(lost))
    log.warning("%s", loss_text(lost))
