"""Appending drafts: where a message goes first, and when it is stored.

    draft ── DELAY level above 0 ─────────────► SCHEDULE_TOPIC_XXXX, queue level - 1       REAL_TOPIC and REAL_QID say
          ├─ TIMER_* later than now ──────────► rmq_sys_wheel_timer, queue 0                where it goes afterwards
          └─ else ────────────────────────────► its own topic and queue

    stage … stage ── write ──► on disk, readable ── safe ──► synced, where that is asked for

A timed message waits for the second in which it is due to be over, so it is never early: TIMER_OUT_MS is the second before.
What waits in the broker's own topics already is never sent through them again, and what a timer has delivered never through a
timer: its TIMER_* properties, which it keeps, have been obeyed. A level counts before a time, and takes the time away.

Drafts: messages that the broker itself is about to store, and the places they got.

The send handler stages what clients send straight from their bytes. Whatever the broker rewrites on the way (delays, half
messages, retries, dead letters, what comes due) is a draft: its properties are a mapping, to be changed at will.

Addresses of peers as records keep them.
"""

import asyncio
import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final, NamedTuple

import msgspec

from pocketmq.broker.settings import SettingsInUse, TimerSettings
from pocketmq.clock import Clock
from pocketmq.errors import ImpossibleRequest, InvalidMessage, PocketMQError, StoreBusy, StoreFull, SystemBusy
from pocketmq.model import properties as names
from pocketmq.model.delay import DelayLevels, queue_of_level
from pocketmq.model.flags import SysFlag
from pocketmq.model.message import StoredMessage
from pocketmq.model.message_id import Host, offset_id
from pocketmq.model.names import (
    CHECK_MAX_TIME_TOPIC,
    HALF_TOPIC,
    OP_HALF_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TopicName,
    parse_topic,
)
from pocketmq.model.properties import format_properties
from pocketmq.net.address import Address
from pocketmq.store.message_store import MessageStore
from pocketmq.store.settings import FlushMode


class Draft(msgspec.Struct, kw_only=True):
    """A message before it is stored. `born_host` is packed, as records keep it."""

    topic: str
    queue_id: int
    body: bytes
    properties: dict[str, str]
    born_ms: int
    born_host: bytes
    flag: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0
    prepared_offset: int = 0
    stored_before: bool = False
    """Whether it is the copy of a message that the store has taken: it is not measured again."""

    @classmethod
    def of(cls, message: StoredMessage) -> "Draft":
        """A copy of a stored message, to be changed and stored again."""
        return cls(
            topic=message.topic,
            queue_id=message.queue_id,
            body=message.body,
            properties=dict(message.properties),
            born_ms=message.born_ms,
            born_host=message.packed_born_host,
            flag=message.flag,
            sys_flag=message.sys_flag,
            reconsume_times=message.reconsume_times,
            prepared_offset=message.prepared_offset,
            stored_before=True,
        )

    def packed_properties(self) -> bytes:
        return format_properties(self.properties).encode()


class Place(msgspec.Struct, frozen=True):
    """Where a message was stored. `queue_id` and `queue_offset` are of the queue that it lies in now."""

    queue_id: int
    queue_offset: int
    log_offset: int

    def message_id(self, store_host: bytes) -> str:
        return offset_id(store_host, self.log_offset)


WAITING_TOPICS: Final = frozenset({SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC, OP_HALF_TOPIC, CHECK_MAX_TIME_TOPIC})
"""Topics in which messages wait with the properties that say for how long."""
_WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)


class Move(NamedTuple):
    """A stored message that goes to another place with these properties; all else stays as it is."""

    message: StoredMessage
    topic: TopicName
    queue_id: int
    properties: bytes


