"""Automatic batches: messages to the same destination within a short time are sent as one request.

    put ── may share a batch ──► buffer of its topic or chosen queue ──┬─ it has `batch_bytes` ──────────────┐
        └─ delayed, large ──► sent alone                               ├─ `linger_ms` after the first send ──┼──► one batch
                 └─ to a chosen queue with a buffer ──► that buffer    └─ `flush`, `stop` ───────────────────┘

A buffer sends one batch at a time, in the order of the calls. So the order within a queue is the order of the sends, also when an attempt
fails and is repeated. A message that cannot share a batch waits in the buffer of its chosen queue, and is then sent alone. While a batch
is in flight, the next one fills. The in-flight limit of the producer limits how many messages wait.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from pocketmq.client.producer.outgoing import ITEM_OVERHEAD_BYTES, BatchKind, Outgoing
from pocketmq.client.producer.pending import PendingSend, resolve
from pocketmq.client.producer.queue_choice import Destination
from pocketmq.client.producer.results import SendResult, split_result
from pocketmq.client.settings import ProducerSettings
from pocketmq.errors import CallTimedOut, WrongState
from pocketmq.model import MessageQueue

_ALONE: Final = BatchKind.ALONE
_Key = tuple[str, BatchKind | None, MessageQueue | None]
"""Topic and kind, or topic and chosen queue, which has one buffer for all kinds."""

SendBatch = Callable[[Sequence[PendingSend], Sequence[Outgoing], Destination], asyncio.Future[SendResult]]
"""Packs and sends messages as one batch; returns the future of its result, which the caller splits."""


class _Buffer:
    """Messages that wait for more messages to the same destination."""

    __slots__ = ("bytes", "destination", "in_flight", "outs", "pending", "sizes", "timer")

    def __init__(self, destination: Destination) -> None:
        self.destination = destination
        self.pending: list[PendingSend] = []
        self.outs: list[Outgoing] = []
        self.sizes: list[int] = []
        self.bytes = 0
        self.timer: asyncio.TimerHandle | None = None
        self.in_flight: asyncio.Future[SendResult] | None = None


class Batches:
    """The buffers of one producer."""

    def __init__(
        self,
        settings: ProducerSettings,
        loop: asyncio.AbstractEventLoop,
        send: SendBatch,
        require_here: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._send = send
        self._require_here = require_here
        self._linger_s = settings.linger_ms / 1000
        self._timeout_s = settings.send_timeout_ms / 1000
        self._batch_bytes = settings.batch_bytes
        self._buffers: dict[_Key, _Buffer] = {}

    def add(self, pending: PendingSend) -> bool:
        """Add a packed message to a buffer. False when it must be sent alone now."""
        out, queue = pending.out, pending.destination.queue
        if out is None:
            return False
        kind = out.batch_kind
        key = out.topic, kind if queue is None else None, queue
        buffer = self._buffers.get(key)
        if pending.destination.selector is not None or (kind is _ALONE and (buffer is None or queue is None)):
            return False
        if buffer is None:
            self._require_here()
            buffer = self._buffers[key] = _Buffer(pending.destination)
        if pending.timeout_s != self._timeout_s:
            timer = self._loop.call_later(pending.timeout_s, _give_up, pending)
            pending.future.add_done_callback(lambda _: timer.cancel())
        size = ITEM_OVERHEAD_BYTES + pending.size if out.properties.isascii() else out.batch_bytes
        buffer.pending.append(pending)
        buffer.outs.append(out)
        buffer.sizes.append(size)
        buffer.bytes += size
        if buffer.in_flight is None:
            if buffer.bytes >= self._batch_bytes or kind is _ALONE:
                self._send_next(key, buffer)
            elif buffer.timer is None:
                buffer.timer = self._loop.call_later(self._linger_s, self._send_next, key, buffer)
        return True

    async def flush(self) -> None:
        """Send all buffers, and wait until every batch has succeeded or failed."""
        for key, buffer in list(self._buffers.items()):
            if buffer.in_flight is None:
                self._send_next(key, buffer)
        while under_way := [one.in_flight for one in self._buffers.values() if one.in_flight is not None]:
            await asyncio.wait(under_way)

    def abandon(self) -> None:
        """Fail all messages that were not sent."""
        for buffer in self._buffers.values():
            if buffer.timer is not None:
                buffer.timer.cancel()
            if buffer.in_flight is not None:
                buffer.in_flight.cancel()
            for pending in buffer.pending:
                pending.settle(WrongState("the producer was stopped before this message was sent"))
            buffer.pending, buffer.outs, buffer.sizes = [], [], []
        self._buffers.clear()

    def _send_next(self, key: _Key, buffer: _Buffer) -> None:
        """Send the next batch, or delete an empty buffer."""
        if buffer.timer is not None:
            buffer.timer.cancel()
            buffer.timer = None
        if not buffer.pending:
            if self._buffers.get(key) is buffer:
                del self._buffers[key]
            return
        count = len(buffer.outs) if buffer.destination.is_any else _leading_of_one_kind(buffer.outs)
        if buffer.bytes > self._batch_bytes:
            count = batch_length(buffer.sizes[:count], self._batch_bytes)
        members, buffer.pending = buffer.pending[:count], buffer.pending[count:]
        outs, buffer.outs = buffer.outs[:count], buffer.outs[count:]
        buffer.bytes -= sum(buffer.sizes[:count])
        del buffer.sizes[:count]
        buffer.in_flight = self._send(members, outs, buffer.destination)
        buffer.in_flight.add_done_callback(partial(self._sent, key, buffer, members))

    def _sent(
        self, key: _Key, buffer: _Buffer, members: Sequence[PendingSend], future: asyncio.Future[SendResult]
    ) -> None:
        """Set the results of the members of a batch."""
        error: BaseException | None = None
        if future.cancelled():
            error = WrongState("the producer was stopped while this message was being sent")
        elif (error := future.exception()) is None:
            result = future.result()
            ids = [member.message_id for member in members]
            for member, own in zip(members, split_result(result, ids) if len(ids) > 1 else (result,), strict=True):
                if not member.future.done():
                    member.future.set_result(own)
        if error is not None:
            for member in members:
                resolve(member.future, error)
        buffer.in_flight = None
        self._send_next(key, buffer)


def batch_length(sizes: Sequence[int], max_bytes: int) -> int:
    """The number of leading messages that fit into `max_bytes`; at least one."""
    total = 0
    for at, size in enumerate(sizes):
        total += size
        if total > max_bytes and at:
            return at
    return len(sizes)


def _leading_of_one_kind(outs: Sequence[Outgoing]) -> int:
    """The number of leading messages that may share a batch."""
    first = outs[0].batch_kind
    if first is _ALONE:
        return 1
    return next((at for at, out in enumerate(outs) if out.batch_kind is not first), len(outs))


def _give_up(pending: PendingSend) -> None:
    text = f"no response within {pending.timeout_s} s; the message may still be stored with its batch"
    resolve(pending.future, CallTimedOut(text))
