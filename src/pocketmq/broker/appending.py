"""Appending drafts: where a message goes first, and when it is stored.

    draft ── DELAY level above 0 ─────────────► SCHEDULE_TOPIC_XXXX, queue level - 1       REAL_TOPIC and REAL_QID say
          ├─ TIMER_* later than now ──────────► rmq_sys_wheel_timer, queue 0                where it goes afterwards
          └─ else ────────────────────────────► its own topic and queue

    stage … stage ── write ──► on disk, readable ── safe ──► synced, where that is asked for

A timed message waits for the second in which it is due to be over, so it is never early: TIMER_OUT_MS is the second before.
What waits in the broker's own topics already is never sent through them again.
"""

import asyncio
from collections.abc import Iterable
from typing import Final

from pocketmq.broker.drafts import Draft, Place
from pocketmq.broker.settings import SettingsInUse, TimerSettings
from pocketmq.clock import Clock
from pocketmq.errors import InvalidMessage
from pocketmq.model import properties as names
from pocketmq.model.delay import DelayLevels, queue_of_level
from pocketmq.model.flags import SysFlag
from pocketmq.model.names import HALF_TOPIC, OP_HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC, parse_topic
from pocketmq.store.message_store import MessageStore
from pocketmq.store.settings import FlushMode

_AS_THEY_ARE: Final = frozenset({SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC, OP_HALF_TOPIC})
"""Topics in which messages wait with the properties that say for how long."""


class Appender:
    """Stores drafts. Not while a turn of sends is being staged: `Turns` ends that first."""

    def __init__(self, store: MessageStore, settings: SettingsInUse, clock: Clock) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock
        self._levels = store.settings.delay_levels

    def append(self, draft: Draft) -> Place:
        """Store one message; readable when this returns."""
        return self.append_all((draft,))[0]

    def append_all(self, drafts: Iterable[Draft]) -> list[Place]:
        """Store messages with one write, all or none."""
        try:
            places = [self.stage(draft) for draft in drafts]
        except BaseException:
            self._store.abandon_turn()
            raise
        self._store.end_turn()
        return places

    def stage(self, draft: Draft) -> Place:
        """Put a message into the turn of the store; nothing is stored before the turn ends. May change the draft."""
        route(draft, self._clock.now_ms(), self._levels, self._settings.now.timer)
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
        )
        return Place(draft.queue_id, *offsets)

    async def safe(self) -> bool:
        """Whether all that was written is on the disk, if the broker promises that: at once where it does not."""
        if self._store.settings.flush is not FlushMode.SYNC:
            return True
        synced: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._store.when_synced(self._store.end, lambda done: None if synced.done() else synced.set_result(done))
        return await synced


def route(draft: Draft, now_ms: int, levels: DelayLevels, timer: TimerSettings) -> None:
    """Send a delayed or timed message to where it waits. InvalidMessage for a time that cannot be."""
    prepared = draft.sys_flag & SysFlag.TRANSACTION_MASK
    if draft.topic in _AS_THEY_ARE or prepared not in (0, SysFlag.TRANSACTION_COMMIT):
        return
    level = _number(draft, names.DELAY) or 0
    if level > 0:
        level = levels.clamp(level)
        draft.properties[names.DELAY] = str(level)
        _detour(draft, SCHEDULE_TOPIC, queue_of_level(level))
        return
    due_ms = due_time(draft, now_ms) if timer.enabled else None
    if due_ms is None or due_ms <= now_ms:
        return
    if due_ms - now_ms > timer.max_delay_s * 1000:
        raise InvalidMessage(
            f"the message is due in {(due_ms - now_ms) // 1000} s; a timed message may wait {timer.max_delay_s} s at most"
        )
    draft.properties[names.TIMER_OUT_MS] = str((due_ms - 1) // timer.precision_ms * timer.precision_ms)
    _detour(draft, TIMER_TOPIC, 0)


def due_time(draft: Draft, now_ms: int) -> int | None:
    """When a timed message asks to be delivered; None when it is not timed. Seconds count before milliseconds before a time."""
    if (seconds := _number(draft, names.TIMER_DELAY_SEC)) is not None:
        return now_ms + seconds * 1000
    if (wait_ms := _number(draft, names.TIMER_DELAY_MS)) is not None:
        return now_ms + wait_ms
    return _number(draft, names.TIMER_DELIVER_MS)


def _detour(draft: Draft, topic: str, queue_id: int) -> None:
    draft.properties[names.REAL_TOPIC] = draft.topic
    draft.properties[names.REAL_QUEUE_ID] = str(draft.queue_id)
    draft.topic, draft.queue_id = topic, queue_id


def _number(draft: Draft, name: str) -> int | None:
    text = draft.properties.get(name)
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        raise InvalidMessage(f"property {name} = {text[:40]!r} is not a whole number") from None
