"""Arrivals: who waits for messages of which queue, and who is woken.

    pull at the end of its queue ── wait ──► held ─┬─ a message that its filter wants ──► woken, reads it
                                                   ├─ a message that it does not want: woken a little later, to move on
                                                   ├─ the queue was reset or deleted ──► woken
                                                   ├─ its time is over ────────────────► woken, finds nothing
                                                   └─ its line is lost ────────────────► forgotten

RocketMQ scans all held pulls every 5 s; here each has its own timer, so nobody waits longer than it asked for.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from pocketmq.broker.reads.filters import EVERYTHING, Filter
from pocketmq.model.durations import Durations
from pocketmq.protocol.record import properties_start
from pocketmq.store.queues.dispatch import Arrival

QueueKey = tuple[str, int]
"""Topic and queue id."""

Record = Callable[[int], bytes | None]
"""The record at an offset of the log."""

_NO_PROPERTIES: Final = b""


class _Held:
    """One waiting pull, until it is woken by the timer or before."""

    __slots__ = ("deadline", "filter", "moves_on", "timer", "woken")

    def __init__(self, wanted: Filter, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self.filter = wanted
        self.woken: asyncio.Future[None] = loop.create_future()
        self.deadline = loop.time() + seconds
        self.timer = loop.call_at(self.deadline, self.wake)
        self.moves_on = False

    def wake(self) -> None:
        if not self.woken.done():
            self.woken.set_result(None)

    def passed_by(self, look_s: float) -> None:
        """A message came that is not wanted. There may be more, so the reader moves on past all of them, in a while."""
        if self.moves_on:
            return
        self.moves_on = True
        loop = self.woken.get_loop()
        if loop.time() + look_s < self.deadline:
            self.timer.cancel()
            self.timer = loop.call_later(look_s, self.wake)


class Arrivals:
    """Held pulls by queue. `record` reads the log, for filters that look at properties."""

    def __init__(self, record: Record, *, max_held: int, look_s: float) -> None:
        self._record = record
        self.max_held = max_held
        self._look_s = look_s
        self._held: dict[QueueKey, set[_Held]] = {}
        self._stopped = False
        self.count = 0
        self.calls = 0
        """How often readers were woken by something else than a message."""
        self.times = Durations()
        """How long each pull was held."""

    def __len__(self) -> int:
        """How many pulls wait."""
        return self.count

    @property
    def has_room(self) -> bool:
        """Whether another pull may wait; it is answered at once otherwise."""
        return self.count < self.max_held and not self._stopped

    async def wait(self, topic: str, queue_id: int, wanted: Filter, seconds: float) -> None:
        """Return when there may be something to read, or when the time is over. What is there already wakes nobody."""
        held = _Held(wanted, seconds)
        began = held.deadline - seconds
        key = topic, queue_id
        self._held.setdefault(key, set()).add(held)
        self.count += 1
        try:
            await held.woken
        finally:
            held.timer.cancel()
            self.times.note(held.woken.get_loop().time() - began)
            self.count -= 1
            waiting = self._held[key]
            waiting.discard(held)
            if not waiting:
                del self._held[key]

    def notify(self, arrivals: Iterable[Arrival]) -> None:
        """Messages became readable. Called once for each turn that stored some."""
        if not self._held:
            return
        for queue, log_offset, _, tags_code in arrivals:
            waiting = self._held.get((queue.topic, queue.queue_id))
            if waiting is not None:
                self._arrived(waiting, log_offset, tags_code)

    def _arrived(self, waiting: set[_Held], log_offset: int, tags_code: int) -> None:
        properties: bytes | None = None
        for held in waiting:
            if held.woken.done():
                continue
            if held.filter is not EVERYTHING and held.filter.matches is not None and properties is None:
                properties = self._properties(log_offset)
            if held.filter.wakes(tags_code, properties or _NO_PROPERTIES):
                held.wake()
            else:
                held.passed_by(self._look_s)

    def _properties(self, log_offset: int) -> bytes:
        record = self._record(log_offset)
        return _NO_PROPERTIES if record is None else record[properties_start(record) :]

    def wake(self, topic: str, queue_id: int) -> None:
        """Something about a queue changed that its readers should hear of now."""
        self.calls += 1
        for held in self._held.get((topic, queue_id), ()):
            held.wake()

    def wake_topic(self, topic: str) -> None:
        self.calls += 1
        for key, waiting in self._held.items():
            if key[0] == topic:
                for held in waiting:
                    held.wake()

    def stop(self) -> None:
        """Answer everybody; from now on nobody waits."""
        self._stopped = True
        self.calls += 1
        for waiting in self._held.values():
            for held in waiting:
                held.wake()
