"""The end of leases: those in memory by their time, all others by the records in the revive topic.

    revive topic, each queue   | done … | ck 1 | ck 2 | ack of 1 | ack of 2 … | end
                                        ▲ the group's offset: the last record that is done

    ck ─┬─ its lease is in memory ──► waits until the lease ends or is acknowledged: its acks follow
        └─ not in memory ──► all records that are due are read, and its time is over ─► messages without ack return

After a crash, the timer may move a check point once more. So acks are remembered for a while, and read again after a start:
`LOOK_BACK_MS`.

A check point is done when all its messages are acknowledged, or stored for their next attempt. The group's offset moves
over records that are done, once the log is synced: a power loss repeats work, and loses none. All of it is RocketMQ's:
its broker continues with our records, and we with its.

A deleted topic may be created again while check points of the old one wait. Leases that were in memory are remembered by
their keys; for all others, a message that was stored after its check point was never leased by it.
"""

import logging
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from pocketmq.broker.delivery.forwarding import SafeProgress
from pocketmq.broker.delivery.timers import Timers
from pocketmq.broker.pop.journal import REVIVE_QUEUES, Journal
from pocketmq.broker.state import BrokerState
from pocketmq.errors import BodyError, GroupNotFound, PocketMQError, StoreDamaged, StoreError
from pocketmq.model import DLQ_PREFIX, TIMER_TOPIC, StoredMessage
from pocketmq.model import properties as names
from pocketmq.protocol.pop import (
    ACK_TAG,
    BATCH_ACK_TAG,
    CHECK_POINT_TAG,
    REVIVE_GROUP,
    Ack,
    CheckPoint,
    pop_retry_topic,
    retried_topic,
    revive_topic,
)
from pocketmq.store.queues.consume_queue import is_message

log = logging.getLogger("pocketmq.broker")

LATE_ACK_MS: Final = 2_000
"""Messages of a lease that is not in memory return so long after its end, as in RocketMQ: its last acks are due with it."""
LOOK_BACK_MS: Final = 60_000
"""After a start, records that were stored so long before the last one are read again. The timer saves its progress far more often."""
MAX_ACKS: Final = 100_000
"""Limit on remembered acks of one queue; the oldest are forgotten first."""
MAX_COPIES: Final = 1_024
"""After a crash, so many of the last messages of a retry or dead-letter topic are compared with open leases."""
SECOND_MS: Final = 1_000
READ_STEP: Final = 64
BATCH: Final = 32
RETRY_MS: Final = 10_000
"""A lease whose messages cannot be stored is tried again after this time."""


class ReviveLimits(msgspec.Struct, frozen=True, kw_only=True):
    run_ms: int = 10
    """Time limit of one run."""
    max_open: int = 100_000
    """Limit on check points of one queue that wait in memory. Reading continues when some are done."""


class _Open:
    """A check point that is not done. `at` is its offset in the revive topic; it was first stored in the second that ends
    at `stored_by_ms`.
    """

    __slots__ = ("at", "not_before_ms", "point", "stored_by_ms", "unacked")

    def __init__(self, at: int, point: CheckPoint, stored_by_ms: int) -> None:
        self.at = at
        self.point = point
        self.stored_by_ms = stored_by_ms
        self.unacked = dict.fromkeys(point.offsets())
        self.not_before_ms = point.pop_ms + point.invisible_ms + LATE_ACK_MS


class _ReviveQueue:
    """One queue of the revive topic."""

    def __init__(self, queue_id: int) -> None:
        self.queue_id = queue_id
        self.next_offset = 0
        self.done_before = 0
        """At the start: check points before this offset are done. Only their acks are read again."""
        self.open: dict[str, _Open] = {}
        self._acks: dict[str, dict[int, None]] = {}
        """Offsets of acks that were read, by check point."""

    def take(self, at: int, key: str, point: CheckPoint, stored_by_ms: int) -> None:
        """A check point was read."""
        if at < self.done_before:
            return
        found = _Open(at, point, stored_by_ms)
        for offset in self._acks.get(key, ()):
            found.unacked.pop(offset, None)
        if found.unacked:
            self.open.setdefault(key, found)

    def acknowledge(self, key: str, offsets: Iterable[int]) -> None:
        """An ack was read. Its check point comes before it, or once more after it."""
        acks = self._acks.setdefault(key, {})
        found = self.open.get(key)
        for offset in offsets:
            acks[offset] = None
            if found is not None:
                found.unacked.pop(offset, None)
        if found is not None and not found.unacked:
            del self.open[key]
        if len(self._acks) > MAX_ACKS:
            del self._acks[next(iter(self._acks))]

    @property
    def done(self) -> int:
        """The offset after the last record that is done: all before it are."""
        first = next(iter(self.open.values()), None)
        return self.next_offset if first is None else first.at


