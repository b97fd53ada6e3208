"""Messages on their way into the store: may a client send to this topic, and where does a message go first?

`Destinations` checks sends of clients, in RocketMQ's order:

    broker writable? ── valid name? ── not a topic of the broker? ── known, or created from its template? ── the queue

`Appender` stores messages that the broker writes itself, each in the topic where it goes first:

    draft ── DELAY level above 0 ─────────────► SCHEDULE_TOPIC_XXXX, queue level - 1       REAL_TOPIC and REAL_QID hold
          ├─ TIMER_* later than now ──────────► rmq_sys_wheel_timer, queue 0                the final destination
          └─ else ────────────────────────────► its own topic and queue

    stage … stage ── write ──► on disk, readable ── safe ──► synced, if the broker promises that

A timed message waits until its second is over, so it is never early: TIMER_OUT_MS is the second before. Messages that
already wait in a topic of the broker are not sent through it again. A message that a timer has delivered keeps its
TIMER_* properties, and they are ignored from then on. A delay level takes precedence over a time, and removes it.

The send handler stages messages of clients directly from their bytes. Messages that the broker rewrites (delayed,
transactional, retried, dead or due) are drafts: their properties are a mapping that may be changed.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol

import msgspec

from pocketmq.broker.reads.replicas import Replicas
from pocketmq.broker.settings import SettingsInUse, TimerSettings
from pocketmq.clock import Clock
from pocketmq.codes import ResponseCode, SysFlag
from pocketmq.errors import (
    FlushSlaveTimeout,
    ImpossibleRequest,
    InvalidMessage,
    PocketMQError,
    SlaveNotAvailable,
    StoreBusy,
    StoreFull,
    SystemBusy,
)
from pocketmq.model import (
    CHECK_MAX_TIME_TOPIC,
    HALF_TOPIC,
    OP_HALF_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    DelayLevels,
    Host,
    StoredMessage,
    TopicName,
    offset_id,
    parse_topic,
    queue_of_level,
)
from pocketmq.model import properties as names
from pocketmq.model.properties import format_properties
from pocketmq.net import Address
from pocketmq.store.message_store import MessageStore
from pocketmq.store.settings import FlushMode

log = logging.getLogger("pocketmq.broker")


class Draft(msgspec.Struct, kw_only=True):
    """A message before it is stored. `born_host` is packed as in records."""

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
    """Whether it is a copy of a stored message, whose size is not checked again."""

    @classmethod
    def of(cls, message: StoredMessage) -> "Draft":
        """A copy of a stored message, which may be changed and stored again."""
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


class StoredPosition(msgspec.Struct, frozen=True):
    """Where a message was stored: the queue that contains it now, its queue offset and its log offset."""

    queue_id: int
    queue_offset: int
    log_offset: int

    def message_id(self, store_host: bytes) -> str:
        return offset_id(store_host, self.log_offset)


WAITING_TOPICS: Final = frozenset({SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC, OP_HALF_TOPIC, CHECK_MAX_TIME_TOPIC})
"""Topics in which messages wait, with properties that hold the waiting time."""
_RELATIVE: Final = frozenset({names.TIMER_DELAY_SEC, names.TIMER_DELAY_MS})
_WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)


class Forward(NamedTuple):
    """A stored message that is stored again in another queue with these properties; everything else stays."""

    message: StoredMessage
    topic: TopicName
    queue_id: int
    properties: bytes


class Effect(Protocol):
    """What follows from staged messages: one of its methods is called when their turn ends, once more if it fails."""

    def stored(self) -> None: ...

    def failed(self) -> None: ...


class Appender:
    """Stores drafts. Do not append while a turn of requests is staged: `Turns` ends that turn first."""

    def __init__(
        self, store: MessageStore, settings: SettingsInUse, clock: Clock, replicas: Replicas | None = None
    ) -> None:
        self._store = store
        self._replicas = replicas
        self._settings = settings
        self._clock = clock
        self._levels = store.settings.delay_levels
        self.timers_full = False
        """Whether timed messages are refused because too many wait; set by `Timers`."""
        self.effects: list[Effect] = []
        """What follows from this turn."""

    def append(self, draft: Draft) -> StoredPosition:
        """Store one message. It is readable on return, unless the disk is slow or a transient pool is used."""
        return self.append_all((draft,))[0]

    def append_all(self, drafts: Iterable[Draft]) -> list[StoredPosition]:
        """Store all messages with one write, or none."""
        try:
            positions = [self.stage(draft) for draft in drafts]
        except BaseException:
            self.abandon_turn()
            raise
        self._end_turn()
        return positions

    # turns

    def follow(self, effect: Effect) -> None:
        """This follows from what is staged."""
        self.effects.append(effect)

    def take_effects(self) -> Callable[[bool], None]:
        """For the caller that ends the turn, and then calls this with whether it is stored."""
        settle = partial(_settle, self.effects)
        self.effects = []
        return settle

    def abandon_turn(self) -> None:
        """Drop all that is staged."""
        self._store.abandon_turn()
        self.take_effects()(False)

    def all_or_none(self) -> "_AllOrNone":
        """For a `with` block: an error in it takes back what the block staged; the rest of the turn stays."""
        return _AllOrNone(self._store, self.effects)

    def stage(self, draft: Draft) -> StoredPosition:
        """Add a message to the store's turn. It is stored when the turn ends. May change the draft."""
        route(draft, self._clock, self._levels, self._settings.now.timer)
        if self.timers_full and draft.topic == TIMER_TOPIC and names.TIMER_DEL_UNIQKEY not in draft.properties:
            raise SystemBusy("timer message is under flow control: too many timed messages wait; try again later")
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
        return StoredPosition(draft.queue_id, *offsets)

    def forward_all(self, moves: Iterable[Forward]) -> list[InvalidMessage | None]:
        """Store messages again in other queues, with one write, whatever their properties request.

        Accepts as many as the store accepts now, in order: for each of those None, or why it can never be stored there.
        If the store accepts none or cannot write, its error is raised and nothing is stored.
        """
        outcomes: list[InvalidMessage | None] = []
        try:
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
        except BaseException:
            self.abandon_turn()
            raise
        self._end_turn()
        return outcomes

    def _end_turn(self) -> None:
        """The turn is written on return, or a thread is writing it because the disk is slow."""
        began = self._clock.monotonic()
        if not self._store.end_turn():
            return
        took_s = self._clock.monotonic() - began
        if took_s >= self._store.settings.slow_write_ms / 1000:
            self._store.count_slow_write(took_s)

    def _stage_again(self, move: Forward) -> None:
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
        """Wait until everything appended is in the log, and on disk and on slaves if the broker promises that. False after a
        time limit; SlaveNotAvailable or FlushSlaveTimeout if slaves do not have it.

        Returns at once if nothing is promised and the disk is not slow.
        """
        if self._replicas is not None and self._replicas.promised:
            await self._copied(self._replicas)
        if self._store.settings.flush is FlushMode.SYNC:
            return await self.synced()
        return self._store.busy_since is None or await self.written()

    async def _copied(self, replicas: Replicas) -> None:
        await self.written()
        copied: asyncio.Future[ResponseCode] = asyncio.get_running_loop().create_future()
        replicas.when_copied(self._store.end, lambda code: None if copied.done() else copied.set_result(code))
        code = await copied
        if code == ResponseCode.SLAVE_NOT_AVAILABLE:
            raise SlaveNotAvailable("it is stored, but no slave is in sync")
        if code != ResponseCode.SUCCESS:
            raise FlushSlaveTimeout("it is stored, but slaves do not have it yet")

    async def written(self) -> bool:
        """Wait for the turn that a slow disk is writing, if there is one. False after a time limit."""
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._store.when_free(lambda: None if written.done() else written.set_result(None))
        try:
            async with asyncio.timeout(self._store.settings.sync_timeout_ms / 1000):
                await written
        except TimeoutError:
            return False
        return True

    async def synced(self) -> bool:
        """Wait until everything written is synced. False if that fails or takes too long."""
        synced: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._store.when_synced(self._store.end, lambda done: None if synced.done() else synced.set_result(done))
        return await synced


