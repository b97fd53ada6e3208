"""The outbox: usual messages of one turn of the loop, which leave together.

    send, submit ── put ──► tray of the topic ──┐
    send, submit ── put ──► tray of the topic ──┼── the loop comes round ── queues, ids, numbers, frames ──► one write to each broker
    anything unusual ── leave: those first ─────┘                                │
                                                                    an answer each ──► its future

What a message costs is mostly what is done for each alone. So what is the same for all of a turn (route, time, line, deadline) is
looked up once, and the rest is done in one loop. Usual is a message without flags, with a body that is not compressed, to a topic
that was sent to before, while nobody watches; all others go the way of `sending`, and never overtake these.

A message that cannot leave at once (no route, no line, too many calls) or whose answer is a failure goes on as any other does.
"""

import asyncio
import struct
from collections.abc import Callable, Sequence
from itertools import cycle, islice
from typing import ClassVar, Final, NamedTuple

import msgspec

from pocketmq.client.brokers import Brokers
from pocketmq.client.identity import generation, require_same_loop, require_same_process
from pocketmq.client.outgoing import Outgoing, Packer
from pocketmq.client.queue_choice import ANY_QUEUE, QueueChoice, Wish
from pocketmq.client.results import SendResult, SendStatus, result_of
from pocketmq.client.retries import SendKind
from pocketmq.client.room import Room
from pocketmq.client.routes import TopicRoute
from pocketmq.client.send_frames import MAX_TEMPLATES, SendFrames, UsualFrames, json_inside
from pocketmq.clock import Clock
from pocketmq.codes import RequestCode
from pocketmq.errors import NetworkError, PocketMQError
from pocketmq.model.message import Message
from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.command import Command
from pocketmq.protocol.stored_answers import StoredAnswer

_pack_prefix = struct.Struct(">II").pack
_OK: Final = SendStatus.SEND_OK
NO_QUEUE: Final = MessageQueue("", "", -1)
"""Of a message for which none was chosen."""

MAX_TRAYS: Final = 4096
"""Topics whose texts are kept; beyond that all are composed anew."""


class Lane(NamedTuple):
    """A queue, as the wire and as users know it, and the frames to it."""

    queue: MessageQueue
    shown: MessageQueue
    frames: UsualFrames


class Tray:
    """Messages to one topic that wait for the end of this turn, and what its queues need to send them."""

    __slots__ = ("brokers", "has_chosen", "lanes", "lanes_by_queue", "posted", "route", "topic", "wire_topic")

    def __init__(self, topic: str, wire_topic: str) -> None:
        self.topic = topic
        self.wire_topic = wire_topic
        self.route: TopicRoute | None = None
        self.lanes: list[Lane] = []
        self.lanes_by_queue: dict[MessageQueue, Lane] = {}
        self.brokers: list[str] = []
        self.posted: list[Posted] = []
        self.has_chosen = False
        """Whether one of those that wait goes to a queue that was chosen for it."""


class Posted(msgspec.Struct, eq=False):
    """A message in the outbox or on its way: all that is needed when its answer comes, or none."""

    outbox: "Outbox"
    tray: Tray
    future: asyncio.Future[SendResult]
    body: bytes
    own: bytes
    """Its own properties, as they stand in a JSON text."""
    size: int
    """What it takes of the room."""
    kind: SendKind
    wish: Wish
    queue: MessageQueue
    """As users know it, once it has left; before that, the one of the wire that was chosen for it."""
    message_id: str = ""
    deadline: float = 0.0

    code: ClassVar[int] = int(RequestCode.SEND_MESSAGE_V2)

    @property
    def timeout_s(self) -> float:
        return self.outbox.timeout_s

    def stored(self, answer: StoredAnswer) -> bool:
        at = answer.extFields
        try:
            queue, queue_id, queue_offset = self.queue, int(at.queueId), int(at.queueOffset)
        except ValueError:
            return False
        if queue_id != queue.queue_id:  # the broker chose
            queue = MessageQueue(queue.topic, queue.broker_name, queue_id)
        room = self.outbox.room
        if room.is_watched:
            room.give(1, self.size)
        else:
            room.count -= 1
            room.bytes -= self.size
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
            return
        self.outbox.room.give(1, self.size)
        if not self.future.done():
            self.future.set_result(result)

    def failed(self, error: PocketMQError) -> None:
        self.outbox.on_failure(self, error)


