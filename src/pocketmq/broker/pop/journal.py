"""The journal: check points and acks as RocketMQ's timed messages, and what the leases know after each write.

    begin         ck …                               a pop
    acknowledge   ack                                one message, or several of one lease
    renew         ck of one message, ack of the old  a change of the invisible time
    lapse         retries and dead letters, ack      the lease is over

Each is staged in the turn of its request: all requests of a turn share one write, after which leases and acks count. A
crash leaves all of it or a beginning: never an ack without what came before it. A turn that fails leaves nothing. Only
the end of a lease is a write by itself, because it belongs to no request.

A handle of a lease that this table had, and that is finished, changes nothing; nor does one of another broker. Handles
from before the start, and beyond the limit of leases, are written without a look: their check points are in the log.
"""

import logging
from collections.abc import Container, Iterable, Sequence
from typing import Final, NamedTuple

from pocketmq import compiled
from pocketmq.broker.groups.leases import Lease, LeaseKey, Move, QueueOfGroup
from pocketmq.broker.groups.orders import OrderInfo
from pocketmq.broker.handlers.retries import Retries
from pocketmq.broker.messages import Draft
from pocketmq.broker.pop.records import LeaseRecords
from pocketmq.broker.state import BrokerState
from pocketmq.errors import InvalidParameter, StoreBusy, StoreDamaged
from pocketmq.model import StoredMessage
from pocketmq.model import properties as names
from pocketmq.protocol.pop import (
    ACK_TAG,
    BATCH_ACK_TAG,
    CHECK_POINT_TAG,
    NORMAL,
    Ack,
    CheckPoint,
    Handle,
    flag_of,
    revive_topic,
)
from pocketmq.store.queues.consume_queue import ConsumeQueue

log = logging.getLogger("pocketmq.broker")

REVIVE_QUEUES: Final = 8
EARLY_MS: Final = 1_000
"""A check point goes to the revive topic so long before its lease is over."""


class Popped(NamedTuple):
    """What a pop reads from one queue. Without offsets, the filter refused everything up to `next_offset`."""

    topic: str
    queue_id: int
    start: int
    next_offset: int
    offsets: Sequence[int]


def copy_of(point: CheckPoint, offset: int) -> str:
    """The name of the copy that the end of a lease stores of a message."""
    return f"{point.topic}@{point.queue_id}@{point.start}@{point.pop_ms}@{offset}"


class _Began:
    """Leases that begin when their turn is stored."""

    __slots__ = ("_leases", "_moves", "_state")

    def __init__(self, state: BrokerState, leases: Sequence["_NewLease"], moves: Sequence[Move] = ()) -> None:
        self._state = state
        self._leases = leases
        self._moves = moves

    def stored(self) -> None:
        for lease, record, is_due in self._leases:
            if not self._state.store.was_deleted(lease.key[1], record):
                self._state.leases.add(lease, record, is_due=is_due)

    def failed(self) -> None:
        for move in reversed(self._moves):
            self._state.positions.undo(move)


class _Acked:
    """An ack that counts when its turn is stored."""

    __slots__ = ("_lease", "_offsets", "_record", "_state")

    def __init__(self, state: BrokerState, lease: Lease, offsets: Sequence[int], record: int) -> None:
        self._state = state
        self._lease = lease
        self._offsets = offsets
        self._record = record
        state.appender.follow(self)
        lease.acking.update(offsets)

    def stored(self) -> None:
        self._state.leases.acknowledged(self._lease, self._offsets, self._record)

    def failed(self) -> None:
        self._lease.acking.difference_update(self._offsets)


