"""The outbox: all messages of a producer are sent through it, alone or with others.

    send, submit ── pack ── put ──┬──► buffer of its topic ── end of the loop's turn ──► frames ──► one write to each broker
                                  │           ▲                                                          │ a response each
                                  └─ linger ──┘ as a batch, see `batches`                                ▼
    no route, no connection, hooks for sends, a failure ──► attempts, see `attempts` ──► settled, see `pending`

Work that is the same for all messages of a turn (route, time, connection, deadline) is done once, and the rest in one loop. This holds
for plain messages: no flags, an uncompressed body, a topic that was used before, and no hooks for sends. Other messages are packed first
and written one by one, in the same order.
"""

import asyncio
import struct
from collections.abc import Coroutine, Sequence
from itertools import cycle, groupby, islice
from typing import Any, Final

import msgspec

from pocketmq.client.cluster.identity import generation, require_same_loop, require_same_process
from pocketmq.client.cluster.instance import Instance
from pocketmq.client.cluster.routes import TopicRoute
from pocketmq.client.hooks import HookList
from pocketmq.client.producer.attempts import Attempts
from pocketmq.client.producer.batches import Batches
from pocketmq.client.producer.fault_strategy import SendKind
from pocketmq.client.producer.outgoing import Outgoing, Packer
from pocketmq.client.producer.pending import NO_QUEUE, InFlightLimit, PendingSend, QueueTarget, SendFuture, TopicBuffer
from pocketmq.client.producer.queue_choice import ANY_QUEUE, Destination
from pocketmq.client.producer.results import SendResult
from pocketmq.client.producer.send_frames import MAX_TEMPLATES, SendFrames, json_inside
from pocketmq.client.settings import ProducerSettings
from pocketmq.errors import CallTimedOut, ConnectFailed, NetworkError, PocketMQError
from pocketmq.model import Message, MessageQueue
from pocketmq.net import Address

_pack_prefix = struct.Struct(">II").pack

MAX_BUFFERS: Final = 4096
"""Cached topic buffers; when the limit is reached, the cache is cleared."""


