"""The queries of a store: messages by queue, offset, key and time, the offsets of its queues, and its statistics.

    queue, offset ──► queue entries ──► log        pulls
    topic, key ─────► key index ──────► log        queries by key
    queue, time ────► search in the queue ──► log  seeks

Nothing here changes what is stored; `MessageStore` adds opening, closing and writing.
"""

import logging
from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from pocketmq import compiled
from pocketmq.codes import BoundaryType
from pocketmq.errors import ProtocolError, QueueDamaged, StoreDamaged
from pocketmq.files import DiskUsage
from pocketmq.model import StoredMessage
from pocketmq.model.durations import Durations
from pocketmq.protocol.record import decode_record
from pocketmq.store.parts import StoreParts
from pocketmq.store.queues.consume_queue import ConsumeQueue, Entry, is_message
from pocketmq.store.queues.sound_entries import SoundEntries
from pocketmq.store.reading import HasTime, Matches, ReadLimits, ReadResult, offset_at_time, read_queue, store_ms_of
from pocketmq.store.retention import Dropped
from pocketmq.store.settings import LOG_FOLDER, MIB
from pocketmq.store.upkeep import Upkeep

MAX_KEY_RESULTS: Final = 64
MAX_KEY_BYTES: Final = 4 * MIB
"""The limit on messages of one query by key; the first one is returned at any size."""

T = TypeVar("T")

log = logging.getLogger("pocketmq.store")


