"""Queue entries for readers: entries from a file are compared with the log first.

    from memory                            this process made the entry from its record: it is right
    from a file, its message is returned   the record must have this size, queue, queue offset and log offset
    from a file, its tag does not match    the record is not read; some record of the topic must have this tags code
    "no message"                           the offset of the next record must follow the entries before it

An entry that fails is damage, and so is a missing or short file, or an entry that points to an earlier record than the
entry before it. A reader gets the entries before the damage. A read that begins at the damage raises QueueDamaged, and
`queue_repair` rebuilds the entries from the log.

One kind of damage is not detected: a wrong tags code that is the code of another tag of the same topic. A group that
filters by tag then misses the message, a group that reads all of the queue gets it, and `pocketmq store verify` reports
the entry.
"""

import struct
from collections.abc import Collection, Iterator
from typing import Final

from pocketmq import compiled
from pocketmq.errors import ProtocolError, QueueDamaged
from pocketmq.model import DelayLevels
from pocketmq.protocol.record import SMALLEST_RECORD, decode_record
from pocketmq.store.log.commit_log import CommitLog
from pocketmq.store.queues.consume_queue import (
    ENTRY,
    ENTRY_BYTES,
    NOTHING_HERE_SIZE,
    ConsumeQueue,
    Entry,
    is_message,
    log_offset_of,
    tags_code_of,
)

MAX_KNOWN_CODES: Final = 4096
"""The limits on remembered tags codes of a topic, and on remembered topics."""
UNKNOWN_STEP: Final = 100
"""The limit on records that one read checks because their tags codes are unknown."""
_HEAD = struct.Struct(">IIIiIqqI")
_HOST_V6_BYTES: Final = 12


def points_to_message(log: CommitLog, queue: ConsumeQueue, offset: int, entry: Entry) -> bool:
    """Whether the entry points to the message at `offset` of the queue. Reads the beginning of its record, and its
    topic.
    """
    log_offset, size, _ = entry
    if size < SMALLEST_RECORD or not log.start <= log_offset <= log.written - size:
        return False
    record = log.peek(log_offset, size)
    if record is None:
        return False
    found_size, magic, _, queue_id, _, queue_offset, at, flags = _HEAD.unpack_from(record)
    return (found_size, magic, queue_id, queue_offset, at) == (
        size,
        queue.record_magic,
        queue.queue_id,
        offset,
        log_offset,
    ) and _has_topic(record, flags, queue)


def _has_topic(record: memoryview, flags: int, queue: ConsumeQueue) -> bool:
    head = 88 + _HOST_V6_BYTES * ((flags >> 4 & 1) + (flags >> 5 & 1))
    at = head + int.from_bytes(record[head - 4 : head], "big")
    return record[at : at + len(queue.topic_field)] == queue.topic_field


def _lies_up_to(entry: Entry) -> int:
    """The log offset after which the record of the next entry begins."""
    return (entry[0] + entry[1] if is_message(entry) else log_offset_of(entry)) - 1


