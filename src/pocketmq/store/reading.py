"""Reading a queue: which messages one pull gets, and where the next pull should begin.

    offset:   … < min            min … max - 1              max            > max
    status:   OFFSET_TOO_SMALL   FOUND | NO_MATCH | REMOVED   OVERFLOW_ONE   OVERFLOW_BADLY

Filtering happens on the queue entry (tag hash) before the log is touched. The next offset always moves past what was looked at,
found or not, so that no reader stands still at something that is not there. It never moves past an entry that does not match the
log: `sound_entries` compares them, and raises QueueDamaged. The answer is views into the log, neighbours joined to one; nothing is
copied here.
"""

import struct
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from enum import Enum, auto
from functools import cache
from itertools import accumulate, chain

import msgspec

from pocketmq import compiled
from pocketmq.errors import QueueDamaged
from pocketmq.store.commit_log import CommitLog
from pocketmq.store.consume_queue import ENTRY, ENTRY_BYTES, NOTHING_HERE_SIZE, ConsumeQueue, Entry
from pocketmq.store.settings import MAX_ANSWER_BYTES, StoreSettings
from pocketmq.store.sound_entries import SoundEntries, points_to_message


class ReadStatus(Enum):
    """What became of a read; the next offset is where the reader should go on."""

    FOUND = auto()
    NO_MATCH = auto()
    """Messages are there, none passes the filter."""
    REMOVED = auto()
    """The queue has entries, but their messages are not in the log any more."""
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
    pieces: list[memoryview | bytes] = []
    far_behind: bool = False

    def body(self) -> bytes:
        """The records back to back, as they travel."""
        return b"".join(self.pieces)


Matches = Callable[[bytes], bool]
"""Decides on a whole record: for filters that need more than the tag's hash."""

HasTime = Callable[[], bool]
"""Whether a read may look at another record. Filters can be slow, and everybody else waits meanwhile."""


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
            min(settings.hot_read_bytes, MAX_ANSWER_BYTES),
            settings.hot_read_count,
            min(settings.cold_read_bytes, MAX_ANSWER_BYTES),
            settings.cold_read_count,
            int(memory_bytes * settings.memory_ratio),
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
    """Up to `max_count` messages of `queue` from `offset` on; a `max_count` below one means one. QueueDamaged when the entry at
    `offset` does not match the log.

    `has_time` is asked whenever `matches` did not want a message; when it has none, the reader comes again for the rest.
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
    result = ReadResult(ReadStatus.NO_MATCH, offset, low, high, pieces=[])
    if twin is not None and matches is None and _pick(twin, result, queue, sound, limits, max(1, max_count), tag_codes):
        return result
    if tag_codes is None and matches is None and _take_run(result, queue, sound.log, limits, offset, max_count):
        return result
    _collect(result, queue, sound, limits, offset, max(1, max_count), tag_codes, matches, has_time)
    return result


def _take_run(
    result: ReadResult, queue: ConsumeQueue, log: CommitLog, limits: ReadLimits, offset: int, max_count: int
) -> bool:
    """The usual pull: nothing is filtered, and all that it may have lies in the log in one piece, as a batch or a single
    producer left it. Then the entries are looked at together and not one by one. False: look at them one by one.
    """
    raw = queue.read(offset, min(max_count, limits.hot_count))
    count = len(raw) // ENTRY_BYTES
    if count < 2:
        return False
    numbers = _entries_of(count).unpack(raw)
    offsets, sizes = numbers[::3], numbers[1::3]
    start, end, total = offsets[0], offsets[-1] + sizes[-1], sum(sizes)
    if end - start != total or total > limits.hot_bytes or min(sizes) <= 0:
        return False
    if start < log.start or end > log.written or start < log.written - limits.memory_bytes:
        return False
    # Records of positive size that add up to the distance between both ends may still overlap: each must begin where the
    # one before it ended.
    if list(accumulate(sizes, initial=start))[:-1] != list(offsets):
        return False
    # If both ends are messages of this queue, those between them lie in this part of the log, whatever their entries say.
    if offset < queue.flushed_offset and not (
        points_to_message(log, queue, offset, numbers[:3])
        and points_to_message(log, queue, offset + count - 1, numbers[-3:])
    ):
        return False
    result.status, result.count, result.size, result.next_offset = ReadStatus.FOUND, count, total, offset + count
    result.pieces.append(log.view(start, total))
    return True


def _pick(
    twin: compiled.Twin,
    result: ReadResult,
    queue: ConsumeQueue,
    sound: SoundEntries,
    limits: ReadLimits,
    max_count: int,
    tag_codes: Collection[int] | None,
) -> bool:
    """What `_collect` does, by the compiled twin. False: the entries at hand do not tell all, look at them one by one."""
    offset, log = result.next_offset, sound.log
    hot_most, most = min(max_count, limits.hot_count), max(limits.entries, max_count)
    first = min(most if tag_codes is not None else hot_most + 1, most)
    entries = sound.read(queue, offset, first, tag_codes)
    if len(entries) < min(first, result.max_offset - offset) * ENTRY_BYTES:
        return False
    cold_below = log.written - limits.memory_bytes
    cold_most = min(max_count, limits.cold_count)
    bounds = (log.start, log.written, cold_below, hot_most, cold_most, limits.hot_bytes, limits.cold_bytes)
    stopped, removed, looked, looked_at, count, size, found = twin.pick_entries(entries, bounds, tag_codes, log.map_at)
    if not stopped and looked == first < most:
        return False
    if count:
        result.status = ReadStatus.FOUND
        result.pieces = [found] if isinstance(found, bytes) else [log.view(at, length) for at, length in found]
    elif removed:
        result.status = ReadStatus.REMOVED
    result.count, result.size, result.next_offset = count, size, offset + looked
    result.far_behind = looked_at < cold_below
    return True


def _rest(queue: ConsumeQueue, sound: SoundEntries, offset: int, count: int) -> Iterator[Entry]:
    """Entries that are read when they are asked for; none behind damage, which the next read meets first."""
    if count and offset < queue.max_offset:
        with suppress(QueueDamaged):
            yield from ENTRY.iter_unpack(sound.read(queue, offset, count))


@cache
def _entries_of(count: int) -> struct.Struct:
    """So many entries at once."""
    return struct.Struct(">" + "qiq" * count)


def _collect(
    result: ReadResult,
    queue: ConsumeQueue,
    sound: SoundEntries,
    limits: ReadLimits,
    offset: int,
    max_count: int,
    tag_codes: Collection[int] | None,
    matches: Matches | None,
    has_time: HasTime | None,
) -> None:
    log = sound.log
    log_start, log_end = log.start, log.written
    cold_below = log_end - limits.memory_bytes
    hot_most, cold_most = min(max_count, limits.hot_count), min(max_count, limits.cold_count)
    hot_bytes, cold_bytes = limits.hot_bytes, limits.cold_bytes
    count = total = 0
    run_start = run_end = looked_at = -1
    most = max(limits.entries, max_count)
    # Unfiltered, one more than it may have is enough to see where to stop; the rest is read if those are all gone.
    first = most if tag_codes is not None or matches is not None else min(hot_most + 1, most)
    raw = sound.read(queue, offset, first, tag_codes)
    # Before damage the entries end early.
    more = most - first if len(raw) == first * ENTRY_BYTES else 0
    for log_offset, size, tags_code in chain(ENTRY.iter_unpack(raw), _rest(queue, sound, offset + first, more)):
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
            if has_time is not None and not has_time():
                break
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
    result.count, result.size, result.next_offset = count, total, offset
    result.far_behind = looked_at < cold_below
