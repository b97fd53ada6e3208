"""First offsets: acting on the decisions of `start_offset`. Asks brokers, decides, and has the outcome kept at once.

    a queue without an offset ── was the topic read or missed here before without it? ── yes ──► it came later: its minimum
                                    │ no
                                    └─ has the group an offset in another queue? ── yes ──► it came later: its minimum
                                          │ no: the group is new
                                          └─► the place that the group wishes for, for *all* queues of the topic

A new group gets an offset in every queue by whichever member comes first. Otherwise a second member that starts a moment later
would find offsets in the first one's queues, take its own for younger than the group, and read years of messages.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence

from pocketmq.client.calls.offsets import OffsetCalls
from pocketmq.client.offsets import Offsets
from pocketmq.client.start_offset import Start, StartPlace, has_begun, start_of
from pocketmq.errors import PocketMQError
from pocketmq.model.names import is_retry
from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.bodies.heartbeat import ConsumeFromWhere

log = logging.getLogger("pocketmq.client")

SECOND_LOOK_S = 1.0
"""How long a member gets to keep the first offsets of a new group before another takes it for an old one."""


class FirstOffsets:
    """Where one consumer begins in queues that it gets."""

    def __init__(self, calls: OffsetCalls, offsets: Offsets, wish: ConsumeFromWhere, start_time_ms: int) -> None:
        self._calls = calls
        self._offsets = offsets
        self._wish = wish
        self._start_time_ms = start_time_ms
        self._seen: dict[str, frozenset[MessageQueue]] = {}
        self._begun: dict[str, float] = {}
        """Topics with which the group had begun, and since when that is known."""

    def missing(self, topic: str) -> None:
        """The topic does not exist now: whatever queues it will have are younger than the group, and are read from their beginning."""
        self._seen[topic] = frozenset()
        self._begun.pop(topic, None)

    def forget(self, topic: str) -> None:
        """The topic is not read any more."""
        self._seen.pop(topic, None)
        self._begun.pop(topic, None)

    async def find(self, queue: MessageQueue, all_queues: Sequence[MessageQueue]) -> int:
        """Where to begin in `queue`, one of `all_queues` of its topic. A failure is a PocketMQError: try again later.

        For queues of one topic, one after the other: the first call may begin with all of them.
        """
        seen = self._seen.setdefault(queue.topic, frozenset(all_queues))
        asked_at = asyncio.get_running_loop().time()
        stored = await self._offsets.load(queue)
        own = is_retry(queue.topic)
        is_later = queue not in seen
        if stored is None and not own and not is_later and await self._has_begun(queue, all_queues):
            # Another member of a new group may just be keeping offsets for all queues, this one included: look again.
            is_later = True
            if asked_at < self._begun[queue.topic] + SECOND_LOOK_S:
                await asyncio.sleep(SECOND_LOOK_S)
                stored = await self._offsets.load(queue)
        start = start_of(stored, self._wish, is_retry=own, is_later=is_later)
        if start.offset is not None:
            return start.offset
        others = [] if own or is_later else [other for other in all_queues if other != queue]
        beginning = asyncio.gather(*(self._begin_quietly(other, start) for other in others))
        try:
            return await self._begin(queue, start)
        finally:
            await beginning

    async def _has_begun(self, queue: MessageQueue, all_queues: Iterable[MessageQueue]) -> bool:
        """Whether the group has an offset in another queue of the topic. A broker that is away proves nothing."""
        if queue.topic not in self._begun:
            others = [self._load_quietly(other) for other in all_queues if other != queue]
            if not has_begun(await asyncio.gather(*others)):
                return False
            self._begun[queue.topic] = asyncio.get_running_loop().time()
        return True

    async def _begin(self, queue: MessageQueue, start: Start) -> int:
        offset = await self._place(queue, start)
        await self._offsets.begin(queue, offset)
        log.info("%s is begun at offset %d: %s", queue, offset, start.reason)
        return offset

    async def _begin_quietly(self, queue: MessageQueue, start: Start) -> None:
        """The same for a queue that is not ours, if nobody has; when it fails, whoever gets the queue will do it."""
        try:
            if await self._offsets.load(queue) is None:
                await self._begin(queue, start)
        except PocketMQError:
            log.debug("%s could not be begun, its owner will", queue, exc_info=True)

    async def _load_quietly(self, queue: MessageQueue) -> int | None:
        try:
            return await self._offsets.load(queue)
        except PocketMQError:
            return None

    async def _place(self, queue: MessageQueue, start: Start) -> int:
        if start.place is StartPlace.MIN:
            return await self._calls.smallest(queue)
        if start.place is StartPlace.MAX:
            return await self._calls.largest(queue)
        return await self._calls.at_time(queue, self._start_time_ms)
