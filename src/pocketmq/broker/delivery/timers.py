"""Timers: delivers messages at a time of their own, recalls them, and stores them again before retention deletes them.

A message is due when its second is over: `now >= TIMER_OUT_MS + precision` by the wall clock. Everything readable is
read before anything is delivered, so that a recall is known before its message is delivered.

After a crash, messages that were delivered or rolled since timers.json was saved are delivered again; none is lost.
"""

from collections import deque
from typing import Final, Protocol

import msgspec

from pocketmq.broker.delivery.forwarding import (
    Delivery,
    ForwardLimits,
    Plan,
    SafeProgress,
    Skip,
    Topics,
    real_destination,
)
from pocketmq.broker.delivery.timer_progress import (
    Frontier,
    Step,
    TimerCheck,
    TimerProgress,
    TimerRequest,
    WaitingTimers,
    delivered_properties,
    read_timer_request,
    recall_key,
    recalls,
    rolled_properties,
)
from pocketmq.broker.messages import Appender, Forward
from pocketmq.broker.settings import SettingsInUse
from pocketmq.clock import Clock
from pocketmq.errors import InvalidMessage, QueueDamaged, StoreBusy, StoreFull
from pocketmq.model import TIMER_TOPIC
from pocketmq.store.message_store import MessageStore
from pocketmq.store.queues.consume_queue import ConsumeQueue, Entry, is_message, log_offset_of
from pocketmq.store.retention import HOUR_MS

WINDOW_S: Final = 10
STEP_S: Final = 1


class Rate:
    """A rate per second over the last ten seconds. Increase `count`, and call `tick` regularly."""

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
"""Records read between two time checks."""
ROLL_CHECK_S: Final = 60.0
LEAST_ROLL_AGE_MS: Final = 10 * 60_000


class TimerLimits(msgspec.Struct, frozen=True, kw_only=True):
    forwards: ForwardLimits = ForwardLimits()
    max_waiting: int = 10_000_000
    """Limit on waiting messages, ten bytes of memory each. Further timed messages are refused."""


class _Recalled(Skip):
    """A message that its producer recalled."""

    __slots__ = ()


class _Settled(Skip):
    """A record that is no longer needed."""

    __slots__ = ()


class Settled(Protocol):
    """Knows timed records that have become pointless; see `groups.leases`."""

    def is_over(self, record: int, /) -> bool:
        """Whether the record at this log offset is already pointless when it is read. If so, it does not wait."""

    def is_settled(self, record: int, /) -> bool:
        """Whether the record at this log offset is dropped. If not, it is delivered."""

    def dropped(self, record: int, /) -> None: ...


class _NothingSettled:
    def is_over(self, record: int, /) -> bool:
        return False

    def is_settled(self, record: int, /) -> bool:
        return False

    def dropped(self, record: int, /) -> None:
        raise AssertionError(f"record {record} was not settled")


