"""Reading a queue: the messages of one pull, and the offset of the next pull.

    offset:   … < min            min … max - 1              max            > max
    status:   OFFSET_TOO_SMALL   FOUND | NO_MATCH | REMOVED   OVERFLOW_ONE   OVERFLOW_BADLY

The queue entry (tag hash) is filtered before the log is read. The next offset is always behind the entries that were
read, whether they matched or not, so a reader never stops at a missing message. It never moves past an entry that does
not match the log: `sound_entries` compares them and raises QueueDamaged. The answer is views into the log, with
neighbours joined; nothing is copied here.

The offset of a queue at a time is found by bisection, because store times never decrease along a queue:

    LOWER   the first message stored at or after the time; the end of the queue if there is no such message
    UPPER   the last message stored at or before the time; the start of the queue if there is no such message
"""

from bisect import bisect_left
from collections.abc import Callable, Collection
from enum import Enum, auto

import msgspec

from pocketmq import compiled
from pocketmq.codes import BoundaryType
from pocketmq.store.log.commit_log import CommitLog
from pocketmq.store.queues.consume_queue import ENTRY, NOTHING_HERE_SIZE, ConsumeQueue, is_message, log_offset_of
from pocketmq.store.queues.sound_entries import SoundEntries
from pocketmq.store.settings import MAX_ANSWER_BYTES, StoreSettings


class ReadStatus(Enum):
    """The result of a read; the reader continues at the next offset."""

    FOUND = auto()
    NO_MATCH = auto()
    """There are messages, but none passes the filter."""
    REMOVED = auto()
    """The queue has entries, but their messages are no longer in the log."""
    NO_QUEUE = auto()
    NO_MESSAGE = auto()
    """The queue never had a message."""
    OFFSET_TOO_SMALL = auto()
    OVERFLOW_ONE = auto()
    """Just after the last message: all messages are read."""
    OVERFLOW_BADLY = auto()


class ReadResult(msgspec.Struct):
    """The result of a read. `pieces` are views of whole records, in order. `far_behind`: the reader should use a slave."""

    status: ReadStatus
    next_offset: int
    min_offset: int = 0
    max_offset: int = 0
    count: int = 0
    size: int = 0
    pieces: list[memoryview | bytes] = []
    far_behind: bool = False

    def body(self) -> bytes:
        """The records as one bytes object, as in a response."""
        return b"".join(self.pieces)


Matches = Callable[[bytes], bool]
"""Checks a whole record: for filters that need more than the tag's hash."""

HasTime = Callable[[], bool]
"""Whether a read may examine another record. Filters can be slow, and other requests wait meanwhile."""


class ReadLimits(msgspec.Struct, frozen=True):
    """The limits of one read. A reader far behind the end of the log reads from the disk and gets less at a time."""

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
            min(settings.hot_read_bytes, MAX_ANSWER_BYTES),
            settings.hot_read_count,
            min(settings.cold_read_bytes, MAX_ANSWER_BYTES),
            settings.cold_read_count,
            int(memory_bytes * settings.memory_ratio),
        )

    def bounds(self, log: CommitLog, max_count: int) -> compiled.ReadBounds:
        """The current limits of a read of up to `max_count` messages."""
        return compiled.ReadBounds(
            log.start,
            log.written,
            log.written - self.memory_bytes,
            self.hot_count,
            self.cold_count,
            self.hot_bytes,
            self.cold_bytes,
            self.entries,
            max_count,
        )


