"""What tasks of a mirror do: the messages of whole queues, in their order, to the queues of the other cluster.

    rows of a partition, by queue and offset ── not there yet ── batches ── one after the other ──► target queue
                                                   │                                                   │
    the end of the target queue, looked through once before the first ◄────────────────────────────────┘
    ──► runs: from where to where they went

A failed send fails its task. What it wrote stays, and the next attempt finds it there. `sink` lets Spark run it.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from time import sleep
from typing import Any, Final

import msgspec

from pocketmq.client import AsyncProducer
from pocketmq.client.outgoing import can_share_a_batch
from pocketmq.client.results import SendResult
from pocketmq.errors import PocketMQError
from pocketmq.model.message import Message
from pocketmq.model.queue import MessageQueue, QueueOffset, QueueRange
from pocketmq.pipelines.mirror.copies import OF, Place, copy_of, parse_place
from pocketmq.pipelines.mirror.offset_map import MirroredRun
from pocketmq.spark.libraries import pa, pc
from pocketmq.spark.metadata import ClientMetadata
from pocketmq.spark.schema import Name
from pocketmq.spark.sink_connections import borrow_producer
from pocketmq.spark.sink_search import IDLE_TIMEOUT_MS, borrow_metadata, search
from pocketmq.spark.sink_sending import FIRST_WAIT_S, may_repeat
from pocketmq.spark.sink_settling import IN_FLIGHT_S
from pocketmq.spark.worker_connections import Held
from pocketmq.spark.write_options import WriteOptions

READ: Final = "topic string, brokerName string, queueId int, queueOffset bigint, msgId string, value binary, properties map<string,string>, bornTimestamp timestamp"  # fmt: skip
"""What is read of the source."""
_RECORD_BYTES: Final = 64


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What a task needs to know: where queues go, where each begins, and where copies of this batch may be already."""

    writing: WriteOptions
    targets: list[tuple[MessageQueue, MessageQueue]]
    next_offsets: list[QueueOffset]
    searched_from: list[QueueOffset]

    @property
    def topics(self) -> list[str]:
        """Of the other cluster."""
        return sorted({target.topic for _, target in self.targets})


def mirror_rows(order: Order, batches: Iterator[Any], attempt: int = 0, launch: str | None = None) -> list[MirroredRun]:
    """Send the rows of whole queues, sorted by queue and offset; the runs that this made. `attempt` counts from 0, and `launch` is
    another one whenever Spark has begun anew.
    """
    if attempt:
        sleep(IN_FLIGHT_S)
    with ExitStack() as lease:
        sending = lease.enter_context(borrow_producer(order.writing, IDLE_TIMEOUT_MS))
        metadata = borrow_metadata(order.writing.connection, lease)
        brokers = {queue.broker_name for topic in order.topics for queue in metadata.queues(topic)}
        metadata.wait_until_entered(brokers, None if attempt else launch)
        copying = _Copying(order, sending, metadata)
        for batch in batches:
            copying.take(batch)
        copying.flush()
    return copying.runs


class _Copying:
    """One task at work. Rows of one queue follow each other."""

    def __init__(self, order: Order, sending: Held[AsyncProducer], metadata: ClientMetadata) -> None:
        self._writing = order.writing
        self._targets = dict(order.targets)
        self._next_offsets = {place.queue: place.offset for place in order.next_offsets}
        self._searched_from = {place.queue: place.offset for place in order.searched_from}
        self._sending = sending
        self._metadata = metadata
        self._queue: MessageQueue | None = None
        self._next = 0
        self._waiting: list[tuple[Place, Message]] = []
        self._waiting_bytes = 0
        self.runs: list[MirroredRun] = []

    def take(self, batch: Any) -> None:
        born = pc.cast(batch.column("bornTimestamp"), pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64())
        columns = [batch.column(name).to_pylist() for name in ("topic", "brokerName", "queueId", "queueOffset", "msgId", "value", "properties")]  # fmt: skip
        for topic, broker, queue_id, offset, message_id, body, pairs, born_ms in zip(
            *columns, born.to_pylist(), strict=True
        ):
            queue = MessageQueue(topic, broker, queue_id)
            if queue != self._queue:
                self._begin(queue)
            if offset >= self._next:
                place = Place(broker, queue_id, offset)
                self._add(place, copy_of(topic, place, body, dict(pairs or ()), born_ms or 0, message_id))

    def flush(self) -> None:
        """Send what waits, as one batch, and note where it went."""
        if not self._waiting or self._queue is None:
            return
        target = self._targets[self._queue]
        results = self._sending.call(
            _deliver(self._sending.core(), target, [copy for _, copy in self._waiting], self._writing)
        )
        for (place, _), result in zip(self._waiting, results, strict=True):
            self._note(place, target, result.queue_offset)
        self._waiting, self._waiting_bytes = [], 0

    def _begin(self, queue: MessageQueue) -> None:
        self.flush()
        self._queue = queue
        self._next = self._next_offsets.get(queue, 0)
        target = self._targets[queue]
        for place, at in self._copies(target):
            if place.queue(queue.topic) == queue and place.offset >= self._next:
                self._note(place, target, at)
                self._next = place.offset + 1

    def _add(self, place: Place, copy: Message) -> None:
        is_alone = not can_share_a_batch(copy) or len(copy.body) >= self._sending.core().settings.compress_over_bytes
        if is_alone:
            self.flush()  # what came before it stays before it
        self._waiting.append((place, copy))
        self._waiting_bytes += (
            len(copy.body) + _RECORD_BYTES + sum(map(len, (*copy.properties, *copy.properties.values())))
        )
        if is_alone or self._waiting_bytes >= self._writing.batch_bytes:
            self.flush()

    def _note(self, place: Place, target: MessageQueue, at: int) -> None:
        assert self._queue is not None, "a queue was begun"
        run = MirroredRun(place.queue(self._queue.topic), place.offset, target, at, 1)
        if self.runs and self.runs[-1].is_followed_by(run):
            self.runs[-1] = msgspec.structs.replace(self.runs[-1], count=self.runs[-1].count + 1)
        else:
            self.runs.append(run)

    def _copies(self, target: MessageQueue) -> Iterator[tuple[Place, int]]:
        """Copies at the end of a target queue, and where they are: an attempt that failed may have sent them."""
        low, high = self._metadata.bounds([target])[target]
        start = max(low, self._searched_from.get(target, low))
        if start >= high:
            return
        wanted = [QueueRange(target, start, high)]
        columns = (Name.QUEUE_OFFSET, Name.PROPERTIES)
        for batch in search(self._writing.connection, self._writing.group, wanted, columns):
            texts = pc.map_lookup(batch.column(1), OF, "first").to_pylist()
            for at, text in zip(batch.column(0).to_pylist(), texts, strict=True):
                if text is not None and (place := parse_place(text)) is not None:
                    yield place, at


async def _deliver(
    producer: AsyncProducer, target: MessageQueue, messages: Sequence[Message], options: WriteOptions
) -> list[SendResult]:
    """Send a batch, again in place only while the broker surely did not store it."""
    wait_s = FIRST_WAIT_S
    for left in range(options.send_retries, -1, -1):
        try:
            return await producer.send_many(messages, queue=target, timeout_s=options.send_timeout_ms / 1000)
        except PocketMQError as error:
            if not left or not may_repeat(error, options):
                raise
        await asyncio.sleep(wait_s)
        wait_s *= 2
    raise AssertionError("the last attempt returns or raises")
