"""Forwarding: sends waiting messages on to their own topics. Shared by `delays` and `timers`.

    waiting record ── REAL_TOPIC, REAL_QID ─────► Forward ──┐
                  └── no destination, damaged ──► Skip ─────┴─► a plan ──► one write ──► number of finished items

    progress ── recorded with the end of the log ──► may be saved once the log is synced up to that end

A saved progress must not rely on records that a power loss could remove: their originals would count as delivered.

If a topic was deleted while a message waited, the message is not delivered: it would create the topic again. Apache
RocketMQ stores it where no consumer can read it. If the topic exists again when the message is due, it is delivered.
"""

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Iterable
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from pocketmq.broker.messages import WAITING_TOPICS, Appender, Forward
from pocketmq.errors import InvalidMessage, InvalidName, StoreDamaged, StoreError
from pocketmq.model import StoredMessage, TopicName, parse_topic
from pocketmq.model import properties as names
from pocketmq.model.properties import raw_property
from pocketmq.store.message_store import MessageStore
from pocketmq.store.settings import MIB

log = logging.getLogger("pocketmq.broker")

_REAL_TOPIC: Final = names.REAL_TOPIC.encode()
_REAL_QUEUE_ID: Final = names.REAL_QUEUE_ID.encode()

P = TypeVar("P")


class ForwardLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much is forwarded at a time, so that a million messages that are due at once do not block other requests."""

    run_ms: int = 10
    """Time limit of one run. A write that has begun is finished."""
    batch_messages: int = 256
    batch_bytes: int = MIB
    """Size limit of one write, unless a single message is larger."""


class Skip(NamedTuple):
    """A waiting record that is not forwarded. `why` is empty if that is expected."""

    log_offset: int
    why: str = ""


class Plan:
    """Waiting records in order, each with its outcome: as many as one write may contain."""

    __slots__ = ("_bytes_left", "items")

    def __init__(self, limits: ForwardLimits) -> None:
        self.items: list[Forward | Skip] = []
        self._bytes_left = limits.batch_bytes

    def add(self, item: Forward | Skip) -> bool:
        """Return False if the item exceeds the size limit. The first item always fits."""
        if isinstance(item, Forward):
            self._bytes_left -= item.message.size
        if self._bytes_left < 0 and self.items:
            return False
        self.items.append(item)
        return True


class Topics(Protocol):
    """The topics that exist; see `topics.TopicTable`."""

    def __contains__(self, topic: str, /) -> bool: ...


class Forwarder:
    """Executes plans. Counts forwarded and undeliverable messages."""

    def __init__(self, store: MessageStore, appender: Appender, topics: Topics, what: str) -> None:
        self._store = store
        self._appender = appender
        self._topics = topics
        self._what = what
        self._refused = False
        self.forwarded = 0
        self.undeliverable = 0

    def message(self, log_offset: int) -> StoredMessage | Skip:
        """The waiting message at `log_offset`, or the reason why there is none."""
        try:
            message = self._store.message(log_offset)
        except StoreDamaged as damage:
            return Skip(log_offset, str(damage))
        return Skip(log_offset, "it is no longer in the log") if message is None else message

    def skip_if_topic_deleted(self, message: StoredMessage) -> Skip | None:
        """A `Skip` if the topic of a waiting message was deleted after the message was stored."""
        topic = (raw_property(message.raw_properties, _REAL_TOPIC) or b"").decode(errors="replace")
        if topic in self._topics or not self._store.was_deleted(topic, message.log_offset):
            return None
        return Skip(message.log_offset, f"its topic {topic} was deleted while it waited")

    def execute(self, plan: Iterable[Forward | Skip]) -> int:
        """Store the forwarded messages with one write. Return how many items of the plan are finished, from its beginning.

        Fewer than all if the store accepts no more for now. StoreBusy or StoreFull if it accepts none.
        """
        plan = tuple(plan)
        forwards = [item for item in plan if isinstance(item, Forward)]
        outcomes = iter(self._appender.forward_all(forwards) if forwards else ())
        if forwards and self._refused:
            self._refused = False
            log.info("Delivery of %s continues: the store accepts writes again", self._what)
        for index, item in enumerate(plan):
            if isinstance(item, Forward):
                try:
                    refusal = next(outcomes)
                except StopIteration:
                    return index
                self._count(item, refusal)
            elif item.why:
                self._report_undeliverable(item.log_offset, item.why)
        return len(plan)

    def refused(self, error: StoreError) -> None:
        """The store accepts no write now, or a queue is being repaired. Logged once, and not for a slow disk."""
        if not self._refused and self._store.busy_since is None:
            self._refused = True
            log.warning("Delivery of %s is paused and will be retried: %s", self._what, error)

    def _count(self, forward: Forward, refusal: InvalidMessage | None) -> None:
        if refusal is None:
            self.forwarded += 1
        else:
            self._report_undeliverable(
                forward.message.log_offset, f"it cannot be stored in topic {forward.topic}: {refusal}"
            )

    def lost(self, count: int, why: str) -> None:
        self.undeliverable += count
        log.error("%d %s are lost: %s", count, self._what, why)

    def _report_undeliverable(self, log_offset: int, why: str) -> None:
        self.undeliverable += 1
        if self.undeliverable & (self.undeliverable - 1) == 0:  # log the 1st, 2nd, 4th, 8th … only
            log.error(
                "Cannot deliver the message at log offset %d (%s, %d undeliverable so far): %s",
                log_offset,
                self._what,
                self.undeliverable,
                why,
            )


def real_destination(raw_properties: bytes) -> tuple[TopicName, int]:
    """The topic and queue of a waiting message. InvalidMessage if they are missing or not allowed."""
    topic, queue_id = raw_property(raw_properties, _REAL_TOPIC), raw_property(raw_properties, _REAL_QUEUE_ID)
    if topic is None or queue_id is None:
        raise InvalidMessage(f"it has no destination ({names.REAL_TOPIC} and {names.REAL_QUEUE_ID})")
    if not queue_id.isdigit() or len(queue_id) > 10:
        raise InvalidMessage(f"{names.REAL_QUEUE_ID} = {queue_id[:40]!r} is not a queue id")
    try:
        name = parse_topic(topic.decode())
    except (InvalidName, UnicodeDecodeError) as error:
        raise InvalidMessage(f"{names.REAL_TOPIC} is not a topic name: {error}") from None
    if name in WAITING_TOPICS:
        raise InvalidMessage(f"{names.REAL_TOPIC} is {name}, which is a topic of the broker itself")
    return name, int(queue_id)


class SafeProgress(Generic[P]):
    """The newest progress that may be saved. Keeps at most two later states."""

    def __init__(self, saved: P) -> None:
        self._safe = saved
        self._awaited: tuple[P, int] | None = None
        self._newest: tuple[P, int] | None = None

    def record(self, progress: P, log_end: int) -> None:
        """Record the current progress, which relies on the log up to `log_end`."""
        self._newest = progress, log_end
        if self._awaited is None:
            self._awaited = self._newest

    def safe_at(self, synced: int) -> P:
        """The newest state that relies on nothing beyond the log offset `synced`."""
        while self._awaited is not None and self._awaited[1] <= synced:
            self._safe = self._awaited[0]
            self._awaited = None if self._newest is self._awaited else self._newest
        return self._safe

    def is_settled(self, synced: int) -> bool:
        """Whether the newest state may be saved."""
        self.safe_at(synced)
        return self._awaited is None


class Delivery(Generic[P]):
    """What `Delays` and `Timers` share: they run in steps, and save a progress P that no power loss makes wrong."""

    def __init__(self, store: MessageStore, appender: Appender, topics: Topics, what: str, saved: P) -> None:
        self._store = store
        self._appender = appender
        self._forwarder = Forwarder(store, appender, topics, what)
        self._saved = saved
        self._progress = SafeProgress(saved)

    @property
    def undeliverable(self) -> int:
        """Messages that could not be delivered. Each is logged."""
        return self._forwarder.undeliverable

    @abstractmethod
    def run(self) -> bool:
        """Deliver messages until the time limit. Return whether more may be due."""

    async def run_all(self) -> None:
        """Deliver all messages that are due, yielding to other tasks in between."""
        more = self.run()
        while more:
            await asyncio.sleep(0)
            more = self.run()

    async def settle(self) -> None:
        """Wait until the newest progress may be saved. Call this before saving."""
        if not self._progress.is_settled(self._store.synced):
            await self._appender.synced()

    @property
    def is_changed(self) -> bool:
        """Whether there is safe progress that no `snapshot_json` contains yet."""
        return self._progress.safe_at(self._store.synced) != self._saved