def read_queue(
    queue: ConsumeQueue | None,
    sound: SoundEntries,
    limits: ReadLimits,
    offset: int,
    max_count: int,
    tag_codes: Collection[int] | None = None,
    matches: Matches | None = None,
    twin: compiled.Twin | None = None,
    has_time: HasTime | None = None,
) -> ReadResult:
    """Up to `max_count` messages of `queue` from `offset` on; a `max_count` below one means one. Raises QueueDamaged
    if the entry at `offset` does not match the log. `has_time` is called after each message that `matches` rejects.
    If it returns False, the read ends, and the reader continues with the next pull.
    """
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
    log, max_count = sound.log, max(1, max_count)
    bounds = limits.bounds(log, max_count)
    most = max(limits.entries, max_count)
    # Without a filter, one entry more than the limit shows where to stop.
    first = most if tag_codes is not None or matches is not None else min(limits.hot_count + 1, max_count + 1, most)

    def pick(most: int) -> compiled.Picked:
        entries = sound.read(queue, offset, most, tag_codes)
        if twin is not None and matches is None:
            return compiled.Picked(*twin.pick_entries(entries, bounds, tag_codes, log.map_at))
        return _pick_entries(entries, bounds, log, tag_codes, matches, has_time)

    picked = pick(first)
    if not picked.stopped and picked.scanned == first < most:
        # Messages of these entries are deleted, so later ones may be within the limit.
        picked = pick(most)
    unfound = ReadStatus.REMOVED if picked.removed else ReadStatus.NO_MATCH
    return ReadResult(
        ReadStatus.FOUND if picked.messages else unfound,
        offset + picked.scanned,
        low,
        high,
        picked.messages,
        picked.size,
        [picked.found] if isinstance(picked.found, bytes) else [log.view(at, size) for at, size in picked.found],
        far_behind=picked.last_offset < bounds.cold_below,
    )


def _pick_entries(
    entries: bytes,
    bounds: compiled.ReadBounds,
    log: CommitLog,
    tag_codes: Collection[int] | None,
    matches: Matches | None,
    has_time: HasTime | None,
) -> compiled.Picked:
    """Selects messages for a reader, up to its limits."""
    log_start, log_end, cold_below, hot_count, cold_count, hot_bytes, cold_bytes, _, max_count = bounds
    hot_count, cold_count = min(hot_count, max_count), min(cold_count, max_count)
    scanned = count = total = 0
    run_start = run_end = last_offset = -1
    stopped = removed = False
    found: list[tuple[int, int]] = []
    for log_offset, size, tags_code in ENTRY.iter_unpack(entries):
        end = log_offset + size
        if log_offset < log_start or end > log_end or not 0 < size < NOTHING_HERE_SIZE:
            removed = True
            scanned += 1
            continue
        if count and (
            (count >= hot_count or total + size > hot_bytes)
            if log_offset >= cold_below
            else (count >= cold_count or total + size > cold_bytes)
        ):
            stopped = True
            break
        scanned += 1
        last_offset = log_offset
        if tag_codes is not None and tags_code not in tag_codes:
            continue
        if matches is not None and not matches(bytes(log.view(log_offset, size))):
            if has_time is not None and not has_time():
                stopped = True
                break
            continue
        count += 1
        total += size
        if log_offset != run_end:
            if run_end >= 0:
                found.append((run_start, run_end - run_start))
            run_start = log_offset
        run_end = end
    if count:
        found.append((run_start, run_end - run_start))
    return compiled.Picked(stopped, removed, scanned, last_offset, count, total, found)


def offset_at_time(
    queue: ConsumeQueue, sound: SoundEntries, when_ms: int, boundary: BoundaryType = BoundaryType.LOWER
) -> int:
    """The offset for `boundary`, between the queue's min and max. Raises QueueDamaged if an entry does not match the
    log.
    """
    if boundary is BoundaryType.LOWER:
        return _first_from(queue, sound, when_ms)
    return max(queue.min_offset, _first_from(queue, sound, when_ms + 1) - 1)


def _first_from(queue: ConsumeQueue, sound: SoundEntries, when_ms: int) -> int:
    """The first message stored at `when_ms` or later."""

    def is_late(offset: int) -> bool:
        entry = sound.entry(queue, offset)
        stored = None if entry is None else _store_ms_at(sound.log, log_offset_of(entry))
        return stored is not None and stored >= when_ms

    return bisect_left(range(queue.max_offset), True, queue.min_offset, key=is_late)


def store_ms_of(queue: ConsumeQueue, sound: SoundEntries, offset: int) -> int | None:
    """The store time of the message at `offset`; None if it is deleted."""
    entry = sound.entry(queue, offset)
    return _store_ms_at(sound.log, entry[0]) if entry is not None and is_message(entry) else None


def _store_ms_at(log: CommitLog, log_offset: int) -> int | None:
    return log.store_ms_at(log_offset) if log.start <= log_offset < log.written else None
