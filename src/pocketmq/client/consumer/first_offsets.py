"""First offsets: where a group starts in a newly assigned queue. Decides, queries the broker and commits the offset at once.

    the queue has a committed offset ─────────────────► that offset
    it has none, and
      it belongs to the group's retry topic ──────────► the minimum: none of these retries was consumed
      it is younger than the group ───────────────────► the minimum: its messages came after the group started
      it is as old as the group
          FIRST ──────────────────────────────────────► the minimum
          LAST ───────────────────────────────────────► the maximum
          TIMESTAMP ──────────────────────────────────► the first message stored at that time or later

RocketMQ has the last part only. There, a LAST group loses messages that are sent to a new queue, or to a new broker, before its members know
the queue. A TIMESTAMP group that crashes before its first commit loses its retries.

A queue without an offset is younger than the group if this consumer knew the topic without the queue, or if the group has an offset in
another queue of the topic. Otherwise the group is new, and the first member commits a start offset for *all* queues of the topic. If it did
not, a second member that starts a moment later would find the offsets of the first one, take its own queues for younger than the group, and
read years of messages.
"""

import asyncio
import logging
import re
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from enum import Enum
from typing import Final, NamedTuple

from pocketmq.client.cluster.calls import OffsetCalls
from pocketmq.client.consumer.offsets import Offsets
from pocketmq.errors import InvalidSetting, PocketMQError
from pocketmq.model import MessageQueue
from pocketmq.model.names import is_retry
from pocketmq.protocol.bodies.clients import ConsumeFromWhere

DEFAULT_LOOK_BACK_MS: Final = 30 * 60 * 1000
"""How long before its start a TIMESTAMP consumer without a time starts to read."""
TIMESTAMP_FORMAT: Final = "%Y%m%d%H%M%S"
"""Java's yyyyMMddHHmmss, in local time."""
_SPAN: Final = re.compile(r"(\d{1,15})\s*(ms|s|min|m|h|d)")
_SPAN_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


class StartPosition(Enum):
    """The kind of the first offset."""

    STORED = "stored"
    MIN = "min"
    MAX = "max"
    BY_TIME = "by time"


class Start(NamedTuple):
    """The decision, and its reason for the log. `offset` is set for STORED; for the others it is queried."""

    position: StartPosition
    reason: str
    offset: int | None = None


_BY_POLICY: Final[dict[ConsumeFromWhere, Start]] = {
    ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET: Start(
        StartPosition.MIN, "the group is new and reads from the first message on"
    ),
    ConsumeFromWhere.CONSUME_FROM_TIMESTAMP: Start(
        StartPosition.BY_TIME, "the group is new and reads from a given time on"
    ),
}
_LAST: Final = Start(StartPosition.MAX, "the group is new and reads new messages only")
"""Also for the three deprecated values of RocketMQ."""
_RETRY: Final = Start(StartPosition.MIN, "retries of the group are read from the first one on")
_LATER: Final = Start(StartPosition.MIN, "the queue is younger than the group")


def start_of(stored: int | None, from_where: ConsumeFromWhere, *, is_retry: bool, is_later: bool) -> Start:
    """Where a group starts in a queue.

    `stored` is its committed offset. `is_retry`: the queue belongs to a retry topic. `is_later`: it is younger than the group.
    """
    if stored is not None and stored >= 0:
        return Start(StartPosition.STORED, "the group has a committed offset", stored)
    if is_retry:
        return _RETRY
    if is_later:
        return _LATER
    return _BY_POLICY.get(from_where, _LAST)


def has_begun(stored: Iterable[int | None]) -> bool:
    """Whether a group has consumed a topic before, by its committed offsets in the other queues.

    An offset of 0 proves nothing: RocketMQ 4.9 returns it for each queue that never had a message, or whose first message is still in memory.
    """
    return any(offset is not None and offset > 0 for offset in stored)


def parse_timestamp(text: str) -> int:
    """A local time such as 20240131235959, Java's format, in milliseconds."""
    try:
        if len(text) != 14 or not text.isascii() or not text.isdigit():
            raise ValueError
        return int(datetime.strptime(text, TIMESTAMP_FORMAT).timestamp() * 1000)
    except ValueError:
        raise InvalidSetting(
            f"start_at = {text!r} is invalid; expected 'first' or 'earliest', 'last' or 'latest', a time such as 2024-01-31T23:59, "
            "2h for two hours ago, or a consume timestamp of the form yyyyMMddHHmmss, such as 20240131235959"
        ) from None


def start_time_ms(start_at: str | int | datetime | timedelta | None, now_ms: int) -> int:
    """The start time of a TIMESTAMP consumer: a time, a duration before its start, or half an hour before it."""
    match start_at:
        case None:
            return now_ms - DEFAULT_LOOK_BACK_MS
        case str():
            return _parsed_ms(start_at, now_ms)
        case datetime():
            return _moment_ms(start_at)
        case timedelta():
            return now_ms - int(start_at.total_seconds() * 1000)
    return start_at


