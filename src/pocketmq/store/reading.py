"""Reading a queue: which messages one pull gets, and where the next pull should begin.

    offset:   … < min            min … max - 1                      max            > max
    status:   OFFSET_TOO_SMALL   FOUND | NO_MATCH | REMOVED | HOLE   OVERFLOW_ONE   OVERFLOW_BADLY

Filtering happens on the queue entry (tag hash) before the log is touched. The next offset always moves past what was looked at,
found or not, so that no reader stands still at something that is not there. The answer is views into the log, neighbours
joined to one; nothing is copied here.
"""

from collections.abc import Callable, Collection
from enum import Enum, auto

import msgspec

from pocketmq.store.commit_log import CommitLog
from pocketmq.store.consume_queue import NOTHING_HERE_SIZE, ConsumeQueue
from pocketmq.store.settings import StoreSettings


class ReadStatus(Enum):
    """What became of a read; the next offset is where the reader should go on."""

    FOUND = auto()
    NO_MATCH = auto()
    """Messages are there, none passes the filter."""
    REMOVED = auto()
    """The queue has entries, but their messages are not in the log any more."""
    HOLE = auto()
    """A file of the queue is missing; the next offset is the first of the file behind it."""
    NO_QUEUE = auto()
    NO_MESSAGE = auto()
    """The queue never had a message."""
    OFFSET_TOO_SMALL = auto()
    OVERFLOW_ONE = auto()
    """Just behind the last message: all is read."""
    OVERFLOW_BADLY = auto()


class ReadResult(msgspec.Struct):
    """What a read found. `pieces` are views of whole records, in order; `far_behind`: a slave should serve this reader."""

    status: ReadStatus
    next_offset: int
    min_offset: int = 0
    max_offset: int = 0
    count: int = 0
    size: int = 0
    pieces: list[memoryview] = []
    far_behind: bool = False

    def body(self) -> bytes:
        """The records back to back, as they travel."""
        return b"".join(self.pieces)


Matches = Callable[[bytes], bool]
"""Decides on a whole record: for filters that need more than the tag's hash."""


class ReadLimits(msgspec.Struct, frozen=True):
    """How much one read gives. A reader far behind the end of the log reads from the disk and gets less at a time."""

    entries: int
    hot_bytes: int
    hot_count: int
    cold_bytes: int
    cold_count: int
    memory_bytes: int

    @classmethod
    def of(cls, settings: StoreSettings, memory_bytes: int) -> "ReadLimits":
        return cls(
            settings.max_read_entries,
            settings.hot_read_bytes,
            settings.hot_read_count,
            settings.cold_read_bytes,
            settings.cold_read_count,
            int(memory_bytes * settings.memory_ratio),
        )


def read_queue(
    queue: ConsumeQueue | None,
    log: CommitLog,
    limits: ReadLimits,
    offset: int,
    max_count: int,
    tag_codes: Collection[int] | None = None,
    matches: Matches | None = None,
) -> ReadResult:
    """Up to `max_count` messages of `queue` from `offset` on; a `max_count` below one means one."""
    if queue is None:
        return ReadResult(ReadStatus.NO_QUEUE, 0)
    low, high = queue.min_offset, queue.max_offset
    if high == 0:
        return ReadResult(ReadStatus.NO_MESSAGE, 0)
    if offset < low:
        return ReadResult(ReadStatus.OFFSET_TOO_SMALL, low, low, high)
    if offset >= high:
        status = ReadStatus.OVERFLOW_ONE if offset == high else ReadStatus.OVERFLOW_BADLY
        return ReadResult(status, high, low, high)
    result = ReadResult(ReadStatus.NO_MATCH, offset, low, high, pieces=[])
    _collect(result, queue, log, limits, offset, max(1, max_count), tag_codes, matches)
    return result


def _collect(
    result: ReadResult,
    queue: ConsumeQueue,
    log: CommitLog,
    limits: ReadLimits,
    offset: int,
    max_count: int,
    tag_codes: Collection[int] | None,
    matches: Matches | None,
) -> None:
    log_start, log_end = log.start, log.written
    cold_below = log_end - limits.memory_bytes
    hot_most, cold_most = min(max_count, limits.hot_count), min(max_count, limits.cold_count)
    hot_bytes, cold_bytes = limits.hot_bytes, limits.cold_bytes
    start, count, total = offset, 0, 0
    run_start = run_end = looked_at = -1
    for log_offset, size, tags_code in queue.entries(offset, max(limits.entries, max_count)):
        end = log_offset + size
        if log_offset < log_start or end > log_end or not 0 < size < NOTHING_HERE_SIZE:
            result.status = ReadStatus.REMOVED
            offset += 1
            continue
        if count and (
            (count >= hot_most or total + size > hot_bytes)
            if log_offset >= cold_below
            else (count >= cold_most or total + size > cold_bytes)
        ):
            break
        offset += 1
        looked_at = log_offset
        if tag_codes is not None and tags_code not in tag_codes:
            continue
        if matches is not None and not matches(bytes(log.view(log_offset, size))):
            continue
        count += 1
        total += size
        if log_offset != run_end:
            if run_end >= 0:
                result.pieces.append(log.view(run_start, run_end - run_start))
            run_start = log_offset
        run_end = end
    if count:
        result.status = ReadStatus.FOUND
        result.pieces.append(log.view(run_start, run_end - run_start))
    elif offset == start:
        result.status = ReadStatus.HOLE
        offset = min(queue.next_file(offset), result.max_offset)
    result.count, result.size, result.next_offset = count, total, offset
    result.far_behind = looked_at < cold_below