class OrderedChange:
    """A change of an orderly queue, which needs no record; undone if its turn fails. Create it before the change, and call
    `made` after it.
    """

    __slots__ = ("_after", "_before", "_state", "is_undone", "queue")

    def __init__(self, state: BrokerState, queue: QueueOfGroup) -> None:
        self._state = state
        self.queue = queue
        self._before = self._after = self._now()
        self.is_undone = False
        state.appender.follow(self)

    def _now(self) -> tuple[OrderInfo | None, int | None]:
        return self._state.orders.find(self.queue), self._state.positions.get(self.queue)

    def made(self) -> None:
        self._after = self._now()

    def stored(self) -> None:
        """Nothing remains to do."""

    def failed(self) -> None:
        self.is_undone = True
        batch, offset = self._now()
        if self._before == self._after or batch is not self._after[0] or offset != self._after[1]:
            return  # it was reset or deleted meanwhile
        self._state.orders.put_back(self.queue, self._before[0])
        if self._before[1] is not None:
            self._state.positions.set(self.queue, self._before[1])


class _NewLease(NamedTuple):
    """A lease, the log offset of its check point, and whether that is in the revive topic at once."""

    lease: Lease
    record: int
    is_due: bool


class Journal:
    """Writes to the log, and to the leases and positions what was written. Call `begin`, `acknowledge` and `renew` in a turn
    of requests, within `Appender.all_or_none`.
    """

    def __init__(self, state: BrokerState, retries: Retries) -> None:
        self._state = state
        self._retries = retries
        self._topic = revive_topic(state.settings.now.cluster)
        self._broker = state.settings.now.broker_name
        self._records = LeaseRecords(state, self._topic, self._broker)
        self.begins_at_once = self._records.is_in_use
        self._revive_queue = -1
        self._began_ms = state.clock.steady_ms()

    def next_revive_queue(self) -> int:
        self._revive_queue = (self._revive_queue + 1) % REVIVE_QUEUES
        return self._revive_queue

    def longest_lease_ms(self, requested_ms: int) -> int:
        """The requested time, or the longest that the timer accepts."""
        return max(0, min(requested_ms, self._state.settings.now.timer.max_delay_s * 1000))

    # leases

    def begin(self, group: str, parts: Sequence[Popped], pop_ms: int, invisible_ms: int, revive_queue: int) -> None:
        """Lease messages, and move the group behind them."""
        leases: list[_NewLease] = []
        for part in parts:
            if part.offsets:
                key = group, part.topic, part.queue_id, part.start, pop_ms
                leases.append(self._stage(self._lease(key, part.offsets, invisible_ms, revive_queue)))
        end = self._state.store.end
        first = leases[0].record if leases else end
        moves: list[Move] = []
        self._state.appender.follow(_Began(self._state, leases, moves))
        for part in parts:
            queue = group, part.topic, part.queue_id
            moves.append(self._state.positions.move(queue, part.next_offset, first, end))

    def begin_at_once(
        self,
        group: str,
        queue: ConsumeQueue,
        start: int,
        max_count: int,
        pop_ms: int,
        invisible_ms: int,
        answer: tuple[int, int, int, int],
    ) -> compiled.LeasedMessages | None:
        """The same for messages of one queue, which are also read and answered. None if `begin` must do it."""
        revive_queue = (self._revive_queue + 1) % REVIVE_QUEUES
        handle = Handle(start, pop_ms, invisible_ms, revive_queue, NORMAL, self._broker, queue.queue_id, start)
        staged = self._records.stage_messages(group, queue, handle, max_count, answer, pop_ms + invisible_ms - EARLY_MS)
        if staged is None:
            return None
        self._revive_queue = revive_queue
        record, made = staged
        next_offset = start + made[0]
        key = group, queue.topic, queue.queue_id, start, pop_ms
        lease = self._lease(key, range(start, next_offset), invisible_ms, revive_queue)
        moves: list[Move] = []
        self._state.appender.follow(_Began(self._state, (_NewLease(lease, record, is_due=False),), moves))
        moves.append(self._state.positions.move(lease.queue, next_offset, record, self._state.store.end))
        return made

    def _lease(self, key: LeaseKey, offsets: Sequence[int], invisible_ms: int, revive_queue: int) -> Lease:
        ends_ms = self._state.clock.uptime_ms() + invisible_ms
        return Lease(key, offsets, invisible_ms, self._broker, revive_queue, ends_ms)

    def _stage(self, lease: Lease, renews: Handle | None = None) -> _NewLease:
        """Stage the check point of a lease."""
        group, topic, queue_id, start, pop_ms = lease.key
        handle = Handle(start, pop_ms, lease.invisible_ms, lease.revive_queue, NORMAL, self._broker, queue_id, start)
        due_ms = pop_ms + lease.invisible_ms - EARLY_MS
        record = self._records.stage(False, group, topic, handle, lease.offsets, due_ms) if renews is None else None
        if record is not None:
            return _NewLease(lease, record, is_due=False)
        point = lease.check_point
        draft = self._record(CHECK_POINT_TAG, point.unique_key(), point.encode(), lease.revive_queue, due_ms)
        if renews is not None:
            draft.properties[names.POP_CK] = renews.text()
        stored = self._state.appender.stage(draft)
        return _NewLease(lease, stored.log_offset, draft.topic == self._topic)

    # acks

    def acknowledge(self, group: str, topic: str, handle: Handle, offsets: Iterable[int]) -> int:
        """Acknowledge messages of a lease. Return how many were not acknowledged before, as far as it is known.

        StoreBusy while a slow disk writes an earlier ack of the same message: whether that counts is not known yet.
        """
        lease = self._find(group, topic, handle)
        if lease is None:
            if not self._may_be_in_log(handle):
                return 0
            wanted = list(dict.fromkeys(offsets))
        elif not lease.acking:
            wanted = [offset for offset in dict.fromkeys(offsets) if offset in lease.unacked]
        else:
            wanted = [offset for offset in dict.fromkeys(offsets) if self._is_open(lease, offset)]
        if wanted:
            record = self._stage_ack(group, topic, handle, wanted)
            if lease is not None:
                _Acked(self._state, lease, wanted, record)
        return len(wanted)

    def _stage_ack(self, group: str, topic: str, handle: Handle, offsets: Sequence[int]) -> int:
        """Return the log offset of the ack."""
        due_ms, checked = handle.pop_ms + handle.invisible_ms, handle._replace(broker=self._broker)
        self._revive_queue_of(checked)
        record = self._records.stage(True, group, topic, checked, offsets, due_ms)
        if record is None:
            record = self._state.appender.stage(self._ack(group, topic, handle, offsets)).log_offset
        return record

    def _is_open(self, lease: Lease, offset: int) -> bool:
        """Whether a message is not acknowledged, also not in this turn."""
        if offset not in lease.acking:
            return offset in lease.unacked
        if self._state.store.busy_since is not None:
            raise StoreBusy("a slow disk writes an earlier ack of the message")
        return False

    def renew(self, group: str, topic: str, handle: Handle, invisible_ms: int) -> Handle:
        """Lease one message for a new time from now on. Return its new handle."""
        now_ms = max(self._state.clock.steady_ms(), handle.pop_ms + 1)
        offset = handle.offset
        lease = self._find(group, topic, handle)
        if self._is_open(lease, offset) if lease is not None else self._may_be_in_log(handle):
            key = group, topic, handle.queue_id, offset, now_ms
            new = self._lease(key, (offset,), invisible_ms, self._revive_queue_of(handle))
            renewed = self._stage(new, renews=handle)
            self._state.appender.follow(_Began(self._state, (renewed,)))
            acked = self._stage_ack(group, topic, handle, (offset,))
            if lease is not None:
                _Acked(self._state, lease, (offset,), acked)
        return handle._replace(start=offset, pop_ms=now_ms, invisible_ms=invisible_ms, flag=flag_of(topic))

    def _find(self, group: str, topic: str, handle: Handle) -> Lease | None:
        if handle.broker != self._broker:
            return None
        return self._state.leases.find((group, topic, handle.queue_id, handle.start, handle.pop_ms))

    def _may_be_in_log(self, handle: Handle) -> bool:
        """Whether a lease that is not among ours may be open."""
        if handle.broker != self._broker:
            return False
        return handle.pop_ms < self._began_ms or self._state.leases.untracked > 0

    # the end of a lease

    def lapse(self, lease: Lease) -> int:
        """The time of a lease is over: its messages get their next attempt, or become dead letters. How many."""
        offsets = list(lease.unacked)
        returned, record = self.give_back(lease.check_point, offsets, lease.revive_queue)
        self._state.leases.acknowledged(lease, offsets, record)
        self._state.leases.lapsed += returned
        return returned

    def give_back(
        self,
        point: CheckPoint,
        offsets: Sequence[int],
        revive_queue: int,
        stored: Container[str] = (),
        stored_by_ms: int | None = None,
    ) -> tuple[int, int]:
        """Store messages for their next attempt, and after them an ack: they do not return twice. Return how many, and the
        log offset of the ack. Copies in `stored` exist already: a power loss kept them, and not the ack behind them.
        Messages that were stored after `stored_by_ms`, when the check point was, are of a topic that was created again.
        """
        drafts = self._returned(
            point, [offset for offset in offsets if copy_of(point, offset) not in stored], stored_by_ms
        )
        ack = self._ack(point.group, point.topic, self._handle(point, revive_queue), offsets)
        *_, last = self._state.appender.append_all([*drafts, ack])
        return len(drafts), last.log_offset

    def give_up(self, point: CheckPoint, offsets: Sequence[int], revive_queue: int) -> None:
        """Store an ack of messages that cannot return: their topic or group was deleted."""
        self._state.appender.append(self._ack(point.group, point.topic, self._handle(point, revive_queue), offsets))

    def _handle(self, point: CheckPoint, revive_queue: int) -> Handle:
        times = point.start, point.pop_ms, point.invisible_ms
        return Handle(*times, revive_queue, flag_of(point.topic), self._broker, point.queue_id, point.start)

    def _returned(self, point: CheckPoint, offsets: Iterable[int], stored_by_ms: int | None) -> list[Draft]:
        """The next attempts and dead letters of messages. Those that no longer exist are left out, and all if their group
        or topic was deleted.
        """
        group = self._state.groups.get(point.group)
        if group is None or point.topic not in self._state.topics:
            return []
        if not self._state.store.was_deleted(point.topic, 0):
            stored_by_ms = None
        messages = (self._message(point.topic, point.queue_id, offset) for offset in offsets)
        return [
            self._retries.returned(message, group, point.pop_ms, copy_of(point, message.queue_offset))
            for message in messages
            if message is not None and (stored_by_ms is None or message.store_ms <= stored_by_ms)
        ]

    def _message(self, topic: str, queue_id: int, offset: int) -> StoredMessage | None:
        queue = self._state.store.find_queue(topic, queue_id)
        entry = None if queue is None else self._state.store.entry(queue, offset)
        if entry is None:
            return None
        try:
            return self._state.store.message(entry[0])
        except StoreDamaged as damage:
            log.error("Lost message %d of queue %d of %s: %s", offset, queue_id, topic, damage)
            return None

    # records

    def _ack(self, group: str, topic: str, handle: Handle, offsets: Sequence[int]) -> Draft:
        one = len(offsets) == 1
        ack = Ack(
            offsets[0] if one else -1,
            handle.start,
            group,
            topic,
            handle.queue_id,
            handle.pop_ms,
            self._broker,
            None if one else tuple(offsets),
        )
        tag, due_ms = ACK_TAG if one else BATCH_ACK_TAG, handle.pop_ms + handle.invisible_ms
        return self._record(tag, ack.unique_key(), ack.encode(), self._revive_queue_of(handle), due_ms)

    def _record(self, tag: str, unique_key: str, body: bytes, revive_queue: int, due_ms: int) -> Draft:
        return Draft(
            topic=self._topic,
            queue_id=revive_queue,
            body=body,
            properties={names.TAGS: tag, names.UNIQ_KEY: unique_key, names.TIMER_DELIVER_MS: str(due_ms)},
            born_ms=self._state.clock.now_ms(),
            born_host=self._state.store.store_host,
            stored_before=True,
        )

    def _revive_queue_of(self, handle: Handle) -> int:
        if not 0 <= handle.revive_queue < REVIVE_QUEUES:
            raise InvalidParameter(
                f"the receipt handle names revive queue {handle.revive_queue}; there are {REVIVE_QUEUES}"
            )
        return handle.revive_queue