class Timers(Delivery[TimerProgress]):
    """Delivers timed messages. Call `run_all` every 100 ms, and save the progress every second."""

    def __init__(
        self,
        store: MessageStore,
        appender: Appender,
        topics: Topics,
        settings: SettingsInUse,
        clock: Clock,
        limits: TimerLimits | None = None,
        settled: Settled | None = None,
    ) -> None:
        super().__init__(store, appender, topics, "timed messages", TimerProgress())
        self._settings = settings
        self._clock = clock
        self._settled: Settled = _NothingSettled() if settled is None else settled
        self._limits = limits or TimerLimits()
        self._waiting = WaitingTimers()
        self._recalled: dict[int, set[bytes]] = {}
        self._frontier = Frontier()
        self._next_offset = 0
        self._read_to = 0
        self._roll_check_at = 0.0
        self._roll_offset = 0
        self._enqueued, self._dequeued = Rate(), Rate()
        self.recalled = 0
        """Messages that were recalled before delivery."""
        self.rolled = 0
        """Messages that were stored again before retention deleted them."""
        store.hold_log(self._needed_from)

    def __len__(self) -> int:
        """The number of waiting messages."""
        return len(self._waiting)

    @property
    def delivered(self) -> int:
        return self._forwarder.forwarded - self.rolled

    def is_past(self, due_ms: int) -> bool:
        """Whether everything is delivered that was due at this time, and that is stored now."""
        next_ms = self._waiting.next_ms
        is_read = self._next_offset >= self._store.max_offset(TIMER_TOPIC, 0)
        return is_read and (next_ms is None or next_ms >= due_ms)

    # running

    def run(self) -> bool:
        """Read new messages, deliver due ones and roll old ones until the time limit. Return whether more may remain."""
        queue = self._store.find_queue(TIMER_TOPIC, 0)
        if queue is None:
            return False
        monotonic = self._clock.monotonic()
        self._enqueued.tick(monotonic)
        self._dequeued.tick(monotonic)
        stop_at = monotonic + self._limits.forwards.run_ms / 1000
        before = self._read_to, self._dequeued.count, self._roll_offset
        try:
            return not self._read(queue, stop_at) or self._deliver(stop_at) or self._roll(queue)
        except (StoreBusy, StoreFull, QueueDamaged) as error:
            self._forwarder.refused(error)
            return False
        finally:
            self._appender.timers_full = len(self._waiting) >= self._limits.max_waiting
            if before != (self._read_to, self._dequeued.count, self._roll_offset):
                self._record_progress()

    # reading

    def _read(self, queue: ConsumeQueue, stop_at: float) -> bool:
        """Read the timer topic from the last position. Return whether its end is reached."""
        # Retention may have deleted unread messages, and a lost log may have been longer.
        self._next_offset = min(max(self._next_offset, queue.min_offset), queue.max_offset)
        while self._next_offset < queue.max_offset:
            for entry in self._store.entries(queue, self._next_offset, READ_STEP):
                self._next_offset += 1
                self._add(entry)
            if self._clock.monotonic() >= stop_at:
                break
        return self._next_offset >= queue.max_offset

    def _add(self, entry: Entry) -> None:
        log_offset, size, _ = entry
        if self._settled.is_over(log_offset):
            self._read_to = max(self._read_to, log_offset + size)
            self._settled.dropped(log_offset)
            return
        request = self._request(entry)
        is_new = log_offset >= self._read_to
        if is_message(entry):
            self._read_to = max(self._read_to, log_offset + size)
        if isinstance(request, Skip):
            if is_new:
                self._forwarder.execute((request,))
            return
        if is_new:
            self._frontier.admit(request.out_ms, log_offset)
            self._enqueued.count += 1
        elif self._frontier.is_done(request.out_ms, log_offset):
            return
        self._waiting.add(request.out_ms, log_offset)
        if request.recalled is not None:
            self._recalled.setdefault(request.out_ms, set()).add(request.recalled)

    def _request(self, entry: Entry) -> TimerRequest | Skip:
        if not is_message(entry):
            return Skip(entry[0])
        record = self._store.record(entry[0])
        if record is None:
            return Skip(entry[0], "it is no longer in the log")
        try:
            return read_timer_request(record)
        except InvalidMessage as error:
            return Skip(entry[0], str(error))

    # delivering

    def _deliver(self, stop_at: float) -> bool:
        """Deliver due messages. Return whether more are due."""
        over_ms = self._clock.now_ms() - self._settings.now.timer.precision_ms
        while (out_ms := self._waiting.next_ms) is not None and out_ms <= over_ms:
            self._deliver_batch(out_ms)
            if self._clock.monotonic() >= stop_at:
                return True
        return False

    def _deliver_batch(self, out_ms: int) -> None:
        offsets = self._waiting.next_offsets(self._limits.forwards.batch_messages)
        recalled, plan = self._recalled.get(out_ms, ()), Plan(self._limits.forwards)
        for log_offset in offsets:
            is_rolled = self._waiting.is_rolled(log_offset)
            if not plan.add(Skip(log_offset) if is_rolled else self._forward(log_offset, recalled)):
                break
        count = self._forwarder.execute(plan.items)
        self._frontier.advance(out_ms, offsets[count - 1])
        self._waiting.remove(count)
        self._dequeued.count += count
        self.recalled += sum(isinstance(item, _Recalled) for item in plan.items[:count])
        self._drop_settled(plan.items[:count])
        if self._waiting.next_ms != out_ms:
            self._recalled.pop(out_ms, None)

    def _drop_settled(self, items: list[Forward | Skip]) -> None:
        for item in items:
            if isinstance(item, _Settled):
                self._settled.dropped(item.log_offset)

    def _forward(self, log_offset: int, recalled: "set[bytes] | tuple[()]") -> Forward | Skip:
        if self._settled.is_settled(log_offset):
            return _Settled(log_offset)
        message = self._forwarder.message(log_offset)
        if isinstance(message, Skip):
            return message
        if recalls(message.raw_properties):
            return Skip(log_offset)
        try:
            topic, queue_id = real_destination(message.raw_properties)
        except InvalidMessage as error:
            return Skip(log_offset, str(error))
        if recalled and recall_key(topic, message.raw_properties) in recalled:
            return _Recalled(log_offset)
        properties = delivered_properties(message, self._clock.now_ms(), self._settings.now.timer.precision_ms)
        return self._forwarder.skip_if_topic_deleted(message) or Forward(message, topic, queue_id, properties)

    # rolling

    def _roll(self, queue: ConsumeQueue) -> bool:
        """Store messages again that retention would delete before they are due. Return whether more remain. Checked
        once a minute.
        """
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
        count = min(self._limits.forwards.batch_messages, self._next_offset - self._roll_offset)
        entries = list(self._store.entries(queue, self._roll_offset, count))
        plan = Plan(self._limits.forwards)
        for entry in entries:
            item = self._rolled(entry)
            if item is None or not plan.add(item):
                break
        forwarded = self._forwarder.forwarded
        count = self._forwarder.execute(plan.items)
        self.rolled += self._forwarder.forwarded - forwarded
        self._roll_offset += count
        self._forget_rolled(plan.items[:count], entries[:count])

    def _forget_rolled(self, plan: list[Forward | Skip], entries: list[Entry]) -> None:
        """These entries are rolled: messages that still wait are stored after them."""
        for item in plan:
            if isinstance(item, Forward):
                self._waiting.roll(item.message.log_offset)
            elif isinstance(item, _Settled):
                self._waiting.roll(item.log_offset)
                self._settled.dropped(item.log_offset)
            elif item.why:
                self._waiting.roll(item.log_offset)
        end = max((entry[0] + entry[1] for entry in entries if is_message(entry)), default=0)
        self._frontier.forget_before(end)
        lost = self._waiting.forget_before(end)
        if lost:
            self._forwarder.lost(lost, f"records before log offset {end} can no longer be read")

    def _rolled(self, entry: Entry) -> Forward | Skip | None:
        """The outcome for an entry that may be old. None if it is not old yet."""
        request = self._request(entry)
        if isinstance(request, Skip) or not self._waiting.has(request.out_ms, entry[0]):
            return Skip(entry[0])
        message = self._forwarder.message(entry[0])
        if isinstance(message, Skip):
            return Skip(entry[0])
        if not self._is_old(message.store_ms):
            return None
        if self._settled.is_settled(entry[0]):
            return _Settled(entry[0])
        # The log offset of the new record no longer shows that its topic was deleted before.
        skip_if_topic_deleted = (
            None if recalls(message.raw_properties) else self._forwarder.skip_if_topic_deleted(message)
        )
        return skip_if_topic_deleted or Forward(
            message, TIMER_TOPIC, 0, rolled_properties(message, self._settings.now.timer.precision_ms)
        )

    # saving

    def _needed_from(self) -> int | None:
        """The log offset of the first message that waits or is unread. None if there is none.

        A message that was rolled or delivered counts as long as a power loss could remove its new record.
        """
        queue = self._store.find_queue(TIMER_TOPIC, 0)
        if queue is None:
            return None
        try:
            oldest = self._store.first_at_or_beyond(queue, self._progress.safe_at(self._store.synced).oldest)
            entry = self._store.entry(queue, oldest)
        except QueueDamaged:
            return self._store.facts.log_start  # keep the whole log until the queue is repaired
        return None if entry is None else log_offset_of(entry)

    def load(self, saved: TimerProgress | None, check: TimerCheck | None = None) -> None:
        """Continue at timers.json, or at RocketMQ's own timercheck if there is no timers.json."""
        queue = self._store.find_queue(TIMER_TOPIC, 0)
        if saved is None and check is not None and queue is not None:
            saved = _from_rocketmq(queue, check)
        if saved is None:
            return
        if queue is None or max(saved.read_to, saved.oldest) > self._store.end:
            # The file belongs to another log: everything in this one waits. It is overwritten with the next save.
            self._saved = saved
            return
        self._frontier = saved.frontier()
        self._read_to = saved.read_to
        self._next_offset = self._store.first_at_or_beyond(queue, saved.oldest)
        self._saved = saved
        self._progress = SafeProgress(saved)

    def check(self) -> TimerCheck:
        """The progress as RocketMQ describes it: what was read, and is due before a time, is delivered."""
        return TimerCheck(min(step.out_ms for step in self._frontier.steps), self._next_offset)

    def follow(self, check: TimerCheck) -> None:
        """On a slave: the master has delivered so far."""
        before = self._saved
        self.load(None, check)
        self._saved = before

    def _record_progress(self) -> None:
        oldest = self._waiting.oldest
        oldest = self._read_to if oldest is None else oldest
        self._progress.record(TimerProgress.of(oldest, self._read_to, self._frontier), self._store.end)

    def snapshot_json(self, now_ms: int) -> bytes:
        """The bytes of timers.json."""
        self._saved = self._progress.safe_at(self._store.synced)
        return self._saved.json()

    # reporting

    def runtime_info(self) -> dict[str, str]:
        """Values for mqadmin: delay of deliveries in seconds, unread messages, waiting messages, rates."""
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


def _from_rocketmq(queue: ConsumeQueue, check: TimerCheck) -> TimerProgress:
    """Convert RocketMQ's progress: it read up to its queue offset."""
    entry = queue.entry(check.queue_offset - 1) if check.queue_offset > queue.min_offset else None
    read_to = entry[0] + entry[1] if entry is not None and is_message(entry) else 0
    return TimerProgress.of(0, read_to, Frontier((Step(0, check.out_ms),)))
