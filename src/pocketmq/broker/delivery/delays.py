"""Delays: what waits in SCHEDULE_TOPIC_XXXX goes to its own topic when its level's time is over.

    SCHEDULE_TOPIC_XXXX   queue 0   level 1, 1 s      | done …    | due    | not yet          tags code of an entry:
                          queue 1   level 2, 5 s      | done … | due | not yet                when it is due
                          …                                    ▲ progress ──► delayOffset.json

All messages of a level wait equally long, so each queue is in the order of its due times, and one look at its head is enough.
Progress moves when the write has succeeded: after a crash what was delivered since the last save comes again, and nothing is lost.

The wall clock may be set back. Then heads seem to be due later than a message that comes just now, and so do all that come
until the clock is again where it was, for the store's own time never goes back. RocketMQ delivers such a head at once. Here it waits
as long as its level says, counted by the clock that cannot be set: a retry keeps its pause.
"""

from collections import deque
from typing import Final

from pocketmq.broker.delivery.forwarding import (
    Forwarder,
    ForwardLimits,
    Nothing,
    Plan,
    SafeProgress,
    Topics,
    real_place,
    run_out,
)
from pocketmq.broker.messages.appending import Appender, Move
from pocketmq.clock import Clock
from pocketmq.errors import InvalidMessage, QueueDamaged, StoreBusy, StoreFull
from pocketmq.model.delay import queue_of_level
from pocketmq.model.names import SCHEDULE_TOPIC
from pocketmq.protocol.bodies.body import DataVersion
from pocketmq.protocol.bodies.offsets import DelayOffsets
from pocketmq.protocol.java_json import write_json, write_pretty_json
from pocketmq.store.message_store import MessageStore
from pocketmq.store.queues.consume_queue import ConsumeQueue, is_message, log_offset_of

MARKS: Final = 16
"""How finely the waiting is measured while the clock is behind: a level's time is exceeded by a sixteenth at most."""


class _Level:
    """One level: how long it waits, and how far it is done."""

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
        """A mark says when messages before an offset were known to be there."""
        marks, wait_s = self._marks, self.wait_ms / 1000
        while marks and marks[0][0] <= offset:
            marks.popleft()
        if not marks or monotonic - marks[-1][1] >= wait_s / MARKS:
            marks.append((max_offset, monotonic))
        return marks[0][1] + wait_s <= monotonic


