"""Arrivals: pulls that wait for messages of a queue, and when they are woken.

    pull at the end of its queue ── wait ──► held ─┬─ a message that matches its filter ──► woken, reads it
                                                   ├─ a message that does not match: woken later, to skip it
                                                   ├─ the queue was reset or deleted ──► woken
                                                   ├─ its time is over ────────────────► woken, finds nothing
                                                   └─ its connection is lost ──────────► dropped

RocketMQ scans all held pulls every 5 s. Here each pull has its own timer, so none waits longer than requested.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from pocketmq.broker.reads.filters import EVERYTHING, Filter
from pocketmq.model.durations import Durations
from pocketmq.protocol.record import properties_start
from pocketmq.store.queues.consume_queue import Arrival

QueueKey = tuple[str, int]
"""Topic and queue id."""

Record = Callable[[int], bytes | None]
"""The record at an offset of the log."""

_NO_PROPERTIES: Final = b""


class _WaitingPull:
    """A waiting pull, until it is woken."""

    __slots__ = ("deadline", "filter", "skips", "timer", "woken")

    def __init__(self, wanted: Filter, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self.filter = wanted
        self.woken: asyncio.Future[None] = loop.create_future()
        self.deadline = loop.time() + seconds
        self.timer = loop.call_at(self.deadline, self.wake)
        self.skips = False

    def wake(self) -> None:
        if not self.woken.done():
            self.woken.set_result(None)

    def skip_later(self, skip_delay_s: float) -> None:
        """A message arrived that does not match. More may follow, so the reader skips all of them after a delay."""
        if self.skips:
            return
        self.skips = True
        loop = self.woken.get_loop()
        if loop.time() + skip_delay_s < self.deadline:
            self.timer.cancel()
            self.timer = loop.call_later(skip_delay_s, self.wake)


class Arrivals:
    """Held pulls by queue. `record` reads the log, for filters on properties."""

    def __init__(self, record: Record, *, max_waiting: int, skip_delay_s: float) -> None:
        self._record = record
        self.max_waiting = max_waiting
        self._skip_delay_s = skip_delay_s
        self._pulls: dict[QueueKey, set[_WaitingPull]] = {}
        self._stopped = False
        self.count = 0
        self.wake_calls = 0
        """How often readers were woken by something else than a message."""
        self.times = Durations()
        """How long each pull was held."""

    def __len__(self) -> int:
        """The number of waiting pulls."""
        return self.count

    @property
    def has_capacity(self) -> bool:
        """Whether another pull may wait; if not, it is answered at once."""
        return self.count < self.max_waiting and not self._stopped

    async def wait(self, topic: str, queue_id: int, wanted: Filter, seconds: float) -> None:
        """Return when a message may be readable, or when the time is over. Existing messages do not wake it."""
        pull = _WaitingPull(wanted, seconds)
        began = pull.deadline - seconds
        key = topic, queue_id
        self._pulls.setdefault(key, set()).add(pull)
        self.count += 1
        try:
            await pull.woken
        finally:
            pull.timer.cancel()
            self.times.record(pull.woken.get_loop().time() - began)
            self.count -= 1
            waiting = self._pulls[key]
            waiting.discard(pull)
            if not waiting:
                del self._pulls[key]

    def notify(self, arrivals: Iterable[Arrival]) -> None:
        """Messages became readable. Called once per turn that stored any."""
        if not self._pulls:
            return
        for queue, log_offset, _, tags_code in arrivals:
            waiting = self._pulls.get((queue.topic, queue.queue_id))
            if waiting is not None:
                self._arrived(waiting, log_offset, tags_code)

    def _arrived(self, waiting: set[_WaitingPull], log_offset: int, tags_code: int) -> None:
        properties: bytes | None = None
        for pull in waiting:
            if pull.woken.done():
                continue
            if pull.filter is not EVERYTHING and pull.filter.matches is not None and properties is None:
                properties = self._properties(log_offset)
            if pull.filter.wakes(tags_code, properties or _NO_PROPERTIES):
                pull.wake()
            else:
                pull.skip_later(self._skip_delay_s)

    def _properties(self, log_offset: int) -> bytes:
        record = self._record(log_offset)
        return _NO_PROPERTIES if record is None else record[properties_start(record) :]

    def wake(self, topic: str, queue_id: int) -> None:
        """A queue was reset: wake its readers now."""
        self.wake_calls += 1
        for pull in self._pulls.get((topic, queue_id), ()):
            pull.wake()

    def wake_topic(self, topic: str) -> None:
        self.wake_calls += 1
        for key, waiting in self._pulls.items():
            if key[0] == topic:
                for pull in waiting:
                    pull.wake()

    def stop(self) -> None:
        """Wake all pulls; no pull waits from now on."""
        self._stopped = True
        self.wake_calls += 1
        for waiting in self._pulls.values():
            for pull in waiting:
                pull.wake()