class ReadableStore:
    """The reading half of a store. Owned by the store's thread.

    Entries of queues that do not match the log are rebuilt from it; QueueDamaged is raised if that takes longer.
    """

    def __init__(self, parts: StoreParts, on_dropped: Callable[[Dropped], None]) -> None:
        self._parts = parts
        self._log, self._queues, self._index = parts.log, parts.queues, parts.index
        self._upkeep = Upkeep(parts, on_dropped)
        self._limits = ReadLimits.of(parts.settings, parts.memory_bytes)
        self._twin = compiled.twin()
        settings = parts.settings
        self._sound = SoundEntries(parts.log, settings.delay_levels, self._limits.memory_bytes, self._twin)

    def find_queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """A queue. Its start is updated before the return, although other queues are updated a few at a time: a
        reader must get an error for deleted messages.
        """
        queue = self._queues.find(topic, queue_id)
        if queue is not None and queue.log_start < self._log.start:
            queue.raise_min(self._log.start)
        return queue

    def read(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int,
        tag_codes: Collection[int] | None = None,
        matches: Matches | None = None,
        has_time: HasTime | None = None,
    ) -> ReadResult:
        """Messages of a queue from `offset` on; see `reading`."""
        args = self._limits, offset, max_count, tag_codes, matches, self._twin, has_time
        queue = self.find_queue(topic, queue_id)
        try:
            return read_queue(queue, self._sound, *args)
        except QueueDamaged as damage:
            self._repair(damage)
        return read_queue(self.find_queue(topic, queue_id), self._sound, *args)

    def _repair(self, damage: QueueDamaged, *, waits: bool = False) -> None:
        """Rebuild the damaged entries. Raises the damage if that is not done at once, or, for a caller that `waits`,
        if it fails.
        """
        if not self._upkeep.repair.repair_now(damage, waits=waits):
            raise damage

    def _repaired(self, look: Callable[[], T]) -> T:
        """The result of `look`, after the repair of a queue if necessary."""
        try:
            return look()
        except QueueDamaged as damage:
            self._repair(damage)
        return look()

    def entries(self, queue: ConsumeQueue, offset: int, count: int, *, waits: bool = False) -> Iterator[Entry]:
        """Up to `count` entries from `offset` on, each checked against the log when it is yielded; empty before the
        first message.
        """
        end, repaired_at = min(offset + count, queue.max_offset), -1
        while queue.min_offset <= offset < end:
            try:
                for entry in self._sound.entries(queue, offset, end - offset):
                    yield entry
                    offset += 1
            except QueueDamaged as damage:
                if damage.offset == repaired_at:
                    raise
                self._repair(damage, waits=waits)
                repaired_at = damage.offset

    def entry(self, queue: ConsumeQueue, offset: int) -> Entry | None:
        """The entry at `offset`; None if there is none."""
        return self._repaired(lambda: self._sound.entry(queue, offset))

    def first_at_or_beyond(self, queue: ConsumeQueue, log_offset: int) -> int:
        """Offset of the first entry that points at or beyond `log_offset`; the end of the queue if there is none.
        Waits for a repair.
        """
        while True:
            found = queue.first_at_or_beyond(log_offset)
            try:
                # The search is right if both entries around its result are valid.
                self._sound.entry(queue, found - 1)
                self._sound.entry(queue, found)
            except QueueDamaged as damage:
                self._repair(damage, waits=True)
            else:
                return found

    def entry_reader(self, queue: ConsumeQueue, tag_codes: Collection[int] | None) -> Callable[[int, int, int], bytes]:
        """For repeated reads of a queue: returns a number of entries from an offset on, and more ahead."""
        return partial(self._sound.read_ahead, queue, tag_codes)

    def log_bytes(self, log_offset: int, most: int) -> bytes:
        """Up to `most` bytes of one log file from `log_offset` on; none outside of the log."""
        return self._log.bytes_at(log_offset, most)

    def read_bounds(self, max_count: int) -> compiled.ReadBounds:
        """The current limits of `read`, for pulls that read queues by `find_queue` and `map_at`."""
        return self._limits.bounds(self._log, max_count)

    @property
    def map_at(self) -> Callable[[int], tuple[memoryview | None, int]]:
        """All bytes of the log file with an offset, and its first offset; None if it is not in the log."""
        return self._log.map_at

    def record(self, log_offset: int) -> bytes | None:
        """The record that begins at `log_offset`; None if there is none."""
        return self._log.record(log_offset)

    def message(self, log_offset: int) -> StoredMessage | None:
        """The message that begins at `log_offset`; None if there is none. Raises StoreDamaged if it is damaged."""
        raw = self._log.record(log_offset)
        try:
            return None if raw is None else decode_record(raw)
        except ProtocolError as error:
            raise StoreDamaged(f"the log is damaged at offset {log_offset}: {error}") from error

    def find_by_key(
        self, topic: str, key: str, limit: int, begin_ms: int = 0, end_ms: int = 2**63 - 1, *, unique: bool = False
    ) -> list[StoredMessage]:
        """Messages of `topic` with this key (or this unique key), newest first; fewer if they are large."""
        self._upkeep.index_now()
        offsets = self._index.find(topic, key, begin_ms, end_ms, min(limit, MAX_KEY_RESULTS))
        found: list[StoredMessage] = []
        left = MAX_KEY_BYTES
        # After a crash, RocketMQ indexes some messages twice.
        for message in map(self._message_if_sound, dict.fromkeys(offsets)):
            # The index compares hashes and whole seconds: another key may have the same hash, and the time may be
            # just outside.
            if (
                message is not None
                and message.topic == topic
                and begin_ms <= message.store_ms <= end_ms
                and (message.properties.get("UNIQ_KEY") == key if unique else key in message.keys)
            ):
                left -= message.size
                if found and left < 0:
                    break
                found.append(message)
        return found

    def _message_if_sound(self, log_offset: int) -> StoredMessage | None:
        """One damaged message must not hide the others that have its key."""
        try:
            return self.message(log_offset)
        except StoreDamaged as damage:
            log.error("query skipped a damaged record: %s", damage)
            return None

    # offsets of queues

    def min_offset(self, topic: str, queue_id: int) -> int:
        queue = self.find_queue(topic, queue_id)
        return 0 if queue is None else queue.min_offset

    def max_offset(self, topic: str, queue_id: int) -> int:
        queue = self.find_queue(topic, queue_id)
        return 0 if queue is None else queue.max_offset

    def offset_at_time(
        self, topic: str, queue_id: int, when_ms: int, boundary: BoundaryType = BoundaryType.LOWER
    ) -> int:
        queue = self.find_queue(topic, queue_id)
        if queue is None:
            return 0
        return self._repaired(lambda: offset_at_time(queue, self._sound, when_ms, boundary))

    def is_in_memory(self, topic: str, queue_id: int, offset: int) -> bool:
        """Whether the message at `offset` exists and is so new that reading it needs no disk access."""
        queue = self.find_queue(topic, queue_id)
        entry = None if queue is None else self.entry(queue, offset)
        return entry is not None and is_message(entry) and entry[0] >= self._log.written - self._limits.memory_bytes

    def store_ms(self, topic: str, queue_id: int, offset: int) -> int | None:
        """The store time of the message at `offset`; None if it does not exist."""
        queue = self.find_queue(topic, queue_id)
        if queue is None:
            return None
        try:
            return self._repaired(lambda: store_ms_of(queue, self._sound, offset))
        except QueueDamaged:
            return None  # for statistics, which cannot wait for the repair

    def topics(self) -> list[str]:
        """Topics that have queues, even if they are not in the topic table."""
        return list(dict.fromkeys(queue.topic for queue in self._queues))

    def queue_ends(self) -> dict[str, dict[int, int]]:
        """The largest offset, exclusive, of every queue, by topic and queue id."""
        found: dict[str, dict[int, int]] = {}
        for queue in self._queues:
            found.setdefault(queue.topic, {})[queue.queue_id] = queue.max_offset
        return found

    def topic_queues(self) -> dict[str, int]:
        """Topics that have messages, each with its minimum number of queues: one more than the largest id."""
        found: dict[str, int] = {}
        for queue in self._queues:
            if queue.max_offset > queue.min_offset:
                found[queue.topic] = max(found.get(queue.topic, 0), queue.queue_id + 1)
        return found


