"""Delays: delivers messages from SCHEDULE_TOPIC_XXXX to their own topics when their delay is over.

    SCHEDULE_TOPIC_XXXX   queue 0   level 1, 1 s      | done …    | due    | not yet          tags code of an entry:
                          queue 1   level 2, 5 s      | done … | due | not yet                the time when it is due
                          …                                    ▲ progress ──► delayOffset.json

All messages of a level have the same delay, so each queue is sorted by due time and only its first entry is checked.
The progress advances after the write succeeded. After a crash, messages delivered since the last save are delivered
again; none is lost.

If the wall clock is set back, the first entry of a queue seems to be due later than a new message. So do all new
messages until the clock reaches its old value, because the store's own time never goes back. RocketMQ delivers such an
entry at once. Here it waits for its delay by the monotonic clock, so that a retry keeps its pause.
"""

from collections import deque
from typing import Final

from pocketmq.broker.delivery.forwarding import (
    Delivery,
    ForwardLimits,
    Plan,
    SafeProgress,
    Skip,
    Topics,
    real_destination,
)
from pocketmq.broker.messages import Appender, Forward
from pocketmq.clock import Clock
from pocketmq.errors import InvalidMessage, QueueDamaged, StoreBusy, StoreFull
from pocketmq.model import SCHEDULE_TOPIC, queue_of_level
from pocketmq.protocol.bodies.topics import DataVersion, DelayOffsets
from pocketmq.protocol.java_json import write_pretty_json
from pocketmq.store.message_store import MessageStore
from pocketmq.store.queues.consume_queue import ConsumeQueue, is_message, log_offset_of

MARKS: Final = 16
"""Resolution while the wall clock is behind: a delay is exceeded by at most a sixteenth."""


class _Level:
    """One delay level and its progress."""

    __slots__ = ("_marks", "done", "level", "wait_ms")

    def __init__(self, level: int, wait_ms: int) -> None:
        self.level = level
        self.wait_ms = wait_ms
        self.done = 0
        self._marks: deque[tuple[int, float]] = deque()

    def is_due(self, offset: int, due_ms: int, max_offset: int, now_ms: int, monotonic: float) -> bool:
        if due_ms <= now_ms + self.wait_ms:
            return due_ms <= now_ms
        return self._waited_long_enough(offset, max_offset, monotonic)

    def _waited_long_enough(self, offset: int, max_offset: int, monotonic: float) -> bool:
        """Each mark is a queue offset, and the time when all messages before it were stored."""
        marks, wait_s = self._marks, self.wait_ms / 1000
        while marks and marks[0][0] <= offset:
            marks.popleft()
        if not marks or monotonic - marks[-1][1] >= wait_s / MARKS:
            marks.append((max_offset, monotonic))
        return marks[0][1] + wait_s <= monotonic


