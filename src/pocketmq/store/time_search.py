"""The offset of a queue at a time, by bisection: store times never decrease along a queue.

LOWER   the first message stored at or after the time; the end of the queue when there is none
UPPER   the last message stored at or before the time; the start of the queue when there is none
"""

from pocketmq.codes import BoundaryType
from pocketmq.store.commit_log import CommitLog
from pocketmq.store.consume_queue import ConsumeQueue, is_message, log_offset_of
from pocketmq.store.sound_entries import SoundEntries


def offset_at_time(
    queue: ConsumeQueue, sound: SoundEntries, when_ms: int, boundary: BoundaryType = BoundaryType.LOWER
) -> int:
    """The offset that `boundary` asks for, between the queue's min and max. QueueDamaged where an entry does not match the log."""
    if boundary is BoundaryType.LOWER:
        return _first_from(queue, sound, when_ms)
    return max(queue.min_offset, _first_from(queue, sound, when_ms + 1) - 1)


def _first_from(queue: ConsumeQueue, sound: SoundEntries, when_ms: int) -> int:
    """The first message stored at `when_ms` or later."""
    low, high = queue.min_offset, queue.max_offset
    while low < high:
        middle = (low + high) // 2
        entry = sound.entry(queue, middle)
        stored = None if entry is None else _store_ms_at(sound.log, log_offset_of(entry))
        if stored is None or stored < when_ms:
            low = middle + 1
        else:
            high = middle
    return low


def store_ms_of(queue: ConsumeQueue, sound: SoundEntries, offset: int) -> int | None:
    """When the message at `offset` was stored; None when there is no such message any more."""
    entry = sound.entry(queue, offset)
    return _store_ms_at(sound.log, entry[0]) if entry is not None and is_message(entry) else None


def _store_ms_at(log: CommitLog, log_offset: int) -> int | None:
    return log.store_ms_at(log_offset) if log.start <= log_offset < log.written else None
