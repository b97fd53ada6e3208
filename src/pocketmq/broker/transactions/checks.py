"""Checks: asking producers about transactions that they did not decide (code 39).

    open half message ─┬─ younger than timeout_ms, or than it asks for itself ──► left
                       ├─ asked about max_checks times, or older than the log is kept ──► given up: TRANS_CHECK_MAX_TIME_TOPIC
                       │  (one that was never asked about is asked about first, if a producer is connected)
                       ├─ committed before the last start, not noted ──► noted
                       ├─ no producer of its group is connected ──► left, and not counted as a check
                       └─ else ──► copied to the end of the topic, counted ──► its producer is asked about the copy

A run goes once over what was old enough when it began, in steps of at most `max_run_ms`, with pauses as long as the steps. What is
stored and what is asked come in batches: one write, then all the questions.

By a wall clock that was set back, half messages may be stored later than now; `presence` knows how old they are.

What is left stays where it is. Only when so many half messages have come behind it that the ledger would need too much memory, it is
copied to the end as well, uncounted.

Since when half messages are there, by the clock that cannot be set.

    half topic    … stored by now │ stored later than now … │ end         the wall clock was set back
                                  └ mark, 40 s ago ┘
                                  └ mark, 10 s ago ──────────┘

The store's time never goes back. So after the wall clock was set back, half messages seem to be younger than those that are still
to come, and nobody would be asked about them until the clock is where it was. Their age is counted from the first mark behind
them: that is never too much, and too little by less than one run of checks.
"""

import asyncio
import logging
from collections.abc import Callable
from enum import Enum, auto
from math import inf
from typing import Final, NamedTuple, Protocol

from pocketmq.broker.messages.appending import Draft, StoredPosition
from pocketmq.broker.settings import SettingsInUse, TransactionSettings
from pocketmq.broker.topics import TopicTable
from pocketmq.broker.transactions.decisions import Decisions, immunity_ms
from pocketmq.broker.transactions.half import Copies, given_up, message_at, question, renewed
from pocketmq.broker.transactions.ledger import Ledger
from pocketmq.clock import Clock
from pocketmq.errors import InvalidMessage, PocketMQError
from pocketmq.model import properties as names
from pocketmq.model.message import StoredMessage
from pocketmq.model.names import CHECK_MAX_TIME_TOPIC, HALF_TOPIC
from pocketmq.model.transactions import checks_of, origin_of
from pocketmq.protocol.bodies.topics import TopicConfig
from pocketmq.protocol.command import Command
from pocketmq.store.message_store import MessageStore

MAX_MARKS: Final = 64
"""When there are more, every other one goes: what is not covered any more is taken to be younger than it is."""


class Presence:
    """Marks of where the half topic ended. Told the monotonic time. Pure."""

    def __init__(self) -> None:
        self._marks: list[tuple[int, float]] = []

    def note(self, end: int, monotonic: float) -> None:
        """The half messages before `end` are there."""
        if not self._marks or end > self._marks[-1][0]:
            self._marks.append((end, monotonic))
        if len(self._marks) > MAX_MARKS:
            del self._marks[::2]

    def clear(self) -> None:
        """The wall clock is right again: ages can be told without marks."""
        self._marks.clear()

    def age_ms(self, offset: int, monotonic: float) -> int:
        """For how long the half message at `offset` is known to be there."""
        return next((round((monotonic - since) * 1000) for end, since in self._marks if offset < end), 0)

    def older_than(self, age_ms: int, monotonic: float) -> int:
        """Where those end that are known to be there for so long; 0 when there are none."""
        old = (end for end, since in self._marks if round((monotonic - since) * 1000) >= age_ms)
        return max(old, default=0)


log = logging.getLogger("pocketmq.broker")

BATCH = 32
"""Half messages that are looked at together."""
BATCH_BYTES = 256 * 1024
"""A batch ends when it is so large."""
MAX_SPAN = 4_000_000
"""Half messages between the first that is open and the newest. The ledger keeps a byte for each."""
_HOUR_MS = 3600 * 1000


class Verdict(Enum):
    LEAVE = auto()
    ASK = auto()
    GIVE_UP = auto()


