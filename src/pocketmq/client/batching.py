"""Batching: messages that go to the same place at the same time travel as one request.

    send ── fits a batch ──► lane: one for each topic, or chosen queue ──┬─ `batch_bytes` are together ──┐
         └─ delayed, large, in a transaction ──► alone                   ├─ the first has waited `linger_ms` ─┼──► one batch
                 └─ to a chosen queue, where others wait ──► its lane    └─ `flush`, `stop` ─────────────────┘

A lane sends one batch at a time and in the order of the calls, so the order within a queue is that of the sends, also when an
attempt fails and is repeated. What cannot share a batch waits in the lane of a chosen queue for its turn, and then goes alone. While a
batch is under way the next one fills; the room of the producer bounds how much waits. Whoever
adds a message has taken room for it, which is given back with that of all others when the batch is done.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from enum import IntEnum
from typing import Final, Protocol, cast

from pocketmq.client.outgoing import BatchMember, Outgoing, Packer, can_share_a_batch
from pocketmq.client.queue_choice import Wish
from pocketmq.client.results import SendResult, split_result
from pocketmq.client.room import Room
from pocketmq.client.settings import ProducerSettings
from pocketmq.errors import CallTimedOut, PocketMQError, WrongState
from pocketmq.model import properties as names
from pocketmq.model.message import Message
from pocketmq.model.queue import MessageQueue


class BatchKind(IntEnum):
    """With whom a message shares a batch: with those of its kind. Numbers, for their hash costs next to nothing."""

    SAFE = 1
    """The broker answers when the message is safe, which holds for a whole batch."""
    HASTY = 2
    """… or does not wait for that."""
    ALONE = 3
    """With none, not even of its kind."""


_SAFE: Final = BatchKind.SAFE  # looked up once: the class is asked in Python code
_HASTY: Final = BatchKind.HASTY
_ALONE: Final = BatchKind.ALONE

LaneKey = tuple[str, BatchKind | None, MessageQueue | None]
"""Topic and kind, or topic and queue: one that was chosen has one lane, for all kinds."""


class Deliver(Protocol):
    """`Sender.deliver`."""

    def __call__(self, out: Outgoing, wish: Wish, /) -> Awaitable[SendResult]: ...


class _Lane:
    """Messages that wait for others to the same place."""

    __slots__ = ("bytes", "futures", "is_sending", "kinds", "loop", "members", "rooms", "timer", "wish")

    def __init__(self, wish: Wish) -> None:
        self.wish = wish
        self.loop = asyncio.get_running_loop()  # not for each message: it costs a system call before Python 3.12
        self.members: list[BatchMember | Outgoing] = []
        self.kinds: list[BatchKind] = []
        self.futures: list[asyncio.Future[SendResult]] = []
        self.rooms: list[int] = []
        self.bytes = 0
        self.timer: asyncio.TimerHandle | None = None
        self.is_sending = False


class Batching:
    """The lanes of one producer."""

    def __init__(self, settings: ProducerSettings, packer: Packer, room: Room, deliver: Deliver) -> None:
        self._packer = packer
        self._room = room
        self._deliver = deliver
        self._linger_s = settings.linger_ms / 1000
        self._batch_bytes = settings.batch_bytes
        self._compress_over = settings.compress_over_bytes
        self._lanes: dict[LaneKey, _Lane] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def kind_of(self, message: Message, wish: Wish) -> BatchKind | None:
        """How the message waits for others, or behind those in the queue that was chosen for it; None when it does not.

        The wish is for a queue or for any. One that would be compressed is better off alone.
        """
        if len(message.body) < self._compress_over and can_share_a_batch(message):
            return _HASTY if message.properties.get(names.WAIT) == "false" else _SAFE
        is_behind = wish.queue is not None and (message.topic, None, wish.queue) in self._lanes
        return _ALONE if is_behind else None

    def add(
        self, message: Message, wish: Wish, kind: BatchKind, room_bytes: int, timeout_s: float | None
    ) -> asyncio.Future[SendResult]:
        """Let the message, for which so much room was taken, wait in its way; the future of its own result.

        After `timeout_s` nobody waits for the result any more.
        """
        member = self._packer.pack(message) if kind is _ALONE else self._packer.pack_member(message)
        key = message.topic, kind if wish.queue is None else None, wish.queue
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(wish)
        future: asyncio.Future[SendResult] = lane.loop.create_future()
        if timeout_s is not None:
            timer = lane.loop.call_later(timeout_s, _give_up, future, timeout_s)
            future.add_done_callback(lambda _: timer.cancel())
        lane.members.append(member)
        lane.kinds.append(kind)
        lane.futures.append(future)
        lane.rooms.append(room_bytes)
        lane.bytes += member.size
        if lane.is_sending:
            return future
        if lane.bytes >= self._batch_bytes or kind is _ALONE:
            self._start(key, lane)
        elif lane.timer is None:
            lane.timer = lane.loop.call_later(self._linger_s, self._start, key, lane)
        return future

    async def flush(self) -> None:
        """Send what waits, and return when it is done, well or not."""
        for key, lane in list(self._lanes.items()):
            if lane.members and not lane.is_sending:
                self._start(key, lane)
        while self._tasks:
            await asyncio.wait(self._tasks)

    def abandon(self) -> None:
        """Fail what was not sent."""
        for task in self._tasks:
            task.cancel()
        for lane in self._lanes.values():
            if lane.timer is not None:
                lane.timer.cancel()
            _fail(lane.futures, WrongState("the producer was stopped before this message was sent"))
            self._room.give(len(lane.rooms), sum(lane.rooms))
        self._lanes.clear()

    def _start(self, key: LaneKey, lane: _Lane) -> None:
        if lane.timer is not None:
            lane.timer.cancel()
            lane.timer = None
        lane.is_sending = True
        task = lane.loop.create_task(self._empty(key, lane))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _empty(self, key: LaneKey, lane: _Lane) -> None:
        """Batch after batch, until nothing waits."""
        while lane.members:
            count = _alike(lane.kinds)
            if lane.bytes > self._batch_bytes:
                count = _fitting(lane.members[:count], self._batch_bytes)
            members, lane.members = lane.members[:count], lane.members[count:]
            del lane.kinds[:count]
            futures, lane.futures = lane.futures[:count], lane.futures[count:]
            rooms, lane.rooms = lane.rooms[:count], lane.rooms[count:]
            lane.bytes -= sum([member.size for member in members])
            try:
                await self._send(members, futures, lane.wish)
            finally:
                self._room.give(count, sum(rooms))
        lane.is_sending = False
        if self._lanes.get(key) is lane:
            del self._lanes[key]

    async def _send(
        self,
        members: Sequence[BatchMember | Outgoing],
        futures: Sequence[asyncio.Future[SendResult]],
        wish: Wish,
    ) -> None:
        first = members[0]
        try:
            if len(members) == 1:
                out = first if isinstance(first, Outgoing) else self._packer.pack_alone(first)
                results = [await self._deliver(out, wish)]
            else:
                result = await self._deliver(self._packer.pack_batch(cast("Sequence[BatchMember]", members)), wish)
                results = split_result(result, [member.message_id for member in members])
        except PocketMQError as error:
            _fail(futures, error)
        except asyncio.CancelledError:
            _fail(futures, WrongState("the producer was stopped while this message was being sent"))
            raise
        else:
            for future, own in zip(futures, results, strict=True):
                if not future.done():
                    future.set_result(own)


def chunks(members: Sequence[BatchMember], max_bytes: int) -> list[Sequence[BatchMember]]:
    """`members` in their order, as batches that are no larger than `max_bytes`, or hold a single message."""
    found = []
    while members:
        count = _fitting(members, max_bytes)
        found.append(members[:count])
        members = members[count:]
    return found


def _alike(kinds: Sequence[BatchKind]) -> int:
    """How many from the first on may share a batch."""
    first = kinds[0]
    if first is _ALONE:
        return 1
    if kinds.count(first) == len(kinds):
        return len(kinds)
    return next(at for at, kind in enumerate(kinds) if kind is not first)


def _give_up(future: asyncio.Future[SendResult], timeout_s: float) -> None:
    if not future.done():
        future.set_exception(
            CallTimedOut(f"the message was not stored within {timeout_s} s; it may be, all the same, with its batch")
        )


def _fitting(members: Sequence[BatchMember | Outgoing], max_bytes: int) -> int:
    total = 0
    for at, member in enumerate(members):
        total += member.size
        if total > max_bytes and at:
            return at
    return len(members)


def _fail(futures: Sequence[asyncio.Future[SendResult]], error: PocketMQError) -> None:
    for future in futures:
        if not future.done():
            future.set_exception(error)
