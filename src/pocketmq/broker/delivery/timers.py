"""What becomes of timed messages: read, delivered when due, recalled, and stored anew before retention would take them.

A message is due when the second for which it waits is over: `now >= TIMER_OUT_MS + precision`, by the wall clock, wherever that is
set. All that can be read is read before anything is delivered, so that a recall is known before its message goes.

After a crash the messages come again that were delivered, or rolled, since timers.json was saved; none is lost.

How many a second, over the last ten seconds.
"""

from collections import deque
from typing import Final

import msgspec

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
from pocketmq.broker.delivery.timer_progress import (
    Frontier,
    Step,
    TimerCheck,
    TimerProgress,
    Waiting,
    Wish,
    delivered_properties,
    read_wish,
    recall_key,
    recalls,
    rolled_properties,
)
from pocketmq.broker.messages.appending import Appender, Move
from pocketmq.broker.settings import SettingsInUse
from pocketmq.clock import Clock
from pocketmq.errors import InvalidMessage, QueueDamaged, StoreBusy, StoreFull
from pocketmq.model.names import TIMER_TOPIC
from pocketmq.store.message_store import MessageStore
from pocketmq.store.queues.consume_queue import ConsumeQueue, Entry, is_message, log_offset_of
from pocketmq.store.retention import HOUR_MS

WINDOW_S: Final = 10
STEP_S: Final = 1


class Rate:
    """Raise `count`, and let it `tick` now and then."""

    __slots__ = ("_marks", "count")

    def __init__(self) -> None:
        self.count = 0
        self._marks: deque[tuple[float, int]] = deque()

    def tick(self, monotonic: float) -> None:
        if not self._marks or monotonic - self._marks[-1][0] >= STEP_S:
            self._marks.append((monotonic, self.count))
        while len(self._marks) > 1 and monotonic - self._marks[1][0] >= WINDOW_S:
            self._marks.popleft()

    def per_second(self, monotonic: float) -> float:
        self.tick(monotonic)
        began, count = self._marks[0]
        return round((self.count - count) / (monotonic - began), 1) if monotonic > began else 0.0


READ_STEP: Final = 64
"""Records read between two looks at the time."""
ROLL_CHECK_S: Final = 60.0
LEAST_ROLL_AGE_MS: Final = 10 * 60_000


class TimerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What timers may take."""

    moves: ForwardLimits = ForwardLimits()
    max_waiting: int = 10_000_000
    """More timed messages are refused while so many wait: ten bytes of memory each."""


class _Recalled(Nothing):
    """A message that its sender took back."""

    __slots__ = ()


class Timers:
    """Delivers timed messages. `run_all` is to be called every 100 ms, and its progress saved every second."""

    def __init__(
        self,
        store: MessageStore,
        appender: Appender,
        topics: Topics,
        settings: SettingsInUse,
        clock: Clock,
        limits: TimerLimits | None = None,
    ) -> None:
        self._store = store
        self._appender = appender
        self._settings = settings
        self._clock = clock
        self._limits = limits or TimerLimits()
        self._forwarder = Forwarder(store, appender, topics, "timed messages")
        self._waiting = Waiting()
        self._recalled: dict[int, set[bytes]] = {}
        self._frontier = Frontier()
        self._next_offset = 0
        self._read_to = 0
        self._roll_check_at = 0.0
        self._roll_offset = 0
        self._saved = TimerProgress()
        self._progress = SafeProgress(self._saved)
        self._enqueued, self._dequeued = Rate(), Rate()
        self.recalled = 0
        """Messages that were not delivered because their senders took them back."""
        self.rolled = 0
        """Messages that were stored anew because they wait for so long."""
        store.hold_log(self._needed_from)

    def __len__(self) -> int:
        """How many messages wait."""
        return len(self._waiting)

    @property
    def delivered(self) -> int:
        return self._forwarder.moved - self.rolled

    @property
    def passed_over(self) -> int:
        """Messages that could not be delivered anywhere; each was told."""
        return self._forwarder.passed_over

    # running

    async def run_all(self) -> None:
        """Read and deliver all that is due, letting others work in between."""
        await run_out(self.run)

    def run(self) -> bool:
        """Read what is new, deliver what is due, and roll what is old, until the time is up; whether there may be more."""
        queue = self._store.find_queue(TIMER_TOPIC, 0)
        if queue is None:
            return False
        monotonic = self._clock.monotonic()
        self._enqueued.tick(monotonic)
        self._dequeued.tick(monotonic)
        stop_at = monotonic + self._limits.moves.run_ms / 1000
        before = self._read_to, self._dequeued.count, self._roll_offset
        try:
            return not self._read(queue, stop_at) or self._deliver(stop_at) or self._roll(queue)
        except (StoreBusy, StoreFull, QueueDamaged) as error:
            self._forwarder.refused(error)
            return False
        finally:
            self._appender.timers_full = len(self._waiting) >= self._limits.max_waiting
            if before != (self._read_to, self._dequeued.count, self._roll_offset):
                self._note_progress()

    # reading

    def _read(self, queue: ConsumeQueue, stop_at: float) -> bool:
        """Read on in the timer topic; whether all of it is read."""
        # Retention may have taken what was never read, and a log that was lost may have had more than there is.
        self._next_offset = min(max(self._next_offset, queue.min_offset), queue.max_offset)
        while self._next_offset < queue.max_offset:
            for entry in self._store.entries(queue, self._next_offset, READ_STEP):
                self._next_offset += 1
                self._take_in(entry)
            if self._clock.monotonic() >= stop_at:
                break
        return self._next_offset >= queue.max_offset

    def _take_in(self, entry: Entry) -> None:
        log_offset, size, _ = entry
        wish = self._wish(entry)
        is_new = log_offset >= self._read_to
        if is_message(entry):
            self._read_to = max(self._read_to, log_offset + size)
        if isinstance(wish, Nothing):
            if is_new:
                self._forwarder.carry_out((wish,))
            return
        if is_new:
            self._frontier.admit(wish.out_ms, log_offset)
            self._enqueued.count += 1
        elif self._frontier.is_done(wish.out_ms, log_offset):
            return
        self._waiting.add(wish.out_ms, log_offset)
        if wish.recalled is not None:
            self._recalled.setdefault(wish.out_ms, set()).add(wish.recalled)

    def _wish(self, entry: Entry) -> Wish | Nothing:
        if not is_message(entry):
            return Nothing(entry[0])
        record = self._store.record(entry[0])
        if record is None:
            return Nothing(entry[0], "it is not in the log any more")
        try:
            return read_wish(record)
        except InvalidMessage as error:
            return Nothing(entry[0], str(error))

    # delivering

    def _deliver(self, stop_at: float) -> bool:
        """Deliver what is due; whether there is more."""
        over_ms = self._clock.now_ms() - self._settings.now.timer.precision_ms
        while (out_ms := self._waiting.next_ms) is not None and out_ms <= over_ms:
            self._deliver_batch(out_ms)
            if self._clock.monotonic() >= stop_at:
                return True
        return False

    def _deliver_batch(self, out_ms: int) -> None:
        offsets = self._waiting.next_offsets(self._limits.moves.batch_messages)
        recalled, plan = self._recalled.get(out_ms, ()), Plan(self._limits.moves)
        for log_offset in offsets:
            is_rolled = self._waiting.is_rolled(log_offset)
            if not plan.add(Nothing(log_offset) if is_rolled else self._move(log_offset, recalled)):
                break
        count = self._forwarder.carry_out(plan.items)
        self._frontier.advance(out_ms, offsets[count - 1])
        self._waiting.take(count)
        self._dequeued.count += count
        self.recalled += sum(isinstance(item, _Recalled) for item in plan.items[:count])
        if self._waiting.next_ms != out_ms:
            self._recalled.pop(out_ms, None)

    def _move(self, log_offset: int, recalled: "set[bytes] | tuple[()]") -> Move | Nothing:
        message = self._forwarder.message(log_offset)
        if isinstance(message, Nothing):
            return message
        if recalls(message.raw_properties):
            return Nothing(log_offset)
        try:
            topic, queue_id = real_place(message.raw_properties)
        except InvalidMessage as error:
            return Nothing(log_offset, str(error))
        if recalled and recall_key(topic, message.raw_properties) in recalled:
            return _Recalled(log_offset)
        properties = delivered_properties(message, self._clock.now_ms(), self._settings.now.timer.precision_ms)
        return self._forwarder.homeless(message) or Move(message, topic, queue_id, properties)

    # rolling

    def _roll(self, queue: ConsumeQueue) -> bool:
        """Store messages anew that retention would take before they are due; whether there are more. One look a minute."""
        oldest, monotonic = self._waiting.oldest, self._clock.monotonic()
        if oldest is None or monotonic < self._roll_check_at:
            return False
        self._roll_offset = max(self._roll_offset, self._store.first_at_or_beyond(queue, oldest))
        stored_ms = self._store.store_ms(TIMER_TOPIC, 0, self._roll_offset) or 0
        if self._roll_offset >= self._next_offset or not self._is_old(stored_ms):
            self._roll_check_at = monotonic + ROLL_CHECK_S
            return False
        self._roll_batch(queue)
        return True

    def _is_old(self, stored_ms: int) -> bool:
        roll_age_ms = max(self._store.settings.retention_hours * HOUR_MS * 2 // 3, LEAST_ROLL_AGE_MS)
        return self._clock.now_ms() - stored_ms >= roll_age_ms

    def _roll_batch(self, queue: ConsumeQueue) -> None:
        count = min(self._limits.moves.batch_messages, self._next_offset - self._roll_offset)
        entries = list(self._store.entries(queue, self._roll_offset, count))
        plan = Plan(self._limits.moves)
        for entry in entries:
            item = self._rolled(entry)
            if item is None or not plan.add(item):
                break
        moved = self._forwarder.moved
        count = self._forwarder.carry_out(plan.items)
        self.rolled += self._forwarder.moved - moved
        self._roll_offset += count
        self._leave_behind(plan.items[:count], entries[:count])

    def _leave_behind(self, plan: list[Move | Nothing], entries: list[Entry]) -> None:
        """These are done with at their places: what still waits is behind them."""
        for item in plan:
            if isinstance(item, Move):
                self._waiting.roll(item.message.log_offset)
            elif item.why:
                self._waiting.roll(item.log_offset)
        end = max((entry[0] + entry[1] for entry in entries if is_message(entry)), default=0)
        self._frontier.forget_before(end)
        lost = self._waiting.forget_before(end)
        if lost:
            self._forwarder.lost(lost, f"they cannot be read any more, and lay before log offset {end}")

    def _rolled(self, entry: Entry) -> Move | Nothing | None:
        """What becomes of a message at its old place; None when it is not old."""
        wish = self._wish(entry)
        if isinstance(wish, Nothing) or self._frontier.is_done(wish.out_ms, entry[0]):
            return Nothing(entry[0])
        message = self._forwarder.message(entry[0])
        if isinstance(message, Nothing):
            return Nothing(entry[0])
        if not self._is_old(message.store_ms):
            return None
        # Where the new record will lie nothing tells any more that its topic was deleted before.
        homeless = None if recalls(message.raw_properties) else self._forwarder.homeless(message)
        return homeless or Move(
            message, TIMER_TOPIC, 0, rolled_properties(message, self._settings.now.timer.precision_ms)
        )

    # keeping

    def _needed_from(self) -> int | None:
        """The log offset of the first message that waits or has not been read; None when there is none.

        A message that was rolled or delivered counts as long as a power loss could take its new place back.
        """
        queue = self._store.find_queue(TIMER_TOPIC, 0)
        if queue is None:
            return None
        try:
            oldest = self._store.first_at_or_beyond(queue, self._progress.upto(self._store.synced).oldest)
            entry = self._store.entry(queue, oldest)
        except QueueDamaged:
            return self._store.facts.log_start  # keep all of it until the repair shows what is needed
        return None if entry is None else log_offset_of(entry)

    def load(self, saved: TimerProgress | None, check: TimerCheck | None = None) -> None:
        """Go on where timers.json says; where RocketMQ's own timercheck says, when there is no timers.json."""
        queue = self._store.find_queue(TIMER_TOPIC, 0)
        if saved is None and check is not None and queue is not None:
            saved = _taken_over(queue, check)
        if saved is None:
            return
        if queue is None or max(saved.read_to, saved.oldest) > self._store.end:
            # Of another log: all that is in this one waits. The file must not be believed later either, when there is more.
            self._saved = saved
            return
        self._frontier = saved.frontier()
        self._read_to = saved.read_to
        self._next_offset = self._store.first_at_or_beyond(queue, saved.oldest)
        self._saved = saved
        self._progress = SafeProgress(saved)

    def _note_progress(self) -> None:
        oldest = self._waiting.oldest
        oldest = self._read_to if oldest is None else oldest
        self._progress.note(TimerProgress.of(oldest, self._read_to, self._frontier), self._store.end)

    async def settle(self) -> None:
        """Wait until all progress may be saved; to be called before saving."""
        if not self._progress.is_settled(self._store.synced):
            await self._appender.synced()

    @property
    def is_changed(self) -> bool:
        """Whether there is progress that no `snapshot_json` holds yet, and that no power loss can take back."""
        return self._progress.upto(self._store.synced) != self._saved

    def snapshot_json(self, now_ms: int) -> bytes:
        """The bytes of timers.json."""
        self._saved = self._progress.upto(self._store.synced)
        return self._saved.json()

    # telling

    def runtime_info(self) -> dict[str, str]:
        """What mqadmin shows: seconds that deliveries are late, messages not read yet, messages that wait, rates."""
        monotonic, next_ms = self._clock.monotonic(), self._waiting.next_ms
        due_ms = None if next_ms is None else next_ms + self._settings.now.timer.precision_ms
        late_s = 0 if due_ms is None else max(0, self._clock.now_ms() - due_ms) // 1000
        return {
            "timerReadBehind": str(late_s),
            "timerOffsetBehind": str(max(0, self._store.max_offset(TIMER_TOPIC, 0) - self._next_offset)),
            "timerCongestNum": str(len(self._waiting)),
            "timerEnqueueTps": str(self._enqueued.per_second(monotonic)),
            "timerDequeueTps": str(self._dequeued.per_second(monotonic)),
        }


def _taken_over(queue: ConsumeQueue, check: TimerCheck) -> TimerProgress:
    """RocketMQ's progress as ours: its queue offset is where reading stopped."""
    entry = queue.entry(check.queue_offset - 1) if check.queue_offset > queue.min_offset else None
    read_to = entry[0] + entry[1] if entry is not None and is_message(entry) else 0
    return TimerProgress.of(0, read_to, Frontier((Step(0, check.out_ms),)))
