"""Sends without a result yet: the buffer of each topic in which they wait, and the limit on messages and bytes in flight.

    pack ──► PendingSend ── put ──► TopicBuffer ── sent ──► connection ──┬─ response ──► its future has the result
                                                                         └─ failure ───► `Outbox.first_failed`: a retry, or the error

A send counts as in flight from `put` until it is settled, also when its future is cancelled: the broker still processes it.

    acquire ── within the limit, no waiters ──► continues at once
            └─ else ──► waits in order of arrival ── release ──► continues

A message that exceeds the limit alone is sent when nothing else is in flight, so no message waits without end. Threads that submit have
a limit of their own with the same numbers.
"""

import asyncio
import threading
from collections import deque
from concurrent.futures import Future
from typing import Final, NamedTuple, NoReturn, Protocol

import msgspec

from pocketmq.client.cluster.routes import TopicRoute
from pocketmq.client.producer.fault_strategy import SendKind
from pocketmq.client.producer.outgoing import Outgoing
from pocketmq.client.producer.queue_choice import ANY_QUEUE, Destination
from pocketmq.client.producer.results import SendResult, SendStatus, result_of
from pocketmq.client.producer.send_frames import PlainFrames, code_of
from pocketmq.errors import PocketMQError, TooManyCalls, WrongState
from pocketmq.model import MessageQueue
from pocketmq.protocol.command import Command
from pocketmq.protocol.hot_headers import StoredAnswer

_Waiter = tuple[asyncio.Future[None], int, int]


class InFlightLimit:
    """Limits messages and bytes in flight. Each `acquire` needs a `release` of the same size.

    `count` messages with `bytes` are in flight. The outbox updates both directly while there are no waiters, because calls of `acquire`
    and `release` would double its cost.
    """

    __slots__ = ("_emptied", "_waiters", "bytes", "count", "has_waiters", "max_bytes", "max_count")

    def __init__(self, max_count: int, max_bytes: int) -> None:
        self.max_count = max_count
        self.max_bytes = max_bytes
        self.count = 0
        self.bytes = 0
        self.has_waiters = False
        """Whether calls of `acquire` or `wait_empty` wait. Then only `acquire` and `release` may update the counts."""
        self._waiters: deque[_Waiter] = deque()
        self._emptied: asyncio.Future[None] | None = None

    @property
    def waiting(self) -> int:
        """The number of calls that wait for the limit."""
        return len(self._waiters)

    def try_acquire(self, count: int, size: int) -> bool:
        """Count as in flight if that is within the limit and there are no waiters."""
        all_count, all_bytes = self.count + count, self.bytes + size
        if self._waiters or ((all_count > self.max_count or all_bytes > self.max_bytes) and self.count):
            return False
        self.count, self.bytes = all_count, all_bytes
        return True

    def refuse(self) -> NoReturn:
        """Raise the error for a reached limit."""
        raise TooManyCalls(
            f"flow control: {self.count} messages with {self.bytes} bytes are in flight, the limit of this producer; "
            "await `send` instead, or wait for some of the futures first"
        )

    async def acquire(self, count: int, size: int) -> None:
        """Count as in flight, after waiting for the limit."""
        if self.try_acquire(count, size):
            return
        future = asyncio.get_running_loop().create_future()
        waiter = (future, count, size)
        self._waiters.append(waiter)
        self.has_waiters = True
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self.release(count, size)  # it was counted before the cancellation arrived
            elif waiter in self._waiters:
                self._waiters.remove(waiter)
                self._admit_waiting()
            raise

    def release(self, count: int, size: int) -> None:
        """Count as in flight no longer."""
        self.count -= count
        self.bytes -= size
        if self._waiters:
            self._admit_waiting()
        if not self.count and self._emptied is not None:
            if not self._emptied.done():
                self._emptied.set_result(None)
            self._emptied = None
        self.has_waiters = bool(self._waiters) or self._emptied is not None

    async def wait_empty(self) -> None:
        """Wait until nothing is in flight."""
        while self.count:
            if self._emptied is None:
                self._emptied = asyncio.get_running_loop().create_future()
                self.has_waiters = True
            await asyncio.shield(self._emptied)

    def _fits(self, count: int, size: int) -> bool:
        if not self.count:
            return True
        return self.count + count <= self.max_count and self.bytes + size <= self.max_bytes

    def _admit_waiting(self) -> None:
        while self._waiters:
            future, count, size = self._waiters[0]
            if not self._fits(count, size):
                return
            self._waiters.popleft()
            if future.cancelled():
                continue
            self.count += count
            self.bytes += size
            future.set_result(None)


class BlockingInFlightLimit:
    """`InFlightLimit` for threads."""

    def __init__(self, max_count: int, max_bytes: int) -> None:
        self._changed = threading.Condition()  # guards the two below
        self._count = 0
        self._bytes = 0
        self._max_count = max_count
        self._max_bytes = max_bytes

    @property
    def is_empty(self) -> bool:
        """Whether nothing is in flight."""
        return not self._count

    def acquire(self, size: int) -> None:
        """Count a message of this size as in flight, after waiting for the limit."""
        with self._changed:
            while not self._fits(size):
                self._changed.wait()
            self._count += 1
            self._bytes += size

    def release(self, size: int) -> None:
        with self._changed:
            self._count -= 1
            self._bytes -= size
            self._changed.notify_all()

    def _fits(self, size: int) -> bool:
        return not self._count or (self._count < self._max_count and self._bytes + size <= self._max_bytes)