class Outbox:
    """Sends for one producer, on the loop on which it is created."""

    def __init__(
        self,
        instance: Instance,
        settings: ProducerSettings,
        hooks: HookList | None = None,
        limit: InFlightLimit | None = None,
    ) -> None:
        hooks, rpc = hooks or HookList(), instance.rpc
        self.loop = asyncio.get_running_loop()
        self._made_in = generation()
        self._clock = instance.clock
        self._brokers = instance.brokers
        self.packer = Packer(settings, instance.unique_ids, instance.clock)
        self.limit = limit or InFlightLimit(settings.max_in_flight_messages, settings.max_in_flight_bytes)
        self.frames = SendFrames(settings, rpc.signed if rpc.adds_fields else None)
        self.attempts = Attempts(instance, settings, hooks, self.frames)
        self.choice = self.attempts.choice
        self.timeout_s = settings.send_timeout_ms / 1000
        self.is_watched = (
            hooks.watch_sends or settings.avoid_slow_brokers or settings.retry_when_not_stored or rpc.is_watched
        )
        """Whether hooks or broker health need every attempt, so that `attempts` makes the first one too."""
        self._has_plain = not (self.is_watched or rpc.adds_fields or settings.linger_ms or hooks.adds_properties)
        self._plain_below = self.packer.plain_below_bytes
        self._plain_overhead = self.packer.plain_overhead
        self._buffers: dict[str, TopicBuffer] = {}
        self.plain_buffers: dict[object, TopicBuffer] = {}
        """Buffers by the topic that users see. It is empty unless the producer runs, so a found buffer needs no further check."""
        self._waiting: list[TopicBuffer] = []
        self._batches = (
            Batches(settings, self.loop, self._send_batch, self.require_here) if settings.linger_ms else None
        )

    @property
    def lingers(self) -> bool:
        """Whether messages wait to share a batch."""
        return self._batches is not None

    # pack

    def pack(
        self,
        message: Message,
        destination: Destination,
        kind: SendKind,
        timeout_s: float | None = None,
        future: SendFuture | None = None,
    ) -> PendingSend:
        """A message that is ready for `put`; InvalidMessage when it cannot be sent."""
        if (
            timeout_s is None
            and self._has_plain
            and (plain := self._plain(message, destination, kind, future)) is not None
        ):
            return plain
        if self._batches is not None and destination.selector is not None:
            destination = self.choice.pinned_at_once(message, destination)
        out = self.packer.pack(message)
        return self._packed(out, destination, kind, timeout_s, future, size=out.size)

    def _plain(
        self, message: Message, destination: Destination, kind: SendKind, future: SendFuture | None
    ) -> PendingSend | None:
        body, packer = message.body, self.packer
        if type(body) is not bytes or not 0 < len(body) < packer.plain_below_bytes:
            return None
        own = packer.plain_properties(message)
        if own is None:
            return None
        buffer = self.plain_buffers.get(message.topic) or self.plain_buffer(message)
        queue = NO_QUEUE if destination is ANY_QUEUE else self.choice.at_once(buffer.wire_topic, message, destination)
        if queue is None:  # the route of the topic is not known yet
            return None
        size = len(body) + len(own) + packer.plain_overhead
        future = future or self.loop.create_future()
        inside = json_inside(own) if own else b""
        return PendingSend(buffer, future, body, inside, size, kind, self.timeout_s, destination, queue)

    def _packed(
        self,
        out: Outgoing,
        destination: Destination,
        kind: SendKind,
        timeout_s: float | None = None,
        future: SendFuture | None = None,
        *,
        size: int,
        count: int = 1,
    ) -> PendingSend:
        is_any = destination is ANY_QUEUE or destination.is_any
        queue = NO_QUEUE if is_any else self.choice.at_once(out.topic, out.message, destination) or NO_QUEUE
        buffer = self._buffers.get(out.topic) or self._new_buffer(out.message.topic, out.topic)
        seconds = self.timeout_s if timeout_s is None else timeout_s
        future = future or self.loop.create_future()
        made = PendingSend(buffer, future, out.body, b"", size, kind, seconds, destination, queue, out, count)
        made.message_id = out.message_id
        return made

    # put

    def put_plain(self, buffer: TopicBuffer, body: object, kind: SendKind) -> asyncio.Future[SendResult] | None:
        """`pack` and `put` for a message without properties. None when it is not plain or the in-flight limit is reached."""
        if type(body) is not bytes or not 0 < len(body) < self._plain_below:
            return None
        limit, size = self.limit, len(body) + self._plain_overhead
        count, total = limit.count + 1, limit.bytes + size
        if limit.has_waiters or count > limit.max_count or total > limit.max_bytes:
            return None
        if not buffer.pending:
            self._schedule_send(buffer)
        limit.count, limit.bytes = count, total
        future: asyncio.Future[SendResult] = self.loop.create_future()
        buffer.pending.append(PendingSend(buffer, future, body, b"", size, kind, self.timeout_s))
        return future

    def put(self, pending: PendingSend, *, is_counted: bool = False) -> bool:
        """Send a message with the others of this turn or of its batch. False when the in-flight limit is reached."""
        if not is_counted and not self.limit.try_acquire(1, pending.size):
            return False
        try:
            if self._batches is None or not self._batches.add(pending):
                self._enqueue(pending)
        except BaseException:
            self.limit.release(1, pending.size)
            raise
        return True

    async def deliver(
        self, out: Outgoing, destination: Destination = ANY_QUEUE, timeout_s: float | None = None
    ) -> SendResult:
        """Send a packed message and wait until it is stored. The timeout starts when the in-flight limit admits it."""
        self.require_here()
        pending = self._packed(out, destination, SendKind.AWAITED, timeout_s, size=out.size, count=out.count)
        await self.limit.acquire(pending.count, pending.size)
        self._enqueue(pending)
        return await asyncio.wrap_future(pending.future)

    async def deliver_by(self, deadline: float, out: Outgoing, destination: Destination) -> SendResult:
        """`deliver` with a deadline of the loop, which includes the wait for the in-flight limit."""
        self.require_here()
        pending = self._packed(out, destination, SendKind.AWAITED, size=out.size, count=out.count)
        try:
            async with asyncio.timeout_at(deadline):
                await self.limit.acquire(pending.count, pending.size)
        except TimeoutError:
            raise CallTimedOut(
                f"{out.message.topic}: flow control: the in-flight limit was reached until the deadline; nothing was sent"
            ) from None
        pending.timeout_s = deadline - self.loop.time()
        self._enqueue(pending)
        return await asyncio.wrap_future(pending.future)

    async def send_one_way(self, out: Outgoing, destination: Destination = ANY_QUEUE) -> None:
        """Send one-way: one attempt, without a result."""
        self.send_buffered()
        await self.attempts.send_one_way(out, destination, self.loop.time() + self.timeout_s)

    async def flush(self) -> None:
        """Send all waiting batches, and wait until each has succeeded or failed."""
        if self._batches is not None:
            await self._batches.flush()

    def abandon(self) -> None:
        """Fail all messages that were not sent."""
        if self._batches is not None:
            self._batches.abandon()

    def forget(self, topic: str, wire_topic: str) -> None:
        """Delete the state of a topic that is not used any more."""
        self.plain_buffers.pop(topic, None)
        self._buffers.pop(wire_topic, None)
        self.choice.forget(wire_topic)

    def _enqueue(self, pending: PendingSend) -> None:
        """Add it to its buffer until the end of this turn of the loop, unless it must wait for a route or connection."""
        out, buffer, is_any = pending.out, pending.buffer, pending.destination.is_any
        if self.is_watched or (out is not None and out.is_timed) or (pending.queue is NO_QUEUE and not is_any):
            self.require_here()
            self.send_buffered()  # it must not overtake waiting messages
            self._begin_attempts(pending)
            return
        if not is_any:
            try:
                self.target(buffer, pending.queue)
            except ValueError as error:  # a name that cannot be encoded must not fail the other messages of this turn
                pending.settle(error)
                return
        if not buffer.pending:
            self._schedule_send(buffer)
        if out is not None or not is_any:
            buffer.is_mixed = True
        buffer.pending.append(pending)

    def require_here(self) -> None:
        """WrongState in another process or on another loop. Not called per message: it costs a system call before Python 3.12."""
        require_same_process(self._made_in, "producer")
        require_same_loop(asyncio.get_running_loop(), self.loop, "producer")

    def _send_batch(
        self, members: Sequence[PendingSend], outs: Sequence[Outgoing], destination: Destination
    ) -> asyncio.Future[SendResult]:
        """Send a batch, which counts as in flight for all its members; the future of its result."""
        out = self.packer.pack_batch(outs)
        future, size = self.loop.create_future(), sum([member.size for member in members])
        self._enqueue(self._packed(out, destination, SendKind.AWAITED, None, future, size=size, count=len(members)))
        return future

    def _schedule_send(self, buffer: TopicBuffer) -> None:
        if not self._waiting:
            self.require_here()
            self.loop.call_soon(self.send_buffered)
        self._waiting.append(buffer)

    # send

    def send_buffered(self) -> None:
        """Send all buffered messages now."""
        waiting, self._waiting = self._waiting, []
        for buffer in waiting:
            pending, buffer.pending = buffer.pending, []
            is_mixed, buffer.is_mixed = buffer.is_mixed, False
            self._send_buffered(buffer, pending, is_mixed=is_mixed)

    def _send_buffered(self, buffer: TopicBuffer, pending: list[PendingSend], *, is_mixed: bool) -> None:
        free = sum(one.queue is NO_QUEUE for one in pending) if is_mixed else len(pending)
        found = self.choice.in_turn(buffer.wire_topic, free)
        if found is None:
            self._delay(pending)
            return
        route, position = found
        if route is not buffer.route:
            self._update_targets(buffer, route)
        position %= len(buffer.targets)
        targets = list(islice(cycle(buffer.targets), position, position + free))
        brokers = buffer.brokers
        if is_mixed:
            pending = self._without_delayed(pending)
            turns = iter(targets)
            targets = [next(turns) if one.queue is NO_QUEUE else self.target(buffer, one.queue) for one in pending]
            brokers = list(dict.fromkeys(target.queue.broker_name for target in targets))
        if len(brokers) == 1 and not is_mixed:
            self._write(brokers[0], pending, targets)
            return
        for broker_name in brokers:
            messages = [pair for pair in zip(pending, targets, strict=True) if pair[1].queue.broker_name == broker_name]
            self._write_to_broker(broker_name, messages)

    def _without_delayed(self, pending: list[PendingSend]) -> list[PendingSend]:
        """The messages that may be sent now. Those to a queue with waiting messages wait behind them."""
        order = self.choice.order
        late = {one.queue for one in pending if one.queue is not NO_QUEUE and order.is_waited_for(one.queue)}
        if not late:
            return pending
        self._delay([one for one in pending if one.queue in late])
        return [one for one in pending if one.queue not in late]

    def _write_to_broker(self, broker_name: str, messages: list[tuple[PendingSend, QueueTarget]]) -> None:
        """Write messages to one broker in order: consecutive plain messages together, packed ones one by one."""
        is_written = True
        for _, run in groupby(messages, key=lambda pair: pair[0].out):
            pending, targets = zip(*run, strict=True)
            if not is_written:  # later messages must not overtake those that could not be written
                self._delay(pending, targets)
            elif pending[0].out is None:
                is_written = self._write(broker_name, pending, targets)
            else:
                is_written = self._write_packed(broker_name, pending[0], targets[0])

    def _write(self, broker_name: str, pending: Sequence[PendingSend], targets: Sequence[QueueTarget]) -> bool:
        """Write plain messages to one broker at once. False when some must wait."""
        peer = self._brokers.live_master(broker_name)
        count = 0 if peer is None else min(len(pending), peer.spare_calls)
        if peer is None or not count:
            return self._delay(pending, targets)
        sent, born_ms = pending[:count], self._clock.now_ms()
        deadline = self.loop.time() + self.timeout_s
        try:
            numbers = peer.ask_many(sent, deadline)
        except NetworkError:
            return self._delay(pending, targets)
        parts: list[bytes] = []
        ids = self.packer.ids.take(count, born_ms)
        for one, (_, shown, frames), message_id, number in zip(sent, targets, ids, numbers, strict=False):
            if frames.stamped_ms != born_ms:
                frames.stamp(born_ms)
            one.queue = shown
            one.message_id = message_id
            one.deadline = deadline
            header = frames.header % (message_id.encode(), one.own, number)
            size = len(header)
            parts += (_pack_prefix(4 + size + len(one.body), size), header, one.body)
        peer.connection.write(b"".join(parts))
        peer.connection.flush()
        return count == len(pending) or self._delay(pending[count:], targets[count:])

    def _write_packed(self, broker_name: str, one: PendingSend, target: QueueTarget) -> bool:
        """Write a packed message or batch. False when it must wait."""
        out, peer = one.out, self._brokers.live_master(broker_name)
        if peer is None or out is None:
            return self._delay([one], [target])
        deadline = self.loop.time() + one.timeout_s
        try:
            peer.ask_for(one, deadline, self.frames.encode, out, target.queue, self._clock.now_ms())
        except NetworkError:
            return self._delay([one], [target])
        except ValueError as error:  # a text that cannot be encoded
            one.settle(error)
            return True
        one.queue, one.deadline = target.shown, deadline
        return True

    # for `DirectSends`, called from threads: they change nothing but the turn of the topic

    def direct_target(self, out: Outgoing, destination: Destination) -> tuple[MessageQueue, Address] | None:
        """The queue and address for a first attempt; None when it must wait, or hooks need it."""
        if self.is_watched or out.is_timed:
            return None
        queue = self.choice.at_once(out.topic, out.message, destination)
        try:
            if queue is None or (not destination.is_any and self.choice.order.is_waited_for(queue)):
                return None
            return queue, self._brokers.master(queue.broker_name)
        except ConnectFailed:
            return None  # no known master: the loop waits for one

    def is_connected(self, address: Address) -> bool:
        """Whether the loop has a connection to this address."""
        return self._brokers.live(address) is not None

    # messages that must wait, or failed

    def first_failed(self, pending: PendingSend, failure: PocketMQError) -> None:
        """Handle a failed first attempt: retry, or settle with the error."""
        deadline, destination, kind = pending.deadline, pending.destination, pending.kind
        wait_ms = None if pending.future.done() else self.attempts.wait_ms(failure, 1, deadline, kind, destination)
        if wait_ms is None:
            pending.settle(failure)
            return
        out, last_broker = self._outgoing(pending), pending.queue.broker_name
        self._attempt(pending, self.attempts.later(wait_ms, out, destination, deadline, kind, last_broker))

    def _delay(self, pending: Sequence[PendingSend], targets: Sequence[QueueTarget] = ()) -> bool:
        """Let messages wait for a route or a writable connection. Returns False, for callers to return."""
        for one, target in zip(pending, targets, strict=False):
            one.queue = target.queue
        for one in pending:
            if one.future.done():  # cancelled before it was sent
                self.limit.release(one.count, one.size)
            else:
                self._begin_attempts(one)
        return False

    def _begin_attempts(self, pending: PendingSend) -> None:
        """Start the attempts of a message. In a chosen queue it takes its turn now, before the first step of its task."""
        out, destination, deadline = self._outgoing(pending), pending.destination, self.loop.time() + pending.timeout_s
        queue = None if pending.queue is NO_QUEUE else pending.queue
        turn = None if queue is None or destination.is_any else self.choice.order.turn(queue)
        attempts = self.attempts.until_stored(out, destination, deadline, pending.kind, queue=queue, turn=turn)
        task = self._attempt(pending, attempts)
        if turn is not None:
            task.add_done_callback(lambda _: turn.end())

    def _attempt(self, pending: PendingSend, attempts: Coroutine[Any, Any, SendResult]) -> asyncio.Task[SendResult]:
        """Run attempts in a task, which is cancelled with the future of the message."""
        task = self.loop.create_task(attempts)
        # Not a `finally` in the coroutine: a task that is cancelled before its first step never runs it.
        task.add_done_callback(pending.attempts_ended)
        pending.future.add_done_callback(lambda future: task.cancel() if future.cancelled() else None)
        return task

    def _outgoing(self, pending: PendingSend) -> Outgoing:
        """The packed message for further attempts. A plain message is packed now, and keeps an id that it already has."""
        if pending.out is not None:
            return pending.out
        if not pending.message_id:
            (pending.message_id,) = self.packer.ids.take(1, self._clock.now_ms())
        own = msgspec.json.decode(b'"%b"' % pending.own, type=str)
        return self.packer.repack(pending.buffer.topic, pending.message_id, pending.body, own)

    # buffers

    def plain_buffer(self, message: Message) -> TopicBuffer:
        """Create the buffer for the topic of a plain message; InvalidMessage when it cannot be sent."""
        self.packer.checked_body(message)
        wire_topic = self.packer.wire_topic(message.topic)
        buffer = self._buffers.get(wire_topic) or self._new_buffer(message.topic, wire_topic)
        self.plain_buffers[message.topic] = buffer
        return buffer

    def _new_buffer(self, topic: str, wire_topic: str) -> TopicBuffer:
        if len(self._buffers) >= MAX_BUFFERS:
            self._buffers.clear()
            self.plain_buffers.clear()
        buffer = self._buffers[wire_topic] = TopicBuffer(self, topic, wire_topic)
        return buffer

    def _update_targets(self, buffer: TopicBuffer, route: TopicRoute) -> None:
        buffer.route = route
        buffer.targets_by_queue = {}
        buffer.targets = [self.target(buffer, queue) for queue in route.writable]
        buffer.brokers = list(dict.fromkeys(queue.broker_name for queue in route.writable))

    def target(self, buffer: TopicBuffer, queue: MessageQueue) -> QueueTarget:
        """The target for `queue`. A chosen queue may be missing in the route."""
        target = buffer.targets_by_queue.get(queue)
        if target is None:
            if len(buffer.targets_by_queue) >= MAX_TEMPLATES:
                buffer.targets_by_queue = {}
            frames = self.frames.plain(queue, self.packer.after_plain_id)
            target = buffer.targets_by_queue[queue] = QueueTarget(queue, self.choice.shown(queue), frames)
        return target