class SoundEntries:
    """Reads queue entries and checks them against the log. Owned by the store's thread."""

    def __init__(self, log: CommitLog, levels: DelayLevels, hot_bytes: int, twin: compiled.Twin | None) -> None:
        self.log = log
        self._levels = levels
        self._hot_bytes = hot_bytes
        self._twin = twin
        self._known: dict[str, set[int]] = {}

    def read(self, queue: ConsumeQueue, offset: int, count: int, tag_codes: Collection[int] | None = None) -> bytes:
        """Up to `count` entries from `offset` on, as bytes. The caller reads only records with `tag_codes`.

        Returns fewer entries if the next one is damaged, or takes too long to check. Raises QueueDamaged if that is
        the first one.
        """
        count = min(count, queue.max_offset - offset)
        if count <= 0:
            return b""
        raw = queue.read(offset, count)
        in_files = min(count, queue.flushed_offset - offset)
        if in_files <= 0:
            return raw
        # In the delay topic the code is a time, not a tag.
        wanted = None if queue.is_delay else tag_codes
        sound, is_damaged = self._count_sound(queue, offset, raw[: in_files * ENTRY_BYTES], wanted)
        if sound == in_files:
            return raw
        if not sound and is_damaged:
            raise QueueDamaged(queue.topic, queue.queue_id, offset)
        return raw[: sound * ENTRY_BYTES]

    def read_ahead(
        self, queue: ConsumeQueue, tag_codes: Collection[int] | None, offset: int, needed: int, ahead: int
    ) -> bytes:
        """`needed` entries, and up to `ahead` if their records are so new that they are in memory: then checking
        needs no disk access.
        """
        first = queue.entry(offset)
        is_hot = first is not None and first[0] >= self.log.written - self._hot_bytes
        return self.read(queue, offset, ahead if is_hot else needed, tag_codes)

    def entries(self, queue: ConsumeQueue, offset: int, count: int) -> Iterator[Entry]:
        """Up to `count` entries from `offset` on, each checked when it is yielded. Raises QueueDamaged at the first
        invalid one.
        """
        raw = queue.read(offset, count)
        flushed, before = queue.flushed_offset, -1
        for number, entry in enumerate(ENTRY.iter_unpack(raw), offset):
            if number < flushed and not self._is_sound(queue, number, entry, before):
                raise QueueDamaged(queue.topic, queue.queue_id, number)
            before = _lies_up_to(entry)
            yield entry
        found = offset + len(raw) // ENTRY_BYTES
        if found < min(offset + count, queue.max_offset):
            raise QueueDamaged(queue.topic, queue.queue_id, found)

    def entry(self, queue: ConsumeQueue, offset: int) -> Entry | None:
        """The entry at `offset`; None outside of the queue. Raises QueueDamaged if it is invalid."""
        return next(self.entries(queue, offset, 1), None) if queue.min_offset <= offset < queue.max_offset else None

    # checks

    def _count_sound(
        self, queue: ConsumeQueue, offset: int, raw: bytes, tag_codes: Collection[int] | None
    ) -> tuple[int, bool]:
        """How many entries from the first on are valid, and whether the next one is invalid."""
        count, sound, records_read, before = len(raw) // ENTRY_BYTES, 0, 0, -1
        known = self._known_codes(queue.topic) if tag_codes is not None else set()
        while True:
            passed = self._pass_regular(queue, offset + sound, raw[sound * ENTRY_BYTES :], before, tag_codes, known)
            sound += passed
            if sound == count:
                return sound, True  # if a file is missing, there are fewer bytes than entries
            if passed:
                before = _lies_up_to(ENTRY.unpack_from(raw, (sound - 1) * ENTRY_BYTES))
            entry = ENTRY.unpack_from(raw, sound * ENTRY_BYTES)
            is_left_out = tag_codes is not None and is_message(entry) and entry[2] not in tag_codes
            is_unknown = is_left_out and entry[2] not in known
            if is_unknown and records_read == UNKNOWN_STEP:
                return sound, False
            records_read += is_unknown
            if is_left_out and not is_unknown:
                is_sound = before < entry[0] and self.log.start <= entry[0] <= self.log.written - entry[1]
            else:
                is_sound = self._is_sound(queue, offset + sound, entry, before, with_code=is_unknown)
            if not is_sound:
                return sound, True
            if is_unknown and len(known) < MAX_KNOWN_CODES:
                known.add(entry[2])
            before = _lies_up_to(entry)
            sound += 1

    def _pass_regular(
        self,
        queue: ConsumeQueue,
        offset: int,
        raw: bytes,
        before: int,
        tag_codes: Collection[int] | None,
        known: Collection[int],
    ) -> int:
        """How many entries from the first on pass the quick check; 0 if the first needs a full check."""
        if self._twin is None or not raw:
            return 0
        queue_key, bounds = (queue.queue_id, queue.topic_bytes), (max(self.log.start, before + 1), self.log.written)
        return self._twin.count_sound(raw, offset, queue_key, bounds, tag_codes, known, self.log.map_at)

    def _is_sound(
        self, queue: ConsumeQueue, offset: int, entry: Entry, before: int, *, with_code: bool = False
    ) -> bool:
        """Whether an entry is valid, if records of the entries before it are before `before`."""
        if log_offset_of(entry) <= before:
            return False
        if entry[1] == NOTHING_HERE_SIZE:
            return entry[0] == 0 and self.log.start <= entry[2] <= self.log.end
        if not points_to_message(self.log, queue, offset, entry) and offset not in queue.irregular_offsets:
            return False
        return not with_code or entry[2] == self._code_of(entry)

    def _code_of(self, entry: Entry) -> int:
        """The tags code of an entry's record."""
        raw = self.log.record(entry[0])
        try:
            message = decode_record(raw or b"", check_crc=False)
        except ProtocolError:
            return entry[2]  # the reader of the record reports the damage
        return tags_code_of(message.raw_properties, False, message.store_ms, self._levels)

    def _known_codes(self, topic: str) -> set[int]:
        known = self._known.get(topic)
        if known is None:
            if len(self._known) >= MAX_KNOWN_CODES:
                self._known.clear()
            known = self._known[topic] = set()
        return known
