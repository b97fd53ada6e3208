"""The tasks of a mirror: they send the messages of whole queues, in order, to the queues of the other cluster.

    rows of a partition, by queue and offset ── not copied yet ── batches ── one after the other ──► target queue
                                                    │                                                   │
    the end of the target queue, searched once before the first batch ◄─────────────────────────────────┘
    ──► runs: offsets at the source and at the target

A failed send fails its task. Its messages stay, and the next attempt finds them.

Tasks return their runs through a data source of the mirror. Spark passes the results of tasks only to the commit of a sink, which runs in
a separate process, so the commit writes them to a file. (`mapInArrow`, which returns rows, would need pandas.)

    job ── order ──► format("rocketmq-mirror") ── tasks: `mirror_rows` ──► the other cluster
     ▲                                     │ commit, in a process on the driver's machine
     └──────────── runs.json ◄─────────────┘
"""

import asyncio
import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from time import sleep
from typing import Any, Final, NamedTuple

import msgspec
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pocketmq.client import AsyncProducer
from pocketmq.client.producer.outgoing import can_share_a_batch
from pocketmq.client.producer.results import SendResult
from pocketmq.errors import PocketMQError, WrongState
from pocketmq.files import DiskFiles, Files, write_atomically
from pocketmq.model import Message, MessageQueue, QueueOffset, QueueRange
from pocketmq.model import properties as names
from pocketmq.pipelines.core.libraries import DataFrame
from pocketmq.pipelines.mirror.offset_map import MirroredRun
from pocketmq.spark.arrow import pa, pc
from pocketmq.spark.options.write_options import WriteOptions
from pocketmq.spark.read.metadata import ClientMetadata
from pocketmq.spark.schema import Name
from pocketmq.spark.shared_clients import SharedClient
from pocketmq.spark.write.sink_offsets import IDLE_TIMEOUT_MS, IN_FLIGHT_S, borrow_metadata, search
from pocketmq.spark.write.sink_sending import FIRST_WAIT_S, may_repeat
from pocketmq.spark.write.sink_task import borrow_producer

OF: Final = "mirrorOf"
"""The property with broker, queue and offset of the original."""
BORN: Final = "mirrorBorn"
"""The property with the born time of the original in milliseconds: brokers set a new one for a copy."""
ID: Final = "mirrorId"
"""The property with the id of the original: each copy has its own id."""
_KEPT: Final = frozenset({names.TAGS, names.KEYS, names.SHARDING_KEY, names.BUYER_ID, names.MESSAGE_TYPE})
"""RocketMQ's own properties that a copy keeps. Others request something of the broker, or describe the past of the original."""


class Origin(NamedTuple):
    """The position of a message on its cluster."""

    broker: str
    queue_id: int
    offset: int

    def __str__(self) -> str:
        return f"{self.broker}:{self.queue_id}:{self.offset}"

    def queue(self, topic: str) -> MessageQueue:
        return MessageQueue(topic, self.broker, self.queue_id)


def parse_origin(text: str) -> Origin | None:
    """None for another text: any client may set the property."""
    broker, _, rest = text.rpartition(":")
    name, _, queue_id = broker.rpartition(":")
    return Origin(name, int(queue_id), int(rest)) if name and queue_id.isdecimal() and rest.isdecimal() else None


def copy_of(
    topic: str, origin: Origin, body: bytes, properties: dict[str, str], born_ms: int, message_id: str
) -> Message:
    """The copy of a message."""
    copy = Message(topic, body)
    kept = {name: text for name, text in properties.items() if name not in names.RESERVED or name in _KEPT}
    copy.properties.update(kept)
    copy.properties.update({OF: str(origin), BORN: str(born_ms), ID: message_id})
    return copy


READ: Final = "topic string, brokerName string, queueId int, queueOffset bigint, msgId string, value binary, properties map<string,string>, bornTimestamp timestamp"  # fmt: skip
"""The columns that are read from the source."""
_RECORD_BYTES: Final = 64


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """The input of a task: the target of each queue, its next offset, and where copies of this batch may be already."""

    writing: WriteOptions
    targets: list[tuple[MessageQueue, MessageQueue]]
    next_offsets: list[QueueOffset]
    searched_from: list[QueueOffset]

    @property
    def topics(self) -> list[str]:
        """The topics on the other cluster."""
        return sorted({target.topic for _, target in self.targets})