class Delays:
    """Delivers delayed messages. `run_all` is to be called every 100 ms."""

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
        self._store = store
        self._appender = appender
        self._clock = clock
        self._limits = limits or ForwardLimits()
        self._forwarder = Forwarder(store, appender, topics, "delayed messages")
        self._waits = store.settings.delay_levels
        self._levels = deque(_Level(level, self._waits.ms(level)) for level in range(1, len(self._waits) + 1))
        self._saved: dict[int, int] = {}
        self._progress = SafeProgress(self._saved)
        self.version = DataVersion(timestamp=started_ms)
        store.hold_log(self._needed_from)

    @property
    def delivered(self) -> int:
        return self._forwarder.moved

    @property
    def passed_over(self) -> int:
        """Messages that could not be delivered anywhere; each was told."""
        return self._forwarder.passed_over

    # delivering

    async def run_all(self) -> None:
        """Deliver all that is due, letting others work in between."""
        await run_out(self.run)

    def run(self) -> bool:
        """Deliver what is due, a batch of each level in turn, until the time is up; whether there may be more."""
        now_ms, stop_at = self._clock.now_ms(), self._clock.monotonic() + self._limits.run_ms / 1000
        moved = idle = 0
        try:
            while idle < len(self._levels):
                level = self._levels[0]
                # Rotated before the work: the next run begins with the next level, whatever becomes of this one.
                self._levels.rotate(-1)
                count = self._deliver(level, now_ms)
                idle = 0 if count else idle + 1
                moved += count
                if count and self._clock.monotonic() >= stop_at:
                    return True
        except (StoreBusy, StoreFull, QueueDamaged) as error:
            self._forwarder.refused(error)
        finally:
            if moved:
                self._progress.note(self._offsets(), self._store.end)
        return False

    def _deliver(self, level: _Level, now_ms: int) -> int:
        """Deliver one batch of a level; how many of its queue's entries are done with."""
        queue = self._store.find_queue(SCHEDULE_TOPIC, queue_of_level(level.level))
        if queue is None:
            return 0
        began = level.done
        # Retention may have taken what was not delivered, and a log that was lost may have had more than there is.
        level.done = min(max(level.done, queue.min_offset), queue.max_offset)
        plan = self._plan(level, queue, now_ms)
        if plan.items:
            level.done += self._forwarder.carry_out(plan.items)
        return abs(level.done - began)

    def _plan(self, level: _Level, queue: ConsumeQueue, now_ms: int) -> Plan:
        plan, monotonic = Plan(self._limits), self._clock.monotonic()
        entries = self._store.entries(queue, level.done, self._limits.batch_messages)
        for offset, entry in enumerate(entries, level.done):
            log_offset, _, due_ms = entry
            if not is_message(entry):
                plan.add(Nothing(log_offset))
            elif not level.is_due(offset, due_ms, queue.max_offset, now_ms, monotonic) or not plan.add(
                self._move(log_offset)
            ):
                break
        return plan

    def _move(self, log_offset: int) -> Move | Nothing:
        message = self._forwarder.message(log_offset)
        if isinstance(message, Nothing):
            return message
        try:
            topic, queue_id = real_place(message.raw_properties)
        except InvalidMessage as error:
            return Nothing(log_offset, str(error))
        return self._forwarder.homeless(message) or Move(message, topic, queue_id, message.raw_properties)

    # keeping

    def _needed_from(self) -> int | None:
        """The log offset of the first message that waits, or whose delivery a power loss could take back; None: there is none."""
        done, needed = self._progress.upto(self._store.synced), []
        for level in self._levels:
            queue = self._store.find_queue(SCHEDULE_TOPIC, queue_of_level(level.level))
            if queue is None:
                continue
            try:
                entry = self._store.entry(queue, max(done.get(level.level, 0), queue.min_offset))
            except QueueDamaged:
                return self._store.facts.log_start  # keep all of it until the repair shows what is needed
            if entry is not None:
                needed.append(log_offset_of(entry))
        return min(needed, default=None)

    def load(self, saved: DelayOffsets | None) -> None:
        """Go on where delayOffset.json says, if there is one.

        A level that the table of levels does not have any more is still emptied, also one that has delivered nothing yet. What
        the file says of a log that had more than this one is forgotten now: it would be taken for true of messages to come.
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

    async def settle(self) -> None:
        """Wait until all progress may be saved; to be called before saving."""
        if not self._progress.is_settled(self._store.synced):
            await self._appender.synced()

    @property
    def is_changed(self) -> bool:
        """Whether there is progress that no `snapshot_json` holds yet, and that no power loss can take back."""
        return self._progress.upto(self._store.synced) != self._saved

    def snapshot_json(self, now_ms: int) -> bytes:
        """The bytes of delayOffset.json."""
        if self.is_changed:
            self.version = self.version.next_version(now_ms)
            self._saved = self._progress.upto(self._store.synced)
        return write_pretty_json(DelayOffsets(self.version, self._saved))

    # telling

    def offsets_body(self) -> bytes:
        """The answer to GET_ALL_DELAY_OFFSET: how far the levels are now."""
        return write_json(DelayOffsets(self.version, self._offsets()))

    def progress(self) -> dict[int, tuple[int, int]]:
        """How far each level is, and how many messages it has had: `scheduleMessageOffset_<level>`."""
        return {level: (done, self._end_of(level)) for level, done in self._offsets().items()}

    def _end_of(self, level: int) -> int:
        return self._store.max_offset(SCHEDULE_TOPIC, queue_of_level(level))

    def _offsets(self) -> dict[int, int]:
        """Of the levels that ever had a message, as RocketMQ tells them."""
        levels = sorted(self._levels, key=lambda level: level.level)
        return {
            level.level: level.done
            for level in levels
            if level.done or self._store.find_queue(SCHEDULE_TOPIC, queue_of_level(level.level)) is not None
        }
