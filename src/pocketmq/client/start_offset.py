"""Start offsets: where a group begins in a queue that it just got.

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

from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import Enum
from typing import Final, NamedTuple

from pocketmq.errors import InvalidSetting
from pocketmq.protocol.bodies.heartbeat import ConsumeFromWhere

DEFAULT_LOOK_BACK_MS: Final = 30 * 60 * 1000
"""A TIMESTAMP consumer that names no time begins so long before its start."""
TIMESTAMP_FORMAT: Final = "%Y%m%d%H%M%S"
"""Java's yyyyMMddHHmmss, in local time."""


class StartPlace(Enum):
    """What the first offset is."""

    STORED = "stored"
    MIN = "min"
    MAX = "max"
    BY_TIME = "by time"


class Start(NamedTuple):
    """Where to begin, and why. `offset` is known when the place is STORED; for all others the broker has to be asked."""

    place: StartPlace
    reason: str
    offset: int | None = None


_BY_WISH: Final[dict[ConsumeFromWhere, Start]] = {
    ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET: Start(
        StartPlace.MIN, "the group is new and reads from the first message"
    ),
    ConsumeFromWhere.CONSUME_FROM_TIMESTAMP: Start(StartPlace.BY_TIME, "the group is new and reads from a time on"),
}
_LAST: Final = Start(StartPlace.MAX, "the group is new and reads only what comes from now on")
"""Also what RocketMQ makes of the three old words."""
_RETRY: Final = Start(StartPlace.MIN, "it holds the group's own retries, none of which was handled yet")
_LATER: Final = Start(StartPlace.MIN, "the queue appeared after the group had begun with its topic")


def start_of(stored: int | None, wish: ConsumeFromWhere, *, is_retry: bool, is_later: bool) -> Start:
    """Where a group begins in a queue.

    `stored` is its committed offset, None when the broker has none; `is_retry` says that the queue is of a retry topic,
    `is_later` that it appeared after the group began with the topic.
    """
    if stored is not None and stored >= 0:
        return Start(StartPlace.STORED, "the group has been here before", stored)
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
            f"start_at = {text!r} is not 'first' or 'earliest', 'last' or 'latest', nor a consume timestamp of the form "
            "yyyyMMddHHmmss, such as 20240131235959"
        ) from None


def start_time_ms(wanted: str | int | datetime | timedelta | None, now_ms: int) -> int:
    """The time that a TIMESTAMP consumer means: a moment, how long before its start, or half an hour when it says nothing."""
    match wanted:
        case None:
            return now_ms - DEFAULT_LOOK_BACK_MS
        case str():
            return parse_timestamp(wanted)
        case datetime():
            return _moment_ms(wanted)
        case timedelta():
            return now_ms - int(wanted.total_seconds() * 1000)
    return wanted


def _moment_ms(moment: datetime) -> int:
    try:
        return int(moment.timestamp() * 1000)
    except (ValueError, OverflowError, OSError):  # a local time whose zone reaches beyond the first year, or the last
        raise InvalidSetting(f"{moment.isoformat()} is no time that a broker could know") from None