_OK: Final = SendStatus.SEND_OK
NO_QUEUE: Final = MessageQueue("", "", -1)
"""The queue of a message without a chosen queue."""

SendFuture = asyncio.Future[SendResult] | Future[SendResult]
"""A thread that submitted a message has the second kind."""


class QueueTarget(NamedTuple):
    """A queue with its names on the wire and for users, and the frames of plain messages to it."""

    queue: MessageQueue
    shown: MessageQueue
    frames: PlainFrames


class TopicBuffer:
    """Messages to one topic until the end of this turn of the loop, and the targets of its queues."""

    __slots__ = (
        "brokers",
        "is_mixed",
        "limit",
        "outbox",
        "pending",
        "route",
        "targets",
        "targets_by_queue",
        "topic",
        "wire_topic",
    )

    def __init__(self, outbox: "TopicBuffers", topic: str, wire_topic: str) -> None:
        self.outbox = outbox
        self.limit = outbox.limit
        self.topic = topic
        self.wire_topic = wire_topic
        self.route: TopicRoute | None = None
        self.targets: list[QueueTarget] = []
        self.targets_by_queue: dict[MessageQueue, QueueTarget] = {}
        self.brokers: list[str] = []
        self.pending: list[PendingSend] = []
        self.is_mixed = False
        """Whether one of its messages is packed or has a chosen queue."""


class TopicBuffers(Protocol):
    """The part of the outbox that buffers and pending sends use."""

    @property
    def limit(self) -> InFlightLimit: ...

    def put_plain(self, buffer: TopicBuffer, body: object, kind: SendKind) -> asyncio.Future[SendResult] | None:
        """Send a plain message without properties; None when it is not plain or the in-flight limit is reached."""

    def first_failed(self, pending: "PendingSend", failure: PocketMQError) -> None:
        """Handle a failed first attempt: retry, or settle with the error."""


class PendingSend(msgspec.Struct, eq=False):
    """A message or batch without a result yet.

    A plain message has its `body` and its `own` properties, encoded for JSON, and gets an id when it is sent. Other messages are packed
    in `out`.
    """

    buffer: TopicBuffer
    future: SendFuture
    body: bytes
    own: bytes
    size: int
    """Bytes that count as in flight; `count` is the number of messages."""
    kind: SendKind
    timeout_s: float
    destination: Destination = ANY_QUEUE
    queue: MessageQueue = NO_QUEUE
    """The queue as users see it, once sent; before that, the chosen queue of the wire."""
    out: Outgoing | None = None
    count: int = 1
    message_id: str = ""
    deadline: float = 0.0

    @property
    def code(self) -> int:
        return int(code_of(self.out))

    def stored(self, answer: StoredAnswer) -> bool:
        at = answer.extFields
        try:
            queue, queue_id, queue_offset = self.queue, int(at.queueId), int(at.queueOffset)
        except ValueError:
            return False
        if queue_id != queue.queue_id:  # the broker chose
            queue = MessageQueue(queue.topic, queue.broker_name, queue_id)
        limit = self.buffer.limit
        if limit.has_waiters:
            limit.release(self.count, self.size)
        else:
            limit.count -= self.count
            limit.bytes -= self.size
        if not self.future.done():  # else the send was cancelled
            self.future.set_result(
                SendResult(
                    _OK,
                    self.message_id,
                    at.msgId,
                    queue,
                    queue_offset,
                    at.transactionId,
                    at.recallHandle,
                    at.MSG_REGION,
                    at.TRACE_ON != "false",
                )
            )
        return True

    def answered(self, response: Command) -> None:
        try:
            result = result_of(response, self.message_id, self.queue)
        except PocketMQError as failure:
            self.failed(failure)
        else:
            self.settle(result)

    def failed(self, error: PocketMQError) -> None:
        self.buffer.outbox.first_failed(self, error)

    def settle(self, outcome: SendResult | BaseException) -> None:
        """Set the outcome; it counts as in flight no longer."""
        self.buffer.limit.release(self.count, self.size)
        resolve(self.future, outcome)

    def attempts_ended(self, task: asyncio.Task[SendResult]) -> None:
        """Callback for the end of the task with its attempts."""
        if task.cancelled():
            self.buffer.limit.release(self.count, self.size)
            self._give_up()
        else:
            self.settle(task.exception() or task.result())

    def putting_ended(self, task: asyncio.Task[None]) -> None:
        """Callback for the end of the task that waited for the in-flight limit."""
        if task.cancelled():
            self._give_up()
        elif error := task.exception():
            resolve(self.future, error)

    def _give_up(self) -> None:
        if not self.future.cancel():  # the running future of a thread cannot be cancelled
            resolve(self.future, WrongState("the producer was stopped while this message was being sent"))


def resolve(future: SendFuture, outcome: SendResult | BaseException) -> None:
    """Set the outcome unless the future is done or cancelled."""
    if future.done():
        return
    if isinstance(outcome, BaseException):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
