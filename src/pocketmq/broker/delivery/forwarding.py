"""Moving: messages that waited in a topic of the broker go on to their own. What `delays` and `timers` share.

    waiting record ── REAL_TOPIC, REAL_QID ──► Move ──────┐
                  └── no place, damaged ──────► Nothing ──┴─► a plan ──► one write ──► so many of its items are done with

    progress ── noted with where the log ended ──► may be saved, once the log is synced up to there

A saved progress must never rely on records that a power loss could take back: their originals would count as done.

A topic that was deleted while a message waited is no place: the message would bring it back. Apache stores it there where nobody can read it,
unless the topic is made again; one that is there again when the message is due gets it here, too.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from pocketmq.broker.messages.appending import WAITING_TOPICS, Appender, Move
from pocketmq.errors import InvalidMessage, InvalidName, StoreDamaged, StoreError
from pocketmq.model import properties as names
from pocketmq.model.message import StoredMessage
from pocketmq.model.names import TopicName, parse_topic
from pocketmq.model.properties import raw_property
from pocketmq.store.message_store import MessageStore
from pocketmq.store.settings import MIB

log = logging.getLogger("pocketmq.broker")

_REAL_TOPIC: Final = names.REAL_TOPIC.encode()
_REAL_QUEUE_ID: Final = names.REAL_QUEUE_ID.encode()

P = TypeVar("P")


class ForwardLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much is moved at a time, so that a million messages that are due at once keep nobody waiting."""

    run_ms: int = 10
    """How long one run may keep the broker from other work; a write that has begun is ended."""
    batch_messages: int = 256
    batch_bytes: int = MIB
    """What one write may have, or one message that is larger."""


class Nothing(NamedTuple):
    """A waiting record that is not moved. `why` is empty where that is as it should be."""

    log_offset: int
    why: str = ""


class Plan:
    """Waiting records in their order, and what becomes of each: as much as one write may have."""

    __slots__ = ("_room", "items")

    def __init__(self, limits: ForwardLimits) -> None:
        self.items: list[Move | Nothing] = []
        self._room = limits.batch_bytes

    def add(self, item: Move | Nothing) -> bool:
        """False when there is no room for it. There always is for the first."""
        if isinstance(item, Move):
            self._room -= item.message.size
        if self._room < 0 and self.items:
            return False
        self.items.append(item)
        return True


class Topics(Protocol):
    """Those that there are; see `topics.TopicTable`."""

    def __contains__(self, topic: str, /) -> bool: ...


class Forwarder:
    """Carries out plans. Counts what it moved and what it had to pass over."""

    def __init__(self, store: MessageStore, appender: Appender, topics: Topics, what: str) -> None:
        self._store = store
        self._appender = appender
        self._topics = topics
        self._what = what
        self._refused = False
        self.moved = 0
        self.passed_over = 0

    def message(self, log_offset: int) -> StoredMessage | Nothing:
        """The waiting message at `log_offset`, or why there is none."""
        try:
            message = self._store.message(log_offset)
        except StoreDamaged as damage:
            return Nothing(log_offset, str(damage))
        return Nothing(log_offset, "it is not in the log any more") if message is None else message

    def homeless(self, message: StoredMessage) -> Nothing | None:
        """Why a waiting message has no place any more; None when it has one, or was never meant for one."""
        topic = (raw_property(message.raw_properties, _REAL_TOPIC) or b"").decode(errors="replace")
        if topic in self._topics or not self._store.was_deleted(topic, message.log_offset):
            return None
        return Nothing(message.log_offset, f"its topic {topic} was deleted while it waited")

    def carry_out(self, plan: Iterable[Move | Nothing]) -> int:
        """Store what is to be moved, with one write; how many items of the plan are done with, from its beginning.

        Fewer than all when the store takes no more for now; it raises StoreBusy or StoreFull when it takes none.
        """
        plan = tuple(plan)
        moves = [item for item in plan if isinstance(item, Move)]
        outcomes = iter(self._appender.move_all(moves) if moves else ())
        if moves and self._refused:
            self._refused = False
            log.info("%s go on: the store takes messages again", self._what)
        for index, item in enumerate(plan):
            if isinstance(item, Move):
                try:
                    refusal = next(outcomes)
                except StopIteration:
                    return index
                self._count(item, refusal)
            elif item.why:
                self._pass_over(item.log_offset, item.why)
        return len(plan)

    def refused(self, error: StoreError) -> None:
        """The store takes nothing now, or a queue is being repaired; that is logged once, unless it is the wait for a slow disk."""
        if not self._refused and self._store.busy_since is None:
            self._refused = True
            log.warning("%s wait for the store, nothing is lost: %s", self._what, error)

    def _count(self, move: Move, refusal: InvalidMessage | None) -> None:
        if refusal is None:
            self.moved += 1
        else:
            self._pass_over(move.message.log_offset, f"it cannot be stored in topic {move.topic}: {refusal}")

    def lost(self, count: int, why: str) -> None:
        """So many messages that waited are gone."""
        self.passed_over += count
        log.error("%s: %d are lost: %s", self._what, count, why)

    def _pass_over(self, log_offset: int, why: str) -> None:
        self.passed_over += 1
        if self.passed_over & (self.passed_over - 1) == 0:  # 1, 2, 4, 8 …: a flood of them does not flood the log
            log.error(
                "%s: the message at log offset %d is passed over (%d so far): %s",
                self._what,
                log_offset,
                self.passed_over,
                why,
            )


async def run_out(run: Callable[[], bool]) -> None:
    """Run until there is no more to do, letting others work in between."""
    more = run()
    while more:
        await asyncio.sleep(0)
        more = run()


def real_place(raw_properties: bytes) -> tuple[TopicName, int]:
    """The topic and queue that a waiting message belongs to; InvalidMessage when it does not say, or may not go there."""
    topic, queue_id = raw_property(raw_properties, _REAL_TOPIC), raw_property(raw_properties, _REAL_QUEUE_ID)
    if topic is None or queue_id is None:
        raise InvalidMessage(f"it does not say by {names.REAL_TOPIC} and {names.REAL_QUEUE_ID} where it belongs")
    if not queue_id.isdigit() or len(queue_id) > 10:
        raise InvalidMessage(f"{names.REAL_QUEUE_ID} = {queue_id[:40]!r} is not a queue")
    try:
        name = parse_topic(topic.decode())
    except (InvalidName, UnicodeDecodeError) as error:
        raise InvalidMessage(f"{names.REAL_TOPIC} is not a topic: {error}") from None
    if name in WAITING_TOPICS:
        raise InvalidMessage(f"{names.REAL_TOPIC} is {name}, which belongs to the broker itself")
    return name, int(queue_id)


class SafeProgress(Generic[P]):
    """What may be saved of a progress. At most two later states are kept, however often it is noted."""

    def __init__(self, saved: P) -> None:
        self._safe = saved
        self._awaited: tuple[P, int] | None = None
        self._newest: tuple[P, int] | None = None

    def note(self, progress: P, log_end: int) -> None:
        """This is the progress now; it relies on the log up to `log_end`."""
        self._newest = progress, log_end
        if self._awaited is None:
            self._awaited = self._newest

    def upto(self, synced: int) -> P:
        """The latest state that is known to rely on nothing behind `synced`."""
        while self._awaited is not None and self._awaited[1] <= synced:
            self._safe = self._awaited[0]
            self._awaited = None if self._newest is self._awaited else self._newest
        return self._safe

    def is_settled(self, synced: int) -> bool:
        """Whether the newest state may be saved."""
        self.upto(synced)
        return self._awaited is None
