"""Sends the rows of a task in batches, in parallel, and waits for all results.

    rows ──────── plain, encoded by columns ───────────────────────────┐
    messages ──┬─ one topic, any queue ──► batches of sendBatchBytes ──┤
               ├─ a sharding key: its queue, one batch at a time ──────┼──► at most maxInFlightBatches ──► results
               └─ delayed, or long enough to be compressed: alone ─────┘

With at-least-once, a failed batch is sent again whenever that may help. With effectively-once, an attempt without a response may have
been stored: then the task fails, and its next attempt searches the topic.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Future, wait
from contextlib import ExitStack
from typing import Any, Final

from pocketmq.client.producer.outgoing import Outgoing, can_share_a_batch
from pocketmq.client.producer.producer import AsyncProducer
from pocketmq.client.producer.queue_choice import by_hash
from pocketmq.client.producer.results import SendStatus
from pocketmq.clock import SystemClock
from pocketmq.errors import (
    ConnectFailed,
    FlowControl,
    NoPermission,
    PartlySent,
    PocketMQError,
    SystemBusy,
    TooManyCalls,
)
from pocketmq.model import Message, MessageQueue
from pocketmq.model.properties import SHARDING_KEY
from pocketmq.spark.options.write_options import WriteOptions
from pocketmq.spark.write.sink_batches import BatchPacker, PlainRows

log = logging.getLogger("pocketmq.spark")

FIRST_WAIT_S: Final = 0.1
"""The wait before the first retry; it doubles with each."""
_RECORD_BYTES: Final = 64
"""The approximate size of a message in a batch without its body and properties."""
_BUSY: Final = (SystemBusy, FlowControl)
_NOT_SENT: Final = (ConnectFailed, TooManyCalls)

Destination = tuple[str, MessageQueue | None]


class SendBatch:
    """Messages of a destination that wait to be sent together, and their size."""

    __slots__ = ("messages", "size")

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.size = 0


class Sends:
    """Sends the messages of one task. `start` starts a coroutine in the background."""

    def __init__(
        self,
        producer: AsyncProducer,
        options: WriteOptions,
        start: Callable[[Coroutine[Any, Any, None]], "Future[None]"],
        queues_of: Callable[[str], Sequence[MessageQueue]],
    ) -> None:
        self._producer = producer
        self._options = options
        self._start = start
        self._queues_of = queues_of
        self._waiting: dict[Destination, SendBatch] = {}
        self._in_flight: deque[Future[None]] = deque()
        self._orders: dict[MessageQueue, asyncio.Lock] = {}
        self._packer: BatchPacker | None = None
        self._warned = False

    @property
    def alone_from_bytes(self) -> int:
        """Bodies of at least this size are compressed, and sent alone."""
        return self._producer.settings.compress_over_bytes

    def add_rows(self, rows: PlainRows) -> None:
        """Send rows that share batches; raises the failure of an earlier batch."""
        if self._packer is None:
            self._packer = BatchPacker(
                self._producer.settings,
                self._producer.member.outbox.packer.ids,
                SystemClock(),
                self._options.batch_bytes,
            )
        for out in list(self._packer.packed(rows)):  # an invalid row raises before any is sent
            self._begin(self._attempts(_OneBatch(self._producer, out)))

    def add(self, messages: Iterable[Message]) -> None:
        """Send messages, or let them wait for a full batch; raises the failure of an earlier batch."""
        limit = self._options.batch_bytes
        alone_from = self.alone_from_bytes
        for message in messages:
            destination = self._destination(message)
            if len(message.body) >= alone_from or not can_share_a_batch(message):
                self._flush(destination)  # keep the order within the destination
                self._send(destination, [message])
                continue
            batch = self._waiting.get(destination)
            if batch is None:
                batch = self._waiting[destination] = SendBatch()
            batch.messages.append(message)
            batch.size += _size(message)
            if batch.size >= limit:
                self._flush(destination)

    def finish(self) -> None:
        """Return when all is stored, or raise the first failure."""
        for destination in list(self._waiting):
            self._flush(destination)
        while self._in_flight:
            self._in_flight.popleft().result()

    def abandon(self) -> None:
        """After a failure of the task: wait for batches in flight, which may still be stored; the next attempt must find them."""
        _, late = wait(self._in_flight, self._options.send_timeout_ms / 1000)
        for future in late:
            future.cancel()

    def _destination(self, message: Message) -> Destination:
        if SHARDING_KEY not in message.properties:
            return message.topic, None
        if not (queues := self._queues_of(message.topic)):
            raise NoPermission(
                f"topic {message.topic!r} has no writable queue: its brokers have no master, or it is read-only"
            )
        return message.topic, by_hash(queues, message)

    def _flush(self, destination: Destination) -> None:
        if (batch := self._waiting.pop(destination, None)) is not None:
            self._send(destination, batch.messages)

    def _send(self, destination: Destination, messages: list[Message]) -> None:
        self._begin(self._deliver(destination[1], messages))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        with ExitStack() as undo:
            undo.callback(work.close)
            while len(self._in_flight) >= self._options.max_in_flight:
                self._in_flight.popleft().result()
            undo.pop_all()
        self._in_flight.append(self._start(work))

    async def _deliver(self, queue: MessageQueue | None, messages: list[Message]) -> None:
        attempt = _Messages(self._producer, queue, messages)
        if queue is None:
            await self._attempts(attempt)
            return
        async with self._orders.setdefault(
            queue, asyncio.Lock()
        ):  # fair: batches keep the order in which they were started
            await self._attempts(attempt)

    async def _attempts(self, work: "_OneBatch | _Messages") -> None:
        options = self._options
        loop = asyncio.get_running_loop()
        deadline = loop.time() + options.send_timeout_ms / 1000
        wait_s = FIRST_WAIT_S
        for left in range(options.send_retries, -1, -1):
            try:
                self._check(await work.send(max(0.001, deadline - loop.time())))
                return
            except PocketMQError as error:
                failure = work.failure(error)
                if not left or loop.time() + wait_s >= deadline or not may_repeat(failure, options):
                    raise
            await asyncio.sleep(wait_s)
            wait_s *= 2

    def _check(self, statuses: Iterable[SendStatus]) -> None:
        unsafe = next((status for status in statuses if status is not SendStatus.SEND_OK), None)
        if unsafe is not None and not self._warned:
            self._warned = True
            log.warning("Broker stored messages with status %s: their replication or disk write is incomplete", unsafe)


class _OneBatch:
    """An encoded batch."""

    def __init__(self, producer: AsyncProducer, out: Outgoing) -> None:
        self._producer = producer
        self._out = out

    async def send(self, timeout_s: float) -> Sequence[SendStatus]:
        return [(await self._producer.member.outbox.deliver(self._out, timeout_s=timeout_s)).status]

    def failure(self, error: PocketMQError) -> PocketMQError:
        return error


class _Messages:
    """Messages of a destination; stored ones are not sent again."""

    def __init__(self, producer: AsyncProducer, queue: MessageQueue | None, messages: list[Message]) -> None:
        self._producer = producer
        self._queue = queue
        self._messages = messages

    async def send(self, timeout_s: float) -> Sequence[SendStatus]:
        results = await self._producer.send_many(self._messages, queue=self._queue, timeout_s=timeout_s)
        return [result.status for result in results]

    def failure(self, error: PocketMQError) -> PocketMQError:
        """The failure that decides whether the rest is sent again."""
        if not isinstance(error, PartlySent) or not isinstance(error.__cause__, PocketMQError):
            return error
        self._messages = [one for one, sent in zip(self._messages, error.results, strict=True) if sent is None]
        return error.__cause__


def may_repeat(failure: PocketMQError, options: WriteOptions) -> bool:
    """Whether the task may send again after this failure."""
    if isinstance(failure, _BUSY):
        return options.retry_when_busy
    if isinstance(failure, _NOT_SENT):
        return True
    return failure.retriable and not options.is_effectively_once


def _size(message: Message) -> int:
    own = message.properties
    return len(message.body) + _RECORD_BYTES + sum(map(len, own)) + sum(map(len, own.values()))
