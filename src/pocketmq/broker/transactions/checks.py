"""Check-backs: the broker asks producers about transactions that they did not decide (code 39).

    open half message ─┬─ younger than timeout_ms, or than its own limit ──► left
                       ├─ checked max_checks times, or older than retention ──► given up: TRANS_CHECK_MAX_TIME_TOPIC
                       │  (one that was never checked is checked first, if a producer is connected)
                       ├─ committed before the last start without an op message ──► closed
                       ├─ no producer of its group is connected ──► left, and not counted as a check
                       └─ else ──► copied to the end of the topic, counted ──► its producer is checked about the copy

A run handles everything that was old enough when it began, in steps of at most `max_run_ms`, with pauses of the same
length. Copies and check-backs are done in batches: one write, then all requests. A half message that is left stays
where it is. If too many half messages follow it, it is copied to the end as well, uncounted, to limit the memory of the
ledger.

If the wall clock is set back, half messages may be stored later than now. `HalfMessageAges` measures their age by the
monotonic clock:

    half topic    … stored by now │ stored later than now … │ end
                                  └ mark, 40 s ago ┘
                                  └ mark, 10 s ago ──────────┘

The store's time never goes back. So such half messages seem younger than new ones, and would not be checked until the
clock reaches its old value. Their age is counted from the first mark behind them: it is never too large, and too small
by less than one run of checks.
"""

import asyncio
import logging
from collections.abc import Callable
from enum import Enum, auto
from math import inf
from typing import Final, NamedTuple, Protocol

from pocketmq.broker.messages import Draft, StoredPosition
from pocketmq.broker.settings import TransactionSettings
from pocketmq.broker.state import BrokerState
from pocketmq.broker.transactions.decisions import Decisions, immunity_ms
from pocketmq.broker.transactions.half import Copies, check_request, given_up, message_at, renewed
from pocketmq.broker.transactions.ledger import Ledger
from pocketmq.errors import InvalidMessage, PocketMQError
from pocketmq.model import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, StoredMessage, checks_of, origin_of
from pocketmq.model import properties as names
from pocketmq.protocol.bodies.topics import TopicConfig
from pocketmq.protocol.command import Command

MAX_MARKS: Final = 64
"""Limit on marks. Above it, every other one is dropped: some half messages then seem younger than they are."""


class HalfMessageAges:
    """Marks of the ends of the half topic. Callers pass the monotonic time. Pure."""

    def __init__(self) -> None:
        self._marks: list[tuple[int, float]] = []

    def record(self, end: int, monotonic: float) -> None:
        if not self._marks or end > self._marks[-1][0]:
            self._marks.append((end, monotonic))
        if len(self._marks) > MAX_MARKS:
            del self._marks[::2]

    def clear(self) -> None:
        """The wall clock is correct again: ages need no marks."""
        self._marks.clear()

    def age_ms(self, offset: int, monotonic: float) -> int:
        """The known age of the half message at `offset`."""
        return next((round((monotonic - since) * 1000) for end, since in self._marks if offset < end), 0)

    def older_than(self, age_ms: int, monotonic: float) -> int:
        """The offset behind the half messages that are known to be this old; 0 if there are none."""
        old = (end for end, since in self._marks if round((monotonic - since) * 1000) >= age_ms)
        return max(old, default=0)


log = logging.getLogger("pocketmq.broker")

BATCH = 32
"""Half messages that are handled together."""
BATCH_BYTES = 256 * 1024
"""Size limit of a batch."""
MAX_SPAN = 4_000_000
"""Limit on half messages from the first open one to the newest. The ledger keeps a byte for each."""
_HOUR_MS = 3600 * 1000


class Verdict(Enum):
    LEAVE = auto()
    ASK = auto()
    GIVE_UP = auto()


def decide(
    half: StoredMessage, first_ms: int, now_ms: int, settings: TransactionSettings, retention_ms: float
) -> Verdict:
    """What to do with an open half message whose transaction was first stored at `first_ms`."""
    age_ms = now_ms - first_ms
    checks = checks_of(half)
    if checks >= settings.max_checks or age_ms > retention_ms:
        return Verdict.GIVE_UP
    patience_ms = settings.timeout_ms
    if checks == 0:
        patience_ms = max(patience_ms, immunity_ms(half) or 0)
    return Verdict.LEAVE if age_ms < patience_ms else Verdict.ASK