class Appender:
    """Stores drafts. Not while a turn of sends is being staged: `Turns` ends that first."""

    def __init__(self, store: MessageStore, settings: SettingsInUse, clock: Clock) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock
        self._levels = store.settings.delay_levels
        self.timers_full = False
        """Too many timed messages wait: `Timers` says so, and no more are taken."""

    def append(self, draft: Draft) -> Place:
        """Store one message; readable when this returns, unless the disk is slow or there is a transient pool."""
        return self.append_all((draft,))[0]

    def append_all(self, drafts: Iterable[Draft]) -> list[Place]:
        """Store messages with one write, all or none."""
        with self._turn():
            return [self.stage(draft) for draft in drafts]

    def stage(self, draft: Draft) -> Place:
        """Put a message into the turn of the store; nothing is stored before the turn ends. May change the draft."""
        route(draft, self._clock.now_ms(), self._levels, self._settings.now.timer)
        if self.timers_full and draft.topic == TIMER_TOPIC and names.TIMER_DEL_UNIQKEY not in draft.properties:
            raise SystemBusy("timer message is under flow control: too many wait already; try again later")
        queue = self._store.queue(parse_topic(draft.topic), draft.queue_id)
        offsets = self._store.stage(
            queue,
            draft.body,
            draft.packed_properties(),
            draft.flag,
            draft.sys_flag,
            draft.born_ms,
            draft.born_host,
            draft.reconsume_times,
            draft.prepared_offset,
            draft.stored_before,
        )
        return Place(draft.queue_id, *offsets)

    def move_all(self, moves: Iterable[Move]) -> list[InvalidMessage | None]:
        """Store messages again elsewhere, with one write, whatever their properties ask for.

        Takes as many as the store takes now, in their order: for each of those None, or why it can never be stored there.
        When it takes none, or cannot write, its error is raised and nothing is stored.
        """
        outcomes: list[InvalidMessage | None] = []
        with self._turn():
            for move in moves:
                try:
                    self._stage_again(move)
                except InvalidMessage as refusal:
                    outcomes.append(refusal)
                except (StoreBusy, StoreFull):
                    if not outcomes:
                        raise
                    break
                else:
                    outcomes.append(None)
        return outcomes

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Ends a turn of the store; abandons it after any failure."""
        with ExitStack() as undo:
            undo.callback(self._store.abandon_turn)
            yield
            undo.pop_all()
        self._end_turn()

    def _end_turn(self) -> None:
        """Written when this returns; or as good as written, while a thread does it because the disk is slow."""
        began = self._clock.monotonic()
        if not self._store.end_turn():
            return
        took_s = self._clock.monotonic() - began
        if took_s >= self._store.settings.slow_write_ms / 1000:
            self._store.note_slow_write(took_s)

    def _stage_again(self, move: Move) -> None:
        message = move.message
        self._store.stage(
            self._store.queue(move.topic, move.queue_id),
            message.body,
            move.properties,
            message.flag,
            message.sys_flag,
            message.born_ms,
            message.packed_born_host,
            message.reconsume_times,
            stored_before=True,
        )

    async def safe(self) -> bool:
        """Whether all that was appended is in the log, and on the disk if the broker promises that; False when it takes too long.

        At once where nothing is promised and the disk is not slow.
        """
        if self._store.settings.flush is FlushMode.SYNC:
            return await self.synced()
        return self._store.busy_since is None or await self.written()

    async def written(self) -> bool:
        """Wait for the turn that a slow disk has, if it has one; False when that takes too long."""
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._store.when_free(lambda: None if written.done() else written.set_result(None))
        try:
            async with asyncio.timeout(self._store.settings.sync_timeout_ms / 1000):
                await written
        except TimeoutError:
            return False
        return True

    async def synced(self) -> bool:
        """Have all that was written synced; False when that fails or takes too long."""
        synced: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._store.when_synced(self._store.end, lambda done: None if synced.done() else synced.set_result(done))
        return await synced


def route(draft: Draft, now_ms: int, levels: DelayLevels, timer: TimerSettings) -> None:
    """Send a delayed or timed message to where it waits. InvalidMessage for a time that cannot be."""
    prepared = draft.sys_flag & SysFlag.TRANSACTION_MASK
    if draft.topic in WAITING_TOPICS or prepared not in (0, SysFlag.TRANSACTION_COMMIT):
        return
    level = _number(draft, names.DELAY) or 0
    if level > 0:
        _delay(draft, levels.clamp(level))
    elif names.TIMER_OUT_MS not in draft.properties:
        due_ms = due_time(draft, now_ms)
        if due_ms is not None:
            _time(draft, due_ms, now_ms, timer)


def due_time(draft: Draft, now_ms: int) -> int | None:
    """When a timed message asks to be delivered; None when it is not timed. Seconds count before milliseconds before a time."""
    if (seconds := _number(draft, names.TIMER_DELAY_SEC)) is not None:
        return now_ms + seconds * 1000
    if (wait_ms := _number(draft, names.TIMER_DELAY_MS)) is not None:
        return now_ms + wait_ms
    return _number(draft, names.TIMER_DELIVER_MS)


def _delay(draft: Draft, level: int) -> None:
    draft.properties[names.DELAY] = str(level)
    for name in names.TIMER_PROPERTIES:
        draft.properties.pop(name, None)
    _detour(draft, SCHEDULE_TOPIC, queue_of_level(level))


def _time(draft: Draft, due_ms: int, now_ms: int, timer: TimerSettings) -> None:
    if not timer.enabled:
        raise ImpossibleRequest("accurate timer message is not enabled: timerWheelEnable is off on this broker")
    if due_ms <= now_ms:
        if names.TIMER_DEL_UNIQKEY in draft.properties:
            raise InvalidMessage(f"a message that was due {now_ms - due_ms} ms ago cannot be recalled any more")
        return
    if due_ms - now_ms > timer.max_delay_s * 1000:
        raise InvalidMessage(
            f"the message is due in {(due_ms - now_ms) // 1000} s; a timed message may wait {timer.max_delay_s} s at most"
        )
    recalled, plus, _ = draft.properties.get(names.TIMER_DEL_UNIQKEY, "").partition("+")
    if plus and recalled != draft.topic:  # who may send to one topic may not take back what others sent to another
        raise InvalidMessage(f"a message of topic {draft.topic} cannot recall one of topic {recalled[:40]}")
    draft.properties[names.TIMER_OUT_MS] = str((due_ms - 1) // timer.precision_ms * timer.precision_ms)
    _detour(draft, TIMER_TOPIC, 0)


def _detour(draft: Draft, topic: str, queue_id: int) -> None:
    draft.properties[names.REAL_TOPIC] = draft.topic
    draft.properties[names.REAL_QUEUE_ID] = str(draft.queue_id)
    draft.topic, draft.queue_id = topic, queue_id


def _number(draft: Draft, name: str) -> int | None:
    text = draft.properties.get(name)
    if text is None:
        return None
    if not _WHOLE_NUMBER.fullmatch(text):
        raise InvalidMessage(f"property {name} = {text[:40]!r} is not a whole number")
    return int(text)


def packed_host(address: Address) -> bytes:
    """An address as records keep it. One that is none, as of a peer that is gone already, becomes 0.0.0.0."""
    host = address.host.partition("%")[0].removeprefix("::ffff:")
    try:
        return Host.parse(f"[{host}]:{address.port}" if ":" in host else f"{host}:{address.port}").packed()
    except PocketMQError:
        return Host(bytes(4), 0).packed()