def _settle(effects: Sequence[Effect], is_stored: bool) -> None:
    """Their turn is stored, or nothing of it. An effect that fails is repeated once: any call fails if memory is short."""
    for effect in effects if is_stored else reversed(effects):
        for _ in range(2):
            try:
                effect.stored() if is_stored else effect.failed()
                break
            except Exception:
                log.exception("Unexpected error in what follows from a turn (%s); continuing", type(effect).__name__)


class _AllOrNone:
    __slots__ = ("_count", "_effects", "_mark", "_store")

    def __init__(self, store: MessageStore, effects: list[Effect]) -> None:
        self._store = store
        self._effects = effects

    def __enter__(self) -> None:
        self._mark, self._count = self._store.mark(), len(self._effects)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            return
        self._store.take_back(self._mark)
        effects = self._effects[self._count :]
        del self._effects[self._count :]
        _settle(effects, is_stored=False)


def route(draft: Draft, clock: Clock, levels: DelayLevels, timer: TimerSettings) -> None:
    """Send a delayed or timed message to the topic where it waits. InvalidMessage for an invalid time."""
    prepared = draft.sys_flag & SysFlag.TRANSACTION_MASK
    if draft.topic in WAITING_TOPICS or prepared not in (0, SysFlag.TRANSACTION_COMMIT):
        return
    level = _number(draft, names.DELAY) or 0
    if level > 0:
        _delay(draft, levels.clamp(level))
    elif names.TIMER_OUT_MS not in draft.properties:
        is_relative = not _RELATIVE.isdisjoint(draft.properties)
        now_ms = clock.steady_ms() if is_relative else clock.now_ms()
        due_ms = due_time(draft, now_ms)
        if due_ms is not None:
            _time(draft, due_ms, now_ms, timer)