class Revival:
    """Call `run_all` every 100 ms."""

    def __init__(
        self, state: BrokerState, journal: Journal, timers: Timers, limits: ReviveLimits | None = None
    ) -> None:
        self._state = state
        self._journal = journal
        self._timers = timers
        self._sync_at = 0.0
        self._limits = limits or ReviveLimits()
        self._topic = revive_topic(state.settings.now.cluster)
        self._broker = state.settings.now.broker_name
        self._queues = [_ReviveQueue(queue_id) for queue_id in range(REVIVE_QUEUES)]
        self._progress: SafeProgress[tuple[int, ...]] = SafeProgress(())
        self._is_failing = False
        self.postponed = 0
        """How often the messages of a lease could not be stored."""
        self._ends: dict[str, dict[int, int]] = {}
        """After a crash: the ends of all queues at the start."""
        self._stored_copies: dict[str, frozenset[str]] = {}
        self.revived = 0
        """Messages of leases that were not in memory."""

    def load(self, *, clean: bool) -> None:
        """Continue after the last record that is done, and raise offsets of groups to the last check points. `clean`: there
        was no crash.

        Offsets are saved every few seconds, and a group must not get again what it acknowledged since.
        """
        self._ends = {} if clean else self._state.store.queue_ends()
        for queue in self._queues:
            stored = self._state.offsets.stored(REVIVE_GROUP, self._topic, queue.queue_id)
            queue.done_before = 0 if stored is None else stored + 1
            queue.next_offset = min(queue.done_before, self._look_back(queue.queue_id))
        self._progress = SafeProgress(self._done())
        since = self._state.offsets.popped_to
        if since is None:  # offsets that another broker saved include what it popped
            since = self._state.store.end if self._state.offsets.is_restored else 0
        for point in self._check_points_since(since):
            self._raise_offset(point)
        self._state.positions.commit(self._state.store.synced)

    def _look_back(self, queue_id: int) -> int:
        store = self._state.store
        last_ms = store.store_ms(self._topic, queue_id, store.max_offset(self._topic, queue_id) - 1)
        return 0 if last_ms is None else store.offset_at_time(self._topic, queue_id, last_ms - LOOK_BACK_MS)

    def _check_points_since(self, log_offset: int) -> Iterator[CheckPoint]:
        """Check points of pops that were stored at `log_offset` or later; not those that the timer moved."""
        for topic, queue_id in ((TIMER_TOPIC, 0), *((self._topic, queue.queue_id) for queue in self._queues)):
            queue = self._state.store.find_queue(topic, queue_id)
            if queue is None:
                continue
            first = self._state.store.first_at_or_beyond(queue, log_offset)
            for entry in self._state.store.entries(queue, first, queue.max_offset - first, waits=True):
                message = self._message(entry[0]) if is_message(entry) else None
                if message is not None and _is_new_check_point(message, self._topic):
                    try:
                        yield CheckPoint.decode(message.body)
                    except BodyError as error:
                        log.error("Ignored a check point at log offset %d: %s", entry[0], error)

    def _raise_offset(self, point: CheckPoint) -> None:
        queue, offsets = (point.group, point.topic, point.queue_id), point.offsets()
        if not offsets or point.queue_id in self._state.offsets.resets.get(f"{point.topic}@{point.group}", ()):
            return
        if point.topic in self._state.topics and self._has_group(point.group):
            stored, end = self._state.offsets.stored(*queue), self._state.store.max_offset(point.topic, point.queue_id)
            reached = min(offsets[-1] + 1, end)
            if stored is None or stored < reached:
                self._state.positions.set(queue, reached)

    def _has_group(self, group: str) -> bool:
        """Whether the group exists. It may have been created just before a crash, and not be saved."""
        try:
            self._state.groups.ensure(group, self._state.clock.now_ms())
        except GroupNotFound:
            return False
        return True

    # running

    async def run_all(self) -> None:
        """End what is over. Waits for nothing: a run that is out of time continues with the next one."""
        self.run()

    def run(self) -> None:
        store, clock = self._state.store, self._state.clock
        self._commit_positions(clock.monotonic())
        deadline = clock.monotonic() + self._limits.run_ms / 1000
        try:
            self._end_leases(deadline)
            for queue in self._queues:
                self._read(queue, deadline)
                self._return_messages(queue, deadline)
            self._is_failing = False
        except StoreError as error:
            self._failed(error)
        self._progress.record(self._done(), store.end)
        self._commit()

    def _commit_positions(self, now: float) -> None:
        """Commit what is synced. The log is synced for it as often as under load, so that offsets are never far behind."""
        store = self._state.store
        self._state.positions.commit(store.synced)
        if not self._state.positions.is_settled and now >= self._sync_at:
            self._sync_at = now + store.settings.flush_interval_ms / 1000
            store.when_synced(store.end, _ignore)

    def _failed(self, error: StoreError) -> None:
        if not self._is_failing and self._state.store.busy_since is None:
            self._is_failing = True
            log.warning("Messages whose lease is over cannot be stored for their next attempt, retrying: %s", error)

    def _end_leases(self, deadline: float) -> None:
        """Leases in memory end by a clock that no step of the wall clock changes."""
        clock = self._state.clock
        while lapsed := self._state.leases.lapses(clock.uptime_ms(), BATCH):
            for at, lease in enumerate(lapsed):
                try:
                    self._journal.lapse(lease)
                except BaseException as error:
                    later_ms = self._later_ms(error)
                    self._state.leases.end_at(lease, lease.ends_ms + later_ms)
                    if not later_ms:
                        for rest in lapsed[at + 1 :]:
                            self._state.leases.end_at(rest, rest.ends_ms)
                        raise
            if clock.monotonic() >= deadline:
                return

    def _later_ms(self, error: BaseException) -> int:
        """How much later messages are tried again that cannot be stored. 0: the store accepts nothing, and all must wait."""
        if isinstance(error, StoreError) or not isinstance(error, PocketMQError):
            return 0
        self.postponed += 1
        if self.postponed & (self.postponed - 1) == 0:  # log the 1st, 2nd, 4th, 8th … only
            log.error("Messages whose lease is over cannot be stored, retrying in %d s: %s", RETRY_MS // 1000, error)
        return RETRY_MS

    def _read(self, queue: _ReviveQueue, deadline: float) -> None:
        found = self._state.store.find_queue(self._topic, queue.queue_id)
        if found is None:
            return
        # Retention may have deleted records that were not read, and a lost log may have been longer.
        queue.next_offset = min(max(queue.next_offset, found.min_offset), found.max_offset)
        while queue.next_offset < found.max_offset and len(queue.open) < self._limits.max_open:
            for entry in self._state.store.entries(found, queue.next_offset, READ_STEP):
                message = self._message(entry[0]) if is_message(entry) else None
                if message is not None:
                    self._take(queue, queue.next_offset, message)
                queue.next_offset += 1
            if self._state.clock.monotonic() >= deadline:
                return

    def _message(self, log_offset: int) -> StoredMessage | None:
        try:
            return self._state.store.message(log_offset)
        except StoreDamaged as damage:
            log.error("Lost a record of the revive topic: %s", damage)
            return None

    def _take(self, queue: _ReviveQueue, at: int, message: StoredMessage) -> None:
        tag = message.properties.get(names.TAGS)
        try:
            if tag == CHECK_POINT_TAG:
                point = CheckPoint.decode(message.body)
                queue.take(at, point.key(self._broker), point, _stored_by_ms(message))
            elif tag in (ACK_TAG, BATCH_ACK_TAG):
                ack = Ack.read(message.body)
                queue.acknowledge(ack.key(self._broker), ack.acked())
        except BodyError as error:
            log.error("Ignored record %d of revive queue %d: %s", at, queue.queue_id, error)

    def _return_messages(self, queue: _ReviveQueue, deadline: float) -> None:
        """Store messages of leases that are over, for their next attempt."""
        now_ms = self._state.clock.now_ms()
        source = self._state.store.find_queue(self._topic, queue.queue_id)
        if source is None or queue.next_offset < source.max_offset:
            return  # there may be acks among the records that are not read
        for key, found in list(queue.open.items()):
            if self._state.clock.monotonic() >= deadline:
                return
            point = found.point
            lease_key = point.group, point.topic, point.queue_id, point.start, point.pop_ms
            if self._state.leases.find(lease_key) is not None or now_ms <= found.not_before_ms:
                continue
            if not self._timers.is_past(point.pop_ms + point.invisible_ms):
                continue
            offsets = list(found.unacked)
            try:
                if self._state.leases.was_forgotten(lease_key):
                    self._journal.give_up(point, offsets, queue.queue_id)
                    returned = 0
                else:
                    stored, stored_by_ms = self._copies(point), found.stored_by_ms
                    returned, _ = self._journal.give_back(point, offsets, queue.queue_id, stored, stored_by_ms)
            except PocketMQError as error:
                later_ms = self._later_ms(error)
                if not later_ms:
                    raise
                found.not_before_ms = now_ms + later_ms
            else:
                self.revived += returned
                del queue.open[key]

    def _copies(self, point: CheckPoint) -> frozenset[str]:
        """The copies of messages that a crash may have left without their ack: the last ones before the start."""
        topic = retried_topic(point.group, point.topic)
        retries = [pop_retry_topic(point.group, topic, v2=v2) for v2 in (False, True)]
        found = frozenset[str]()
        for name in (*retries, f"{DLQ_PREFIX}{point.group}"):
            if name not in self._stored_copies:
                self._stored_copies[name] = frozenset(self._last_copies(name))
            found |= self._stored_copies[name]
        return found

    def _last_copies(self, topic: str) -> Iterator[str]:
        end, queue = self._ends.get(topic, {}).get(0, 0), self._state.store.find_queue(topic, 0)
        first = max(end - MAX_COPIES, 0 if queue is None else queue.min_offset)
        for entry in self._state.store.entries(queue, first, end - first) if queue is not None else ():
            message = self._message(entry[0]) if is_message(entry) else None
            if message is not None and names.POP_RETURNED in message.properties:
                yield message.properties[names.POP_RETURNED]

    # saving

    def _done(self) -> tuple[int, ...]:
        return tuple(queue.done for queue in self._queues)

    def _commit(self) -> None:
        """Commit what no power loss can undo: the offset of the last record that is done."""
        for queue_id, done in enumerate(self._progress.safe_at(self._state.store.synced)):
            if done - 1 > (self._state.offsets.stored(REVIVE_GROUP, self._topic, queue_id) or -1):
                self._state.offsets.confirm_log(REVIVE_GROUP, self._topic, queue_id)
                self._state.offsets.commit(REVIVE_GROUP, self._topic, queue_id, done - 1)

    async def settle(self) -> None:
        """Wait until everything may be saved. Call this before the last save."""
        if not self._state.positions.is_settled or not self._progress.is_settled(self._state.store.synced):
            await self._state.appender.synced()
        self._state.positions.commit(self._state.store.synced)
        self._commit()


def _ignore(_is_synced: bool) -> None:
    """The next run commits what is synced."""


def _stored_by_ms(message: StoredMessage) -> int:
    """The end of the second in which a check point was stored first; the timer adds that second when it moves it."""
    enqueued = message.properties.get(names.TIMER_ENQUEUE_MS, "")
    first_ms = int(enqueued) if enqueued.isdecimal() and len(enqueued) < 19 else message.store_ms
    return first_ms + SECOND_MS - 1


def _is_new_check_point(message: StoredMessage, topic: str) -> bool:
    """Whether the record is a check point of a pop, in the topic where it was first stored."""
    properties = message.properties
    if properties.get(names.TAGS) != CHECK_POINT_TAG or names.POP_CK in properties:
        return False
    if message.topic == TIMER_TOPIC:
        return properties.get(names.REAL_TOPIC) == topic and names.TIMER_ROLL_TIMES not in properties
    return names.TIMER_OUT_MS not in properties
