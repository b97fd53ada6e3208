"""Held pops: pops and notifications that wait for a message, by group, topic and queue.

    pop finds nothing ── wait ──► held ─┬─ a message that matches its filter ──► one is woken, and pops again
                                        ├─ a message that does not match: every 800th wakes one, to move on
                                        ├─ messages return to the retry topic, an orderly queue is free ──► one is woken
                                        ├─ its time is over ──► it is woken, and answered with nothing
                                        └─ its connection is lost ──► dropped

Queue -1 means all queues of a topic, and is waited for by itself. A message wakes one pop of each group for its queue
and one for all queues: the one that waits longest, or for notifications the newest.
"""

import asyncio
from collections.abc import Iterable
from typing import Final, NamedTuple

from pocketmq.broker.reads.filters import EVERYTHING, Filter
from pocketmq.protocol.pop import pop_retry_topic
from pocketmq.protocol.record import properties_start
from pocketmq.store.queues.consume_queue import Arrival
from pocketmq.store.readable_store import ReadableStore

ALL_QUEUES: Final = -1
MOVE_ON: Final = 800
"""After so many messages that do not match, a held pop is woken to skip them."""


class WaitingKey(NamedTuple):
    topic: str
    group: str
    queue_id: int


class _WaitingPop:
    """A held pop, until it is woken."""

    __slots__ = ("filter", "skipped", "woken")

    def __init__(self, wanted: Filter) -> None:
        self.filter = wanted
        self.woken: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        """False when its time is over."""
        self.skipped = 0

    def wake(self) -> bool:
        if self.woken.done():
            return False
        self.woken.set_result(True)
        return True

    def expire(self) -> None:
        if not self.woken.done():
            self.woken.set_result(False)


class WaitingPops:
    """All held pops of one kind. `wakes_newest`: of several, the last one that came is woken first."""

    def __init__(self, *, wakes_newest: bool = False) -> None:
        self._wakes_newest = wakes_newest
        self._pops: dict[WaitingKey, dict[_WaitingPop, None]] = {}
        self._by_topic: dict[str, dict[WaitingKey, None]] = {}
        self._stopped = False
        self.count = 0
        self.wakes = 0
        """How often something happened that may wake a pop, whether one was held or not."""

    def __len__(self) -> int:
        return self.count

    def waiting(self, key: WaitingKey) -> int:
        """How many wait under exactly this key."""
        return len(self._pops.get(key, ()))

    def has_capacity(self, key: WaitingKey, max_per_key: int, max_waiting: int) -> bool:
        return not self._stopped and self.count < max_waiting and self.waiting(key) < max_per_key

    @property
    def is_stopped(self) -> bool:
        return self._stopped

    async def wait(self, key: WaitingKey, wanted: Filter, seconds: float) -> bool:
        """Return True when there may be a message, or False when the time is over."""
        pop = _WaitingPop(wanted)
        self._add(key, pop)
        timer = asyncio.get_running_loop().call_later(seconds, pop.expire)
        try:
            is_woken = await pop.woken
        finally:
            timer.cancel()
            self._remove(key, pop)
        return is_woken and not self._stopped

    def _add(self, key: WaitingKey, pop: _WaitingPop) -> None:
        waiting = self._pops.get(key)
        if waiting is None:
            waiting = self._pops[key] = {}
            for topic in _topics_of(key):
                self._by_topic.setdefault(topic, {})[key] = None
        waiting[pop] = None
        self.count += 1

    def _remove(self, key: WaitingKey, pop: _WaitingPop) -> None:
        waiting = self._pops[key]
        del waiting[pop]
        self.count -= 1
        if waiting:
            return
        del self._pops[key]
        for topic in _topics_of(key):
            keys = self._by_topic[topic]
            del keys[key]
            if not keys:
                del self._by_topic[topic]

    # waking

    def notify(self, arrivals: Iterable[Arrival], store: ReadableStore) -> None:
        """Messages became readable."""
        for queue, log_offset, _, tags_code in arrivals:
            keys = self._by_topic.get(queue.topic)
            for key in tuple(keys) if keys else ():
                if key.queue_id in (ALL_QUEUES, queue.queue_id) or key.topic != queue.topic:
                    self._arrived(key, store, log_offset, tags_code)

    def _arrived(self, key: WaitingKey, store: ReadableStore, log_offset: int, tags_code: int) -> None:
        properties: bytes | None = None
        for pop in self._in_order(key):
            if pop.woken.done():
                continue
            if pop.filter is not EVERYTHING and pop.filter.matches is not None and properties is None:
                record = store.record(log_offset)
                properties = b"" if record is None else record[properties_start(record) :]
            pop.skipped += 1
            if pop.filter.wakes(tags_code, properties or b"") or pop.skipped >= MOVE_ON:
                pop.wake()
                return

    def wake(self, key: WaitingKey) -> None:
        """There may be messages for one of these."""
        self.wakes += 1
        for pop in self._in_order(key):
            if pop.wake():
                return

    def wake_group(self, group: str, topic: str, queue_id: int) -> None:
        """A queue has messages for this group again."""
        for one in (queue_id, ALL_QUEUES):
            self.wake(WaitingKey(topic, group, one))

    def _in_order(self, key: WaitingKey) -> Iterable[_WaitingPop]:
        waiting = self._pops.get(key)
        if not waiting:
            return ()
        return reversed(waiting) if self._wakes_newest else iter(waiting)

    def wake_topic(self, topic: str) -> None:
        """A topic was deleted or reset: all its readers look again."""
        self.wakes += 1
        for key in tuple(self._by_topic.get(topic, ())):
            for pop in self._pops[key]:
                pop.wake()

    def stop(self) -> None:
        """Wake all; none waits from now on."""
        self._stopped = True
        self.wakes += 1
        for waiting in self._pops.values():
            for pop in waiting:
                pop.wake()


def _topics_of(key: WaitingKey) -> tuple[str, str, str]:
    """The topics whose messages a pop may return."""
    group, topic = key.group, key.topic
    return topic, pop_retry_topic(group, topic, v2=False), pop_retry_topic(group, topic, v2=True)