class Outbox:
    """The usual messages of one producer. `on_failure` hears of a first attempt that failed, `on_delay` of one that must wait."""

    def __init__(
        self,
        clock: Clock,
        brokers: Brokers,
        choice: QueueChoice,
        frames: SendFrames,
        packer: Packer,
        room: Room,
        *,
        timeout_s: float,
        on_failure: Callable[[Posted, PocketMQError], None],
        on_delay: Callable[[Posted], None],
    ) -> None:
        self._clock = clock
        self._brokers = brokers
        self._choice = choice
        self._frames = frames
        self._packer = packer
        self._waiting: list[Tray] = []
        self._made_in = generation()
        self._loop = asyncio.get_running_loop()
        self.room = room
        self.timeout_s = timeout_s
        self.on_failure = on_failure
        self.on_delay = on_delay

    def tray(self, topic: str) -> Tray:
        """For messages to a topic that may be sent to."""
        return Tray(topic, self._packer.wire_topic(topic))

    def put(
        self,
        tray: Tray,
        body: bytes,
        own: str,
        size: int,
        kind: SendKind,
        queue: MessageQueue = NO_QUEUE,
        wish: Wish = ANY_QUEUE,
        *,
        has_room: bool = False,
    ) -> asyncio.Future[SendResult] | None:
        """Let a message leave with the others of this turn; None when there is no room for it. `own` are its properties."""
        inside, room, posted = json_inside(own) if own else b"", self.room, tray.posted
        count, total = room.count + 1, room.bytes + size
        fits = not (has_room or room.is_watched or count > room.max_count or total > room.max_bytes)
        if not fits and not has_room and not room.try_take(1, size):
            return None
        if not posted:
            self._await_turn(tray)
        if fits:
            room.count, room.bytes = count, total
        future: asyncio.Future[SendResult] = self._loop.create_future()
        if queue is not NO_QUEUE:
            tray.has_chosen = True
        posted.append(Posted(self, tray, future, body, inside, size, kind, wish, queue))
        return future

    def _await_turn(self, tray: Tray) -> None:
        if not self._waiting:
            # Once a turn: to ask which loop runs costs a system call before Python 3.12.
            require_same_process(self._made_in, "producer")
            require_same_loop(asyncio.get_running_loop(), self._loop, "producer")
            self._loop.call_soon(self.leave)
        self._waiting.append(tray)

    def leave(self) -> None:
        """Send what waits, now. Harmless when nothing does."""
        waiting, self._waiting = self._waiting, []
        for tray in waiting:
            posted, tray.posted = tray.posted, []
            has_chosen, tray.has_chosen = tray.has_chosen, False
            self._depart(tray, posted, has_chosen=has_chosen)

    def chosen(self, tray: Tray, message: Message, wish: Wish) -> MessageQueue | None:
        """The queue that a wish means; None when nobody knows yet where the topic is."""
        return self._choice.at_once(tray.wire_topic, message, wish)

    def outgoing(self, posted: Posted) -> Outgoing:
        """The message as it goes on after a first attempt, with the same id if it has got one."""
        if not posted.message_id:
            (posted.message_id,) = self._packer.ids.take(1, self._clock.now_ms())
        own = msgspec.json.decode(b'"%b"' % posted.own, type=str)
        return self._packer.repack(posted.tray.topic, posted.message_id, posted.body, own)

    def _depart(self, tray: Tray, posted: list[Posted], *, has_chosen: bool) -> None:
        free = sum(one.queue is NO_QUEUE for one in posted) if has_chosen else len(posted)
        found = self._choice.in_turn(tray.wire_topic, free)
        if found is None:
            self._delay(posted)
            return
        route, place = found
        if route is not tray.route:
            self._lay_out(tray, route)
        place %= len(tray.lanes)
        lanes = list(islice(cycle(tray.lanes), place, place + free))
        brokers = tray.brokers
        if has_chosen:
            posted = self._without_overtakers(posted)
            turns = iter(lanes)
            lanes = [next(turns) if one.queue is NO_QUEUE else self._lane(tray, one.queue) for one in posted]
            brokers = list(dict.fromkeys(lane.queue.broker_name for lane in lanes))
        if len(brokers) == 1:
            self._send(brokers[0], posted, lanes)
            return
        for broker_name in brokers:
            share = [pair for pair in zip(posted, lanes, strict=True) if pair[1].queue.broker_name == broker_name]
            self._send(broker_name, [one for one, _ in share], [lane for _, lane in share])

    def _without_overtakers(self, posted: list[Posted]) -> list[Posted]:
        """Those that may leave now: others wait for their queue, and these go behind them."""
        order = self._choice.order
        late = {one.queue for one in posted if one.queue is not NO_QUEUE and order.is_waited_for(one.queue)}
        if not late:
            return posted
        self._delay([one for one in posted if one.queue in late])
        return [one for one in posted if one.queue not in late]

    def _send(self, broker_name: str, posted: Sequence[Posted], lanes: Sequence[Lane]) -> None:
        """Messages to one broker, in one write."""
        peer = self._brokers.live_master(broker_name)
        count = 0 if peer is None else min(len(posted), peer.spare_calls)
        if peer is None or not count:
            self._delay(posted, lanes)
            return
        going, born_ms = posted[:count], self._clock.now_ms()
        deadline = peer.line.loop.time() + self.timeout_s
        try:
            numbers = peer.ask_many(going, deadline)
        except NetworkError:
            self._delay(posted, lanes)
            return
        parts: list[bytes] = []
        ids = self._packer.ids.take(count, born_ms)
        for one, (_, shown, frames), message_id, number in zip(going, lanes, ids, numbers, strict=False):
            if frames.stamped_ms != born_ms:
                frames.stamp(born_ms)
            one.queue = shown
            one.message_id = message_id
            one.deadline = deadline
            header = frames.header % (message_id.encode(), one.own, number)
            size = len(header)
            parts += (_pack_prefix(4 + size + len(one.body), size), header, one.body)
        peer.line.write(b"".join(parts))
        peer.line.flush()
        if count < len(posted):
            self._delay(posted[count:], lanes[count:])

    def _delay(self, posted: Sequence[Posted], lanes: Sequence[Lane] = ()) -> None:
        for one, lane in zip(posted, lanes, strict=False):
            one.queue = lane.queue
        for one in posted:
            if one.future.done():  # nobody waits for it, and it was never sent
                self.room.give(1, one.size)
            else:
                self.on_delay(one)

    def _lay_out(self, tray: Tray, route: TopicRoute) -> None:
        tray.route = route
        tray.lanes_by_queue = {}
        tray.lanes = [self._lane(tray, queue) for queue in route.writable]
        tray.brokers = list(dict.fromkeys(queue.broker_name for queue in route.writable))

    def _lane(self, tray: Tray, queue: MessageQueue) -> Lane:
        """To `queue`, which may be one that the route does not tell of, if a user chose it."""
        lane = tray.lanes_by_queue.get(queue)
        if lane is None:
            if len(tray.lanes_by_queue) >= MAX_TEMPLATES:
                tray.lanes_by_queue = {}
            frames = self._frames.usual(queue, self._packer.after_usual_id)
            lane = tray.lanes_by_queue[queue] = Lane(queue, self._choice.shown(queue), frames)
        return lane