def _parsed_ms(text: str, now_ms: int) -> int:
    """`2h` or `2024-01-31T23:59`, as on the command line, or Java's format."""
    if match := _SPAN.fullmatch(text.strip()):
        return now_ms - int(match[1]) * _SPAN_MS[match[2]]
    try:
        moment = datetime.fromisoformat(text.strip()) if "-" in text else None
    except ValueError:
        moment = None
    return parse_timestamp(text) if moment is None else _moment_ms(moment)


def _moment_ms(moment: datetime) -> int:
    try:
        return int(moment.timestamp() * 1000)
    except (ValueError, OverflowError, OSError):  # for example a local time before year 1 in UTC
        raise InvalidSetting(f"{moment.isoformat()} is out of range") from None


log = logging.getLogger("pocketmq.client")

SECOND_CHECK_S = 1.0
"""How long a member waits for the first offsets of a new group that another member may be committing."""


class FirstOffsets:
    """Finds the first offsets of one consumer."""

    def __init__(self, calls: OffsetCalls, offsets: Offsets, from_where: ConsumeFromWhere, start_time_ms: int) -> None:
        self._calls = calls
        self._offsets = offsets
        self._from_where = from_where
        self._start_time_ms = start_time_ms
        self._seen: dict[str, frozenset[MessageQueue]] = {}
        self._begun: dict[str, float] = {}
        """Topics that the group has consumed before, and since when this consumer knows it."""

    def missing(self, topic: str) -> None:
        """The topic does not exist. Its future queues are younger than the group."""
        self._seen[topic] = frozenset()
        self._begun.pop(topic, None)

    def forget(self, topic: str) -> None:
        """The topic is not subscribed to any more."""
        self._seen.pop(topic, None)
        self._begun.pop(topic, None)

    async def find(self, queue: MessageQueue, all_queues: Sequence[MessageQueue]) -> int:
        """Where to start in `queue`, one of `all_queues` of its topic. Raises PocketMQError: retry later.

        Do not call it in parallel for one topic: the first call may commit offsets of all its queues.
        """
        seen = self._seen.setdefault(queue.topic, frozenset(all_queues))
        started_at = asyncio.get_running_loop().time()
        stored = await self._offsets.store.load(queue)
        own = is_retry(queue.topic)
        is_later = queue not in seen
        if stored is None and not own and not is_later and await self._has_begun(queue, all_queues):
            # Another member of a new group may be committing offsets of all queues now: load it again.
            is_later = True
            if started_at < self._begun[queue.topic] + SECOND_CHECK_S:
                await asyncio.sleep(SECOND_CHECK_S)
                stored = await self._offsets.store.load(queue)
        start = start_of(stored, self._from_where, is_retry=own, is_later=is_later)
        if start.offset is not None:
            return start.offset
        others = [] if own or is_later else [other for other in all_queues if other != queue]
        starts = asyncio.gather(*(self._commit_start_quietly(other, start) for other in others))
        try:
            return await self._commit_start(queue, start)
        finally:
            await starts

    async def _has_begun(self, queue: MessageQueue, all_queues: Iterable[MessageQueue]) -> bool:
        """Whether the group has an offset in another queue of the topic. A broker that does not answer proves nothing."""
        if queue.topic not in self._begun:
            others = [self._load_quietly(other) for other in all_queues if other != queue]
            if not has_begun(await asyncio.gather(*others)):
                return False
            self._begun[queue.topic] = asyncio.get_running_loop().time()
        return True

    async def _commit_start(self, queue: MessageQueue, start: Start) -> int:
        offset = await self._offset_at(queue, start)
        await self._offsets.store.begin(queue, offset)
        log.info("consumption of %s starts at offset %d: %s", queue, offset, start.reason)
        return offset

    async def _commit_start_quietly(self, queue: MessageQueue, start: Start) -> None:
        """The same for a queue of another member, unless it has an offset. After a failure, its owner does it."""
        try:
            if await self._offsets.store.load(queue) is None:
                await self._commit_start(queue, start)
        except PocketMQError:
            log.debug("start offset of %s could not be committed; its owner does it", queue, exc_info=True)

    async def _load_quietly(self, queue: MessageQueue) -> int | None:
        try:
            return await self._offsets.store.load(queue)
        except PocketMQError:
            return None

    async def _offset_at(self, queue: MessageQueue, start: Start) -> int:
        if start.position is StartPosition.MIN:
            return await self._calls.smallest(queue)
        if start.position is StartPosition.MAX:
            return await self._calls.largest(queue)
        return await self._calls.at_time(queue, self._start_time_ms)