class Delays(Delivery[dict[int, int]]):
    """Delivers delayed messages. Call `run_all` every 100 ms."""

    def __init__(
        self,
        store: MessageStore,
        appender: Appender,
        topics: Topics,
        clock: Clock,
        limits: ForwardLimits | None = None,
        *,
        started_ms: int = 0,
    ) -> None:
        super().__init__(store, appender, topics, "delayed messages", {})
        self._clock = clock
        self._limits = limits or ForwardLimits()
        self._waits = store.settings.delay_levels
        self._levels = deque(_Level(level, self._waits.ms(level)) for level in range(1, len(self._waits) + 1))
        self.version = DataVersion(timestamp=started_ms)
        store.hold_log(self._needed_from)

    @property
    def delivered(self) -> int:
        return self._forwarder.forwarded

    # delivering

    def run(self) -> bool:
        """Deliver one batch per level in turn until the time limit. Return whether more may be due."""
        now_ms, stop_at = self._clock.now_ms(), self._clock.monotonic() + self._limits.run_ms / 1000
        forwarded = idle = 0
        try:
            while idle < len(self._levels):
                level = self._levels[0]
                # Rotated first, so that the next run begins with the next level even if this one fails.
                self._levels.rotate(-1)
                count = self._deliver(level, now_ms)
                idle = 0 if count else idle + 1
                forwarded += count
                if count and self._clock.monotonic() >= stop_at:
                    return True
        except (StoreBusy, StoreFull, QueueDamaged) as error:
            self._forwarder.refused(error)
        finally:
            if forwarded:
                self._progress.record(self._offsets(), self._store.end)
        return False

    def _deliver(self, level: _Level, now_ms: int) -> int:
        """Deliver one batch of a level. Return the number of finished queue entries."""
        queue = self._store.find_queue(SCHEDULE_TOPIC, queue_of_level(level.level))
        if queue is None:
            return 0
        began = level.done
        # Retention may have deleted undelivered messages, and a lost log may have been longer.
        level.done = min(max(level.done, queue.min_offset), queue.max_offset)
        plan = self._plan(level, queue, now_ms)
        if plan.items:
            level.done += self._forwarder.execute(plan.items)
        return abs(level.done - began)

    def _plan(self, level: _Level, queue: ConsumeQueue, now_ms: int) -> Plan:
        plan, monotonic = Plan(self._limits), self._clock.monotonic()
        entries = self._store.entries(queue, level.done, self._limits.batch_messages)
        for offset, entry in enumerate(entries, level.done):
            log_offset, _, due_ms = entry
            if not is_message(entry):
                plan.add(Skip(log_offset))
            elif not level.is_due(offset, due_ms, queue.max_offset, now_ms, monotonic) or not plan.add(
                self._forward(log_offset)
            ):
                break
        return plan

    def _forward(self, log_offset: int) -> Forward | Skip:
        message = self._forwarder.message(log_offset)
        if isinstance(message, Skip):
            return message
        try:
            topic, queue_id = real_destination(message.raw_properties)
        except InvalidMessage as error:
            return Skip(log_offset, str(error))
        return self._forwarder.skip_if_topic_deleted(message) or Forward(
            message, topic, queue_id, message.raw_properties
        )

    # saving

    def _needed_from(self) -> int | None:
        """The log offset of the first message that waits, or whose delivery a power loss could undo. None if there is
        none.
        """
        done, needed = self._progress.safe_at(self._store.synced), []
        for level in self._levels:
            queue = self._store.find_queue(SCHEDULE_TOPIC, queue_of_level(level.level))
            if queue is None:
                continue
            try:
                entry = self._store.entry(queue, max(done.get(level.level, 0), queue.min_offset))
            except QueueDamaged:
                return self._store.facts.log_start  # keep the whole log until the queue is repaired
            if entry is not None:
                needed.append(log_offset_of(entry))
        return min(needed, default=None)

    def load(self, saved: DelayOffsets | None) -> None:
        """Continue at the offsets in delayOffset.json, if there are any.

        Levels that are no longer configured are still delivered. Offsets beyond the end of a queue are lowered now: they
        would otherwise hide later messages.
        """
        saved = saved or DelayOffsets(self.version)
        waiting = range(1, self._store.topic_queues().get(SCHEDULE_TOPIC, 0) + 1)
        known = {level.level: level for level in self._levels}
        was_ahead = False
        for number in sorted({*waiting, *saved.offset_table}):
            if number not in known and number > 0:
                known[number] = _Level(number, self._waits.ms(number))
                self._levels.append(known[number])
            if number in known:
                offset, end = saved.offset_table.get(number, 0), self._end_of(number)
                known[number].done = min(max(offset, 0), end)
                was_ahead |= offset > end
        self.version = saved.data_version
        self._saved = dict(saved.offset_table) if was_ahead else self._offsets()
        self._progress = SafeProgress(self._offsets())

    def follow(self, saved: DelayOffsets) -> None:
        """On a slave: the master has delivered up to these offsets."""
        before = self._saved
        self.load(saved)
        self._saved = before

    def snapshot_json(self, now_ms: int) -> bytes:
        """The bytes of delayOffset.json."""
        if self.is_changed:
            self.version = self.version.next_version(now_ms)
            self._saved = self._progress.safe_at(self._store.synced)
        return write_pretty_json(DelayOffsets(self.version, self._saved))

    # reporting

    def offsets_body(self) -> bytes:
        """The answer to GET_ALL_DELAY_OFFSET: the current offset of each level."""
        return DelayOffsets(self.version, self._offsets()).encode()

    def progress(self) -> dict[int, tuple[int, int]]:
        """For each level, the delivered and the stored number of messages: `scheduleMessageOffset_<level>`."""
        return {level: (done, self._end_of(level)) for level, done in self._offsets().items()}

    def _end_of(self, level: int) -> int:
        return self._store.max_offset(SCHEDULE_TOPIC, queue_of_level(level))

    def _offsets(self) -> dict[int, int]:
        """Offsets of the levels that ever had a message, as RocketMQ reports them."""
        levels = sorted(self._levels, key=lambda level: level.level)
        return {
            level.level: level.done
            for level in levels
            if level.done or self._store.find_queue(SCHEDULE_TOPIC, queue_of_level(level.level)) is not None
        }
