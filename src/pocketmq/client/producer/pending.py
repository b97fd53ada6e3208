"""Sends that are not done: the one kind of waiter of a producer, and the buffer of each topic that they wait in.

    pack ──► PendingSend ── put ──► TopicBuffer ── leaves ──► connection ──┬─ answered ──► its future has the result
                                                                           └─ failed ────► `Outbox.first_failed`: attempts, or the error

A send counts as in flight from `put` until it is settled, also when the caller has given up on its future: the broker still
works on it.
"""

import asyncio
from concurrent.futures import Future
from typing import Final, NamedTuple, Protocol

import msgspec

from pocketmq.client.cluster.routes import TopicRoute
from pocketmq.client.producer.fault_strategy import SendKind
from pocketmq.client.producer.in_flight import InFlightLimit
from pocketmq.client.producer.outgoing import Outgoing
from pocketmq.client.producer.queue_choice import ANY_QUEUE, Destination
from pocketmq.client.producer.results import SendResult, SendStatus, result_of
from pocketmq.client.producer.send_frames import PlainFrames, code_of
from pocketmq.codes import RequestCode
from pocketmq.errors import PocketMQError, WrongState
from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.command import Command
from pocketmq.protocol.hot_headers import StoredAnswer

_OK: Final = SendStatus.SEND_OK
NO_QUEUE: Final = MessageQueue("", "", -1)
"""Of a message for which none was chosen."""

SendFuture = asyncio.Future[SendResult] | Future[SendResult]
"""The second kind is of a thread that submitted."""


class QueueTarget(NamedTuple):
    """A queue, as the wire and as users know it, and the frames of plain messages to it."""

    queue: MessageQueue
    shown: MessageQueue
    frames: PlainFrames


class TopicBuffer:
    """Messages to one topic that wait for the end of this turn of the loop, and what its queues need to send them."""

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
        """Whether one of those that wait goes to a queue that was chosen for it, or is packed."""


class TopicBuffers(Protocol):
    """The outbox, as its buffers and what waits in them know it."""

    @property
    def limit(self) -> InFlightLimit: ...

    def put_plain(self, buffer: TopicBuffer, body: object, kind: SendKind) -> asyncio.Future[SendResult] | None:
        """Let a plain message without properties leave; None when it is none, or too much is in flight."""

    def first_failed(self, pending: "PendingSend", failure: PocketMQError) -> None:
        """The first attempt failed, which may be worth another one."""


class PendingSend(msgspec.Struct, eq=False):
    """A message or a batch that was handed over: all that is needed when its answer comes, or none.

    A plain message is its `body` and its `own` properties, as they stand in a JSON text, and gets an id when it leaves. Anything else
    is packed: `out`.
    """

    buffer: TopicBuffer
    future: SendFuture
    body: bytes
    own: bytes
    size: int
    """What counts as in flight, in bytes and as `count` messages."""
    kind: SendKind
    timeout_s: float
    destination: Destination = ANY_QUEUE
    queue: MessageQueue = NO_QUEUE
    """As users know it, once it has left; before that, the one of the wire that was chosen for it."""
    out: Outgoing | None = None
    count: int = 1
    message_id: str = ""
    deadline: float = 0.0

    @property
    def code(self) -> int:
        return int(RequestCode.SEND_MESSAGE_V2 if self.out is None else code_of(self.out))

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
        if not self.future.done():  # else whoever sent it gave up
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
        """It is done, and counts as in flight no longer."""
        self.buffer.limit.release(self.count, self.size)
        resolve(self.future, outcome)

    def attempts_ended(self, task: asyncio.Task[SendResult]) -> None:
        """Its attempts came to an end, in a task of their own."""
        if task.cancelled():
            self.buffer.limit.release(self.count, self.size)
            self._give_up()
        else:
            self.settle(task.exception() or task.result())

    def putting_ended(self, task: asyncio.Task[None]) -> None:
        """It was put in after a wait, or never will be."""
        if task.cancelled():
            self._give_up()
        elif error := task.exception():
            resolve(self.future, error)

    def _give_up(self) -> None:
        if not self.future.cancel():  # that of a thread cannot be cancelled any more
            resolve(self.future, WrongState("the producer was stopped while this message was being sent"))


def resolve(future: SendFuture, outcome: SendResult | BaseException) -> None:
    """Tell whoever waits, unless they gave up."""
    if future.done():
        return
    if isinstance(outcome, BaseException):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