def mirror_rows(order: Order, batches: Iterator[Any], attempt: int = 0, launch: str | None = None) -> list[MirroredRun]:
    """Send the rows of whole queues, sorted by queue and offset; returns the runs. `attempt` counts from 0; `launch` identifies
    the start of the query.
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
            copying.add_batch(batch)
        copying.flush()
    return copying.runs


class _Copying:
    """The state of one task. Rows of one queue follow each other."""

    def __init__(self, order: Order, sending: SharedClient[AsyncProducer], metadata: ClientMetadata) -> None:
        self._writing = order.writing
        self._targets = dict(order.targets)
        self._next_offsets = {one.queue: one.offset for one in order.next_offsets}
        self._searched_from = {one.queue: one.offset for one in order.searched_from}
        self._sending = sending
        self._metadata = metadata
        self._queue: MessageQueue | None = None
        self._next = 0
        self._waiting: list[tuple[Origin, Message]] = []
        self._waiting_bytes = 0
        self.runs: list[MirroredRun] = []

    def add_batch(self, batch: Any) -> None:
        born = pc.cast(batch.column("bornTimestamp"), pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64())
        columns = [batch.column(name).to_pylist() for name in ("topic", "brokerName", "queueId", "queueOffset", "msgId", "value", "properties")]  # fmt: skip
        for topic, broker, queue_id, offset, message_id, body, pairs, born_ms in zip(
            *columns, born.to_pylist(), strict=True
        ):
            queue = MessageQueue(topic, broker, queue_id)
            if queue != self._queue:
                self._begin(queue)
            if offset >= self._next:
                origin = Origin(broker, queue_id, offset)
                self._add(origin, copy_of(topic, origin, body, dict(pairs or ()), born_ms or 0, message_id))

    def flush(self) -> None:
        """Send waiting messages as one batch, and record their runs."""
        if not self._waiting or self._queue is None:
            return
        target = self._targets[self._queue]
        results = self._sending.call(
            _deliver(self._sending.core(), target, [copy for _, copy in self._waiting], self._writing)
        )
        for (origin, _), result in zip(self._waiting, results, strict=True):
            self._record(origin, target, result.queue_offset)
        self._waiting, self._waiting_bytes = [], 0

    def _begin(self, queue: MessageQueue) -> None:
        self.flush()
        self._queue = queue
        self._next = self._next_offsets.get(queue, 0)
        target = self._targets[queue]
        for origin, at in self._copies(target):
            if origin.queue(queue.topic) == queue and origin.offset >= self._next:
                self._record(origin, target, at)
                self._next = origin.offset + 1

    def _add(self, origin: Origin, copy: Message) -> None:
        is_alone = not can_share_a_batch(copy) or len(copy.body) >= self._sending.core().settings.compress_over_bytes
        if is_alone:
            self.flush()  # keep the order
        self._waiting.append((origin, copy))
        self._waiting_bytes += (
            len(copy.body) + _RECORD_BYTES + sum(map(len, (*copy.properties, *copy.properties.values())))
        )
        if is_alone or self._waiting_bytes >= self._writing.batch_bytes:
            self.flush()

    def _record(self, origin: Origin, target: MessageQueue, at: int) -> None:
        assert self._queue is not None, "a queue was begun"
        run = MirroredRun(origin.queue(self._queue.topic), origin.offset, target, at, 1)
        if self.runs and self.runs[-1].is_followed_by(run):
            self.runs[-1] = msgspec.structs.replace(self.runs[-1], count=self.runs[-1].count + 1)
        else:
            self.runs.append(run)

    def _copies(self, target: MessageQueue) -> Iterator[tuple[Origin, int]]:
        """Copies at the end of a target queue, with their offsets: a failed attempt may have sent them."""
        low, high = self._metadata.bounds([target])[target]
        start = max(low, self._searched_from.get(target, low))
        if start >= high:
            return
        wanted = [QueueRange(target, start, high)]
        columns = (Name.QUEUE_OFFSET, Name.PROPERTIES)
        for batch in search(self._writing.connection, self._writing.group, wanted, columns):
            texts = pc.map_lookup(batch.column(1), OF, "first").to_pylist()
            for at, text in zip(batch.column(0).to_pylist(), texts, strict=True):
                if text is not None and (origin := parse_origin(text)) is not None:
                    yield origin, at


async def _deliver(
    producer: AsyncProducer, target: MessageQueue, messages: Sequence[Message], options: WriteOptions
) -> list[SendResult]:
    """Send a batch, with retries only if the broker certainly did not store it."""
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


NAME: Final = "rocketmq-mirror"
ANSWER: Final = "runs.json"


@dataclasses.dataclass
class RunsMade(WriterCommitMessage):
    """The result of a task."""

    runs: tuple[MirroredRun, ...]


class MirrorSink(DataSource):
    """Accepts rows of whole queues. Options: `order`, as JSON, and `answer`, the file for the runs."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def writer(self, schema: StructType, overwrite: bool) -> "MirrorWriter":
        order = msgspec.json.decode(self.options["order"], type=Order)
        return MirrorWriter(order, self.options["answer"])


class MirrorWriter(DataSourceArrowWriter):
    """A write of one batch."""

    def __init__(self, order: Order, answer: str) -> None:
        self._order = order
        self._answer = answer

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        task = TaskContext.get()
        assert task is not None, "rows are written by a task"
        runs = mirror_rows(self._order, iterator, task.attemptNumber(), f"stage {task.stageId()}")
        return RunsMade(tuple(runs))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        runs = [run for message in messages if isinstance(message, RunsMade) for run in message.runs]
        write_atomically(DiskFiles(), Path(self._answer), msgspec.json.encode(runs))


def send_batch(rows: DataFrame, order: Order, folder: Path, files: Files) -> list[MirroredRun]:
    """Send rows with Spark; returns the runs."""
    answer = folder / ANSWER
    if files.status(answer) is not None:
        files.unlink(answer)
    rows.sparkSession.dataSource.register(MirrorSink)
    options = {"order": msgspec.json.encode(order).decode(), "answer": str(answer)}
    rows.write.format(NAME).options(**options).mode("append").save()
    if files.status(answer) is None:
        raise WrongState(f"Spark ended a batch of the mirror without writing {answer}")
    return msgspec.json.decode(files.read(answer), type=list[MirroredRun])