def judge(
    half: StoredMessage, first_ms: int, now_ms: int, settings: TransactionSettings, retention_ms: float
) -> Verdict:
    """What becomes of an open half message whose transaction was first stored at `first_ms`."""
    age_ms = now_ms - first_ms
    checks = checks_of(half)
    if checks >= settings.max_checks or age_ms > retention_ms:
        return Verdict.GIVE_UP
    patience_ms = settings.timeout_ms
    if checks == 0:
        patience_ms = max(patience_ms, immunity_ms(half) or 0)
    return Verdict.LEAVE if age_ms < patience_ms else Verdict.ASK


class Asked(Protocol):
    """The line to a producer."""

    def oneway(self, command: Command) -> None: ...


FindProducer = Callable[[str, str], Asked | None]
"""A producer of a group that can be asked now about a message of a topic, each in its turn; None when there is none."""


class _Task(NamedTuple):
    """An open half message, what takes its place, and who is then asked about that."""

    half: StoredMessage
    draft: Draft
    producer: Asked | None = None


class Checks:
    """Asks. Counts questions, transactions that were given up, and those for which nobody was there in the last run."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicTable,
        ledger: Ledger,
        copies: Copies,
        decisions: Decisions,
        find_producer: FindProducer,
        settings: SettingsInUse,
        clock: Clock,
        announce: Callable[[], None],
        *,
        max_span: int = MAX_SPAN,
    ) -> None:
        self._store = store
        self._topics = topics
        self._ledger = ledger
        self._copies = copies
        self._decisions = decisions
        self._find_producer = find_producer
        self._settings = settings
        self._clock = clock
        self._announce = announce
        self._max_span = max_span
        self._presence = Presence()
        self._silent: dict[str, int] = {}
        self._silent_told: set[str] = set()
        self.asked = 0
        self.given_up = 0

    @property
    def unasked(self) -> int:
        """Transactions of the last run, or of the one under way, whose group had no producer to ask."""
        return sum(self._silent.values())

    async def run(self) -> None:
        """Look at everything that is old enough now."""
        settings = self._settings.now.transaction
        old_enough = self._old_enough(settings)
        self._silent = {}
        given_up_before = self.given_up
        began = self._clock.monotonic()
        for at, end in old_enough:
            while at < end:
                at = self._step(at, end)
                took = self._clock.monotonic() - began
                if took * 1000 >= settings.max_run_ms:
                    await asyncio.sleep(took)
                    began = self._clock.monotonic()
        self._note_presence()
        self._ledger.advance()
        self._tell(self.given_up - given_up_before)

    def _old_enough(self, settings: TransactionSettings) -> tuple[tuple[int, int], tuple[int, int]]:
        """From where to where half messages are older than the timeout: by the wall clock, and of those stored later than now."""
        old = self._store.offset_at_time(HALF_TOPIC, 0, self._clock.now_ms() - settings.timeout_ms + 1)
        old_later = self._presence.older_than(settings.timeout_ms, self._clock.monotonic())
        return (self._ledger.start, old), (self._stored_later(), old_later)

    def _stored_later(self) -> int:
        """Where the half messages begin that are stored later than now; there are none where the clock was not set back."""
        return max(self._ledger.start, self._store.offset_at_time(HALF_TOPIC, 0, self._clock.now_ms() + 1))

    def _note_presence(self) -> None:
        if self._stored_later() < self._ledger.end:
            self._presence.note(self._ledger.end, self._clock.monotonic())
        else:
            self._presence.clear()

    def _step(self, at: int, end: int) -> int:
        """Do what is due with the next few that are open; where to go on."""
        tasks: list[_Task] = []
        size = 0
        for _ in range(BATCH):
            at = self._ledger.next_open(at, end)
            if at >= end or size >= BATCH_BYTES:
                break
            half = message_at(self._store, HALF_TOPIC, at)
            if half is None:
                log.error("the half message at %d is not in the log any more: its transaction is lost", at)
                self._ledger.forget(at)
            elif (task := self._task(half)) and self._is_open_indeed(half):
                tasks.append(task)
                size += half.size
            at += 1
        self._carry_out(tasks)
        return at

    def _task(self, half: StoredMessage) -> _Task | None:
        """What to do with an open half message; None to leave it where it is."""
        now_ms = self._clock.now_ms()
        # While the date is not certain, no half message is too old.
        retention_ms = self._store.settings.retention_hours * _HOUR_MS if self._clock.settled_ms() else inf
        verdict = judge(half, self._first_ms(half, now_ms), now_ms, self._settings.now.transaction, retention_ms)
        may_ask = verdict is Verdict.ASK or (verdict is Verdict.GIVE_UP and not checks_of(half))
        producer = self._producer_of(half) if may_ask else None
        if producer is not None:
            return _Task(half, renewed(half, asked=True), producer)
        if verdict is Verdict.GIVE_UP:
            return _Task(half, given_up(half))
        if self._ledger.end - half.queue_offset > self._max_span:
            return _Task(half, renewed(half, asked=False))
        return None

    def _first_ms(self, half: StoredMessage, now_ms: int) -> int:
        """When the transaction of a half message was first stored."""
        origin = origin_of(half)
        first_ms = None if origin == half.queue_offset else self._store.store_ms(HALF_TOPIC, 0, origin)
        first_ms = first_ms or half.store_ms
        return first_ms if first_ms <= now_ms else now_ms - self._presence.age_ms(origin, self._clock.monotonic())

    def _producer_of(self, half: StoredMessage) -> Asked | None:
        group = half.properties.get(names.PRODUCER_GROUP, "")
        producer = self._find_producer(group, half.properties.get(names.REAL_TOPIC, ""))
        if producer is None:
            self._silent[group] = self._silent.get(group, 0) + 1
        return producer

    def _is_open_indeed(self, half: StoredMessage) -> bool:
        """One from before the last start may have been decided, or copied, without a note of it: look for that first."""
        if not self._decisions.is_from_before(half):
            return True
        copies = self._decisions.open_copies(half)
        if not copies or not self._copies.are_all_known:
            return False
        if any(copy.queue_offset > half.queue_offset for copy in copies):
            self._ledger.close((half.queue_offset,))
            return False
        return True

    def _carry_out(self, tasks: list[_Task]) -> None:
        """Store what takes the place of these half messages, then ask."""
        if not tasks:
            return
        given_up_now = sum(task.draft.topic == CHECK_MAX_TIME_TOPIC for task in tasks)
        if given_up_now:
            self._ensure_topic()
        try:
            places = self._ledger.close_with([task.draft for task in tasks], [task.half.queue_offset for task in tasks])
        except InvalidMessage as refusal:
            self._carry_out_singly(tasks, refusal)
            return
        self.given_up += given_up_now
        for task, place in zip(tasks, places, strict=True):
            if task.producer is not None:
                self._ask(task.producer, task.half, place)

    def _carry_out_singly(self, tasks: list[_Task], refusal: InvalidMessage) -> None:
        """One that cannot be stored again must not keep the others from it; it stays where it is."""
        if len(tasks) == 1:
            log.error("the half message at %d cannot be stored again: %s", tasks[0].half.queue_offset, refusal)
            return
        for task in tasks:
            self._carry_out([task])

    def _ask(self, producer: Asked, half: StoredMessage, place: StoredPosition) -> None:
        try:
            producer.oneway(question(half, place, self._settings.now.broker_name))
            self.asked += 1
        except PocketMQError as error:
            log.warning("the producer of transaction %s could not be asked: %s", half.message_id, error)

    def _ensure_topic(self) -> None:
        if CHECK_MAX_TIME_TOPIC not in self._topics:
            self._topics.ensure(TopicConfig(CHECK_MAX_TIME_TOPIC, 1, 1), self._clock.now_ms())
            self._announce()

    def _tell(self, given_up_now: int) -> None:
        if given_up_now:
            log.warning(
                "%d transactions were given up: nobody decided them. They are in %s, and can be resumed",
                given_up_now,
                CHECK_MAX_TIME_TOPIC,
            )
        silent = set(self._silent)
        if new := sorted(silent - self._silent_told):
            log.warning(
                "%d transactions wait for producers of %d groups that are not connected, %s among them",
                self.unasked,
                len(silent),
                ", ".join(new[:5]),
            )
        self._silent_told = silent