class StoreFacts:
    """Facts about an open store. Call it on the store's thread."""

    def __init__(self, parts: StoreParts) -> None:
        self._parts = parts

    # the log

    @property
    def log_folder(self) -> Path:
        return self._parts.settings.folder / LOG_FOLDER

    @property
    def log_start(self) -> int:
        """The first log offset that is kept."""
        return self._parts.log.start

    @property
    def log_end(self) -> int:
        """The log offset after everything acknowledged so far."""
        return self._parts.log.end

    @property
    def log_written(self) -> int:
        """The log offset after everything that is written, and can be read."""
        return self._parts.log.written

    @property
    def indexed_to(self) -> int:
        """Queries find the keys of all messages before this log offset."""
        return self._parts.index_builder.indexed_to

    @property
    def earliest_ms(self) -> int | None:
        """The store time of the oldest message in the log; None if there is none."""
        log = self._parts.log
        return log.store_ms_at(log.start) if log.written > log.start else None

    @property
    def unsynced_bytes(self) -> int:
        """Acknowledged bytes that are not synced yet."""
        return self._parts.log.end - self._parts.log.synced

    @property
    def log_files(self) -> int:
        return len(self._parts.log.segments.files)

    @property
    def sync_times(self) -> Durations:
        """The duration of each sync of the log."""
        return self._parts.flusher.sync_times

    # since the store was opened

    @property
    def messages_accepted(self) -> int:
        return self._parts.messages_accepted

    @property
    def bytes_accepted(self) -> int:
        """Bytes added to the log, including the filler at the end of its files."""
        return self._parts.log.end - self._parts.opened_at

    # derived files

    @property
    def behind_bytes(self) -> int:
        """The distance of the derived files from the end of the log: entries of queues, and keys if they are indexed."""
        parts = self._parts
        made_to = parts.log.written
        if parts.settings.index_enabled:
            made_to = min(made_to, max(parts.index_builder.indexed_to, parts.log.start))
        return parts.log.end - made_to

    @property
    def unreadable_bytes(self) -> int:
        """The distance of the queues from the end of the log: acknowledged bytes that are still in the transient pool."""
        return self._parts.log.end - self._parts.log.written

    @property
    def last_indexed(self) -> tuple[int, int]:
        """Store time and log offset of the last indexed message; zeros if there is none."""
        log, offset = self._parts.log, self._parts.index.indexed_to
        return (log.store_ms_at(offset), offset) if log.start <= offset < log.written else (0, 0)

    @property
    def unindexed_bytes(self) -> int:
        """The distance of the key index from the written end of the log."""
        parts = self._parts
        return max(0, parts.log.written - max(parts.index_builder.indexed_to, parts.log.start))

    @property
    def queues(self) -> int:
        return len(self._parts.queues)

    @property
    def damaged_ranges(self) -> int:
        """How often entries of a consume queue did not match the log."""
        return self._parts.damaged_ranges

    @property
    def repaired_entries(self) -> int:
        """Entries of consume queues that were rebuilt from the log."""
        return self._parts.repaired_entries

    @property
    def unsaved_queues(self) -> int:
        """Queues with entries that are only in memory; they can be rebuilt from the log."""
        return self._parts.queues.dirty_count

    # the disk

    @property
    def disk(self) -> DiskUsage:
        return self._parts.files.usage(self._parts.settings.folder)

    @property
    def dropped_needed_files(self) -> int:
        """Log files that a full disk forced to delete with undelivered delayed messages."""
        return self._parts.dropped_needed_files

    @property
    def free_pool_buffers(self) -> int | None:
        """Free buffers of the transient pool; None if there is no pool."""
        return None if self._parts.pool is None else self._parts.pool.free_buffers
