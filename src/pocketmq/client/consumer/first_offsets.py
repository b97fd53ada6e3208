"""First offsets: acting on the decisions of `start_offset`. Asks brokers, decides, and has the outcome kept at once.

    a queue without an offset ── was the topic read or missed here before without it? ── yes ──► it came later: its minimum
                                    │ no
                                    └─ has the group an offset in another queue? ── yes ──► it came later: its minimum
                                          │ no: the group is new
                                          └─► the place that the group wishes for, for *all* queues of the topic

A new group gets an offset in every queue by whichever member comes first. Otherwise a second member that starts a moment later
would find offsets in the first one's queues, take its own for younger than the group, and read years of messages.

Start offsets: where a group begins in a queue that it just got.

    it has a stored offset ───────────────────────────► there
    it has none, and the queue
      is one of its retry topic ──────────────────────► the minimum: every message there is its own, and was not handled
      came when the group was there already ──────────► the minimum: it was made for messages that came since
      is as old as the group's wish to read it
          FIRST ──────────────────────────────────────► the minimum
          LAST ───────────────────────────────────────► the maximum
          TIMESTAMP ──────────────────────────────────► the first message stored at that time or after

RocketMQ knows only the last part. So a LAST group loses what is sent to a new queue, or to the queues of a new broker, before
its members hear of it; and with TIMESTAMP, a group that dies before its first commit loses its retries.

A decision says what to ask the broker for, because each question costs a call, and why, for the log. Whoever acts on one
commits the offset at once: until every queue has one, a group looks older than the queues that it has not begun.
"""

import asyncio
import logging
import re
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from enum import Enum
from typing import Final, NamedTuple

from pocketmq.client.cluster.message_calls import OffsetCalls
from pocketmq.client.consumer.offsets import Offsets
from pocketmq.errors import InvalidSetting, PocketMQError
from pocketmq.model.names import is_retry
from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.bodies.clients import ConsumeFromWhere

DEFAULT_LOOK_BACK_MS: Final = 30 * 60 * 1000
"""A TIMESTAMP consumer that names no time begins so long before its start."""
TIMESTAMP_FORMAT: Final = "%Y%m%d%H%M%S"
"""Java's yyyyMMddHHmmss, in local time."""
_SPAN: Final = re.compile(r"(\d{1,15})\s*(ms|s|min|m|h|d)")
_SPAN_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


class StartPosition(Enum):
    """What the first offset is."""

    STORED = "stored"
    MIN = "min"
    MAX = "max"
    BY_TIME = "by time"


class Start(NamedTuple):
    """Where to begin, and why. `offset` is known when the place is STORED; for all others the broker has to be asked."""

    place: StartPosition
    reason: str
    offset: int | None = None


_BY_WISH: Final[dict[ConsumeFromWhere, Start]] = {
    ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET: Start(
        StartPosition.MIN, "the group is new and reads from the first message"
    ),
    ConsumeFromWhere.CONSUME_FROM_TIMESTAMP: Start(StartPosition.BY_TIME, "the group is new and reads from a time on"),
}
_LAST: Final = Start(StartPosition.MAX, "the group is new and reads only what comes from now on")
"""Also what RocketMQ makes of the three old words."""
_RETRY: Final = Start(StartPosition.MIN, "it holds the group's own retries, none of which was handled yet")
_LATER: Final = Start(StartPosition.MIN, "the queue appeared after the group had begun with its topic")


def start_of(stored: int | None, wish: ConsumeFromWhere, *, is_retry: bool, is_later: bool) -> Start:
    """Where a group begins in a queue.

    `stored` is its committed offset, None when the broker has none; `is_retry` says that the queue is of a retry topic,
    `is_later` that it appeared after the group began with the topic.
    """
    if stored is not None and stored >= 0:
        return Start(StartPosition.STORED, "the group has been here before", stored)
    if is_retry:
        return _RETRY
    if is_later:
        return _LATER
    return _BY_WISH.get(wish, _LAST)


def has_begun(stored: Iterable[int | None]) -> bool:
    """Whether a group has begun with a topic, by its committed offsets in all queues that are not new to it.

    An offset of 0 proves nothing: RocketMQ 4.9 answers so for every queue whose first message is still in its memory, and for every
    queue that never had one. A consumer that has seen the topic without the queue knows better than to ask.
    """
    return any(offset is not None and offset > 0 for offset in stored)


def parse_timestamp(text: str) -> int:
    """Milliseconds of a time such as 20240131235959, local, as Java's consumers are told it."""
    try:
        if len(text) != 14 or not text.isascii() or not text.isdigit():
            raise ValueError
        return int(datetime.strptime(text, TIMESTAMP_FORMAT).timestamp() * 1000)
    except ValueError:
        raise InvalidSetting(
            f"start_at = {text!r} is not 'first' or 'earliest', 'last' or 'latest', nor a time such as 2024-01-31T23:59, 2h for "
            "two hours ago, or a consume timestamp of the form yyyyMMddHHmmss, such as 20240131235959"
        ) from None


def start_time_ms(wanted: str | int | datetime | timedelta | None, now_ms: int) -> int:
    """The time that a TIMESTAMP consumer means: a moment, how long before its start, or half an hour when it says nothing."""
    match wanted:
        case None:
            return now_ms - DEFAULT_LOOK_BACK_MS
        case str():
            return _written_ms(wanted, now_ms)
        case datetime():
            return _moment_ms(wanted)
        case timedelta():
            return now_ms - int(wanted.total_seconds() * 1000)
    return wanted


def _written_ms(text: str, now_ms: int) -> int:
    """A time as on the command line, `2h` or `2024-01-31T23:59`, or as Java's consumers are told it."""
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
    except (ValueError, OverflowError, OSError):  # a local time whose zone reaches beyond the first year, or the last
        raise InvalidSetting(f"{moment.isoformat()} is no time that a broker could know") from None


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
        if start.place is StartPosition.MIN:
            return await self._calls.smallest(queue)
        if start.place is StartPosition.MAX:
            return await self._calls.largest(queue)
        return await self._calls.at_time(queue, self._start_time_ms)