def due_time(draft: Draft, now_ms: int) -> int | None:
    """When a timed message is due; None if it is not timed. Seconds take precedence over milliseconds, then a time."""
    if (seconds := _number(draft, names.TIMER_DELAY_SEC)) is not None:
        return now_ms + seconds * 1000
    if (wait_ms := _number(draft, names.TIMER_DELAY_MS)) is not None:
        return now_ms + wait_ms
    return _number(draft, names.TIMER_DELIVER_MS)


def _delay(draft: Draft, level: int) -> None:
    draft.properties[names.DELAY] = str(level)
    for name in names.TIMER_PROPERTIES:
        draft.properties.pop(name, None)
    _redirect(draft, SCHEDULE_TOPIC, queue_of_level(level))


def _time(draft: Draft, due_ms: int, now_ms: int, timer: TimerSettings) -> None:
    if not timer.enabled:
        raise ImpossibleRequest("accurate timer message is not enabled: timerWheelEnable is off on this broker")
    if due_ms <= now_ms:
        if names.TIMER_DEL_UNIQKEY in draft.properties:
            raise InvalidMessage(f"a message that was due {now_ms - due_ms} ms ago can no longer be recalled")
        return
    if due_ms - now_ms > timer.max_delay_s * 1000:
        raise InvalidMessage(
            f"the message is due in {(due_ms - now_ms) // 1000} s; the limit is {timer.max_delay_s} s (timerMaxDelaySec)"
        )
    recalled, plus, _ = draft.properties.get(names.TIMER_DEL_UNIQKEY, "").partition("+")
    if plus and recalled != draft.topic:  # permission for one topic does not permit recalls in another
        raise InvalidMessage(f"a message of topic {draft.topic} cannot recall one of topic {recalled[:40]}")
    draft.properties[names.TIMER_OUT_MS] = str((due_ms - 1) // timer.precision_ms * timer.precision_ms)
    _redirect(draft, TIMER_TOPIC, 0)


def _redirect(draft: Draft, topic: str, queue_id: int) -> None:
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
    """An address packed as in records. An invalid one, such as that of a lost peer, becomes 0.0.0.0."""
    host = address.host.partition("%")[0].removeprefix("::ffff:")
    try:
        return Host.parse(f"[{host}]:{address.port}" if ":" in host else f"{host}:{address.port}").packed()
    except PocketMQError:
        return Host(bytes(4), 0).packed()