class ProducerPeer(Protocol):
    def oneway(self, command: Command) -> None: ...


FindProducer = Callable[[str, str], ProducerPeer | None]
"""The next available producer of a group, for a message of a topic; None if there is none."""


class _Task(NamedTuple):
    """An open half message, the draft that replaces it, and the producer to check."""

    half: StoredMessage
    draft: Draft
    producer: ProducerPeer | None = None


class Checks:
    """Checks transactions. Counts check-backs, transactions that were given up, and those without a producer in the
    last run.
    """

    def __init__(
        self,
        state: BrokerState,
        ledger: Ledger,
        copies: Copies,
        decisions: Decisions,
        find_producer: FindProducer,
        announce: Callable[[], None],
        *,
        max_span: int = MAX_SPAN,
    ) -> None:
        self._state = state
        self._ledger = ledger
        self._copies = copies
        self._decisions = decisions
        self._find_producer = find_producer
        self._announce = announce
        self._max_span = max_span
        self._ages = HalfMessageAges()
        self._unreachable: dict[str, int] = {}
        self._unreachable_logged: set[str] = set()
        self.checks_sent = 0
        self.given_up = 0

    @property
    def unreachable(self) -> int:
        """Transactions of the last run whose group had no producer to check."""
        return sum(self._unreachable.values())

    async def run(self) -> None:
        """Check all half messages that are old enough now."""
        settings = self._state.settings.now.transaction
        due = self._due_ranges(settings)
        self._unreachable = {}
        given_up_before = self.given_up
        began = self._state.clock.monotonic()
        for at, end in due:
            while at < end:
                at = self._step(at, end)
                took = self._state.clock.monotonic() - began
                if took * 1000 >= settings.max_run_ms:
                    await asyncio.sleep(took)
                    began = self._state.clock.monotonic()
        self._record_ages()
        self._ledger.advance()
        self._log_outcome(self.given_up - given_up_before)

    def _due_ranges(self, settings: TransactionSettings) -> tuple[tuple[int, int], tuple[int, int]]:
        """Offsets of half messages older than the timeout: by the wall clock, and those stored later than now."""
        old = self._state.store.offset_at_time(HALF_TOPIC, 0, self._state.clock.now_ms() - settings.timeout_ms + 1)
        old_later = self._ages.older_than(settings.timeout_ms, self._state.clock.monotonic())
        return (self._ledger.start, old), (self._future_start(), old_later)

    def _future_start(self) -> int:
        """The first half message that is stored later than now; the end, if the clock was not set back."""
        return max(self._ledger.start, self._state.store.offset_at_time(HALF_TOPIC, 0, self._state.clock.now_ms() + 1))

    def _record_ages(self) -> None:
        if self._future_start() < self._ledger.end:
            self._ages.record(self._ledger.end, self._state.clock.monotonic())
        else:
            self._ages.clear()

    def _step(self, at: int, end: int) -> int:
        """Handle the next few open half messages. Return the offset to continue at."""
        tasks: list[_Task] = []
        size = 0
        for _ in range(BATCH):
            at = self._ledger.next_open(at, end)
            if at >= end or size >= BATCH_BYTES:
                break
            half = message_at(self._state.store, HALF_TOPIC, at)
            if half is None:
                log.error("Half message %d is no longer in the log; its transaction is lost", at)
                self._ledger.forget(at)
            elif (task := self._task(half)) and self._is_still_open(half):
                tasks.append(task)
                size += half.size
            at += 1
        self._execute(tasks)
        return at

    def _task(self, half: StoredMessage) -> _Task | None:
        """What to do with an open half message; None to leave it."""
        now_ms = self._state.clock.now_ms()
        # While the wall clock is uncertain, no half message is too old.
        retention_ms = self._state.store.settings.retention_hours * _HOUR_MS if self._state.clock.settled_ms() else inf
        verdict = decide(half, self._first_ms(half, now_ms), now_ms, self._state.settings.now.transaction, retention_ms)
        may_ask = verdict is Verdict.ASK or (verdict is Verdict.GIVE_UP and not checks_of(half))
        producer = self._producer_of(half) if may_ask else None
        if producer is not None:
            return _Task(half, renewed(half, is_check=True), producer)
        if verdict is Verdict.GIVE_UP:
            return _Task(half, given_up(half))
        if self._ledger.end - half.queue_offset > self._max_span:
            return _Task(half, renewed(half, is_check=False))
        return None

    def _first_ms(self, half: StoredMessage, now_ms: int) -> int:
        """When the transaction of a half message was first stored."""
        origin = origin_of(half)
        first_ms = None if origin == half.queue_offset else self._state.store.store_ms(HALF_TOPIC, 0, origin)
        first_ms = first_ms or half.store_ms
        return first_ms if first_ms <= now_ms else now_ms - self._ages.age_ms(origin, self._state.clock.monotonic())

    def _producer_of(self, half: StoredMessage) -> ProducerPeer | None:
        group = half.properties.get(names.PRODUCER_GROUP, "")
        producer = self._find_producer(group, half.properties.get(names.REAL_TOPIC, ""))
        if producer is None:
            self._unreachable[group] = self._unreachable.get(group, 0) + 1
        return producer

    def _is_still_open(self, half: StoredMessage) -> bool:
        """A half message from before the last start may have been decided or copied without an op message."""
        if not self._decisions.is_from_before_start(half):
            return True
        copies = self._decisions.open_copies(half)
        if not copies or not self._copies.are_all_known:
            return False
        if any(copy.queue_offset > half.queue_offset for copy in copies):
            self._ledger.close((half.queue_offset,))
            return False
        return True

    def _execute(self, tasks: list[_Task]) -> None:
        """Store the drafts that replace these half messages, then send the check-backs."""
        if not tasks:
            return
        given_up_now = sum(task.draft.topic == CHECK_MAX_TIME_TOPIC for task in tasks)
        if given_up_now:
            self._ensure_topic()
        try:
            positions = self._ledger.close_with(
                [task.draft for task in tasks], [task.half.queue_offset for task in tasks]
            )
        except InvalidMessage as refusal:
            self._execute_one_by_one(tasks, refusal)
            return
        self.given_up += given_up_now
        for task, position in zip(tasks, positions, strict=True):
            if task.producer is not None:
                self._send_check(task.producer, task.half, position)

    def _execute_one_by_one(self, tasks: list[_Task], refusal: InvalidMessage) -> None:
        """One draft that cannot be stored must not block the others; its half message stays."""
        if len(tasks) == 1:
            log.error(
                "Cannot store half message %d again: %s; retrying at the next check",
                tasks[0].half.queue_offset,
                refusal,
            )
            return
        for task in tasks:
            self._execute([task])

    def _send_check(self, producer: ProducerPeer, half: StoredMessage, position: StoredPosition) -> None:
        try:
            producer.oneway(check_request(half, position, self._state.settings.now.broker_name))
            self.checks_sent += 1
        except PocketMQError as error:
            log.warning("Check-back of transaction %s failed: %s; retrying at the next check", half.message_id, error)

    def _ensure_topic(self) -> None:
        if CHECK_MAX_TIME_TOPIC not in self._state.topics:
            self._state.topics.ensure(TopicConfig(CHECK_MAX_TIME_TOPIC, 1, 1), self._state.clock.now_ms())
            self._announce()

    def _log_outcome(self, given_up_now: int) -> None:
        if given_up_now:
            log.warning(
                "Gave up %d undecided transactions; they are in %s and can be resumed",
                given_up_now,
                CHECK_MAX_TIME_TOPIC,
            )
        unreachable = set(self._unreachable)
        if new := sorted(unreachable - self._unreachable_logged):
            log.warning(
                "%d transactions wait: no producer of %d groups is connected, such as %s",
                self.unreachable,
                len(unreachable),
                ", ".join(new[:5]),
            )
        self._unreachable_logged = unreachable
