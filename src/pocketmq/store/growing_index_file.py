"""The index file that keys are being added to, and how it comes to the disk so that a crash leaves nothing false.

    put ──► slot table and new entries, in memory; look-ups see them at once

    flush   1  entries ──► file, sync       nobody points to them yet
            2  count   ──► file, sync       once the log is safe as far: the header counts them, but ends where it did
            3  slots   ──► file, sync       as they were at 1: they point to entries that are safe and counted
            4  header  ──► file, sync       as it was at 1, once the checkpoint says so

After a crash the end in the header is true, whatever else was in flight: each key up to there is safe and found. Entries behind
that end may be counted and have slots, or not. They are forgotten, their slots led back (`IndexFile.count_back`,
`put_slots_right`), and they are made again from the log.
The count comes before the slots for the sake of a RocketMQ broker that opens the store next. It repairs nothing: a slot that
points behind the count is an empty one to it, and with the slot go all older keys in it. It enters again what lies behind the end.
The checkpoint comes before the header because a file that is newer than the checkpoint is thrown away after a crash: RocketMQ
writes its newest file through a map, in any order.
"""

from collections.abc import Sequence
from contextlib import suppress
from enum import Enum, auto
from pathlib import Path
from typing import Final

from pocketmq import compiled
from pocketmq.errors import StoreDamaged
from pocketmq.files import Files
from pocketmq.store.index_file import (
    ENTRY,
    ENTRY_BYTES,
    HEADER,
    LARGEST_SECONDS,
    Entry,
    EntryBlocks,
    IndexFile,
    IndexHeader,
    IndexShape,
    KeyQuery,
    PlacedKey,
)
from pocketmq.store.packed_keys import PackedKeys
from pocketmq.store.slot_table import PAGE_MASK, PAGE_SHIFT, Piece, SlotTable

PENDING_BYTES: Final = 256 * 1024
"""New entries that are kept in memory; when there are more they go to the file, still unsynced."""

_pack_entry = ENTRY.pack


class _Step(Enum):
    """What the disk was last asked to sync."""

    NOTHING = auto()
    ENTRIES = auto()
    COUNT = auto()
    SLOTS = auto()
    HEADER = auto()


class GrowingIndexFile:
    """The newest file of an index, or one that became full and is not all on the disk yet. Owned by the store's thread."""

    def __init__(self, files: Files, path: Path, shape: IndexShape, header: IndexHeader) -> None:
        """Go on with the file at `path`, which is made when it is missing."""
        self.path = path
        self.shape = shape
        self._file = files.open(path, create=True)
        try:
            if self._file.size() != shape.file_bytes:
                self._file.truncate(shape.file_bytes)
        except OSError:
            self._file.close()
            if header.is_empty:
                with suppress(OSError):  # an empty file in between would look as if its keys were lost
                    files.unlink(path)
            raise
        self._slots = SlotTable(self._file, shape.slots)
        self._pending = bytearray()
        self._pending_from = header.next_number
        self._begin_ms, self._end_ms, self._begin_offset, self._end_offset, self._used_slots, self._next = header
        self._twin = compiled.twin()
        self._step = _Step.NOTHING
        self._snapshot: list[Piece] = []
        self._snapshot_header = header
        self._counted: IndexHeader | None = None
        self.safe_ms = header.end_ms
        """Keys of messages up to this store time are on the disk, though the header may not say so yet."""
        self.told_ms = header.end_ms
        """The header on the disk says so up to this store time."""

    @property
    def header(self) -> IndexHeader:
        return IndexHeader(
            self._begin_ms, self._end_ms, self._begin_offset, self._end_offset, self._used_slots, self._next
        )

    @property
    def is_full(self) -> bool:
        return self._next >= self.shape.entries

    def put(self, keys: Sequence[PlacedKey]) -> int:
        """Enter keys, as many as there is room for; how many that were. After an OSError, those before it are entered."""
        number = first = self._next
        keys = keys[: self.shape.entries - first]
        if not keys:
            return 0
        if first == 1:
            _, self._begin_offset, self._begin_ms = keys[0]
        if self._twin is not None:
            return self._put_compiled(self._twin, keys if isinstance(keys, PackedKeys) else PackedKeys.of(keys))
        begin_ms, pending, used_slots = self._begin_ms, self._pending, self._used_slots
        pages, read_page, dirty, slots = self._slots.pages, self._slots.read_page, self._slots.dirty, self.shape.slots
        last_ms, seconds = begin_ms, 0
        try:
            for key_hash, log_offset, store_ms in keys:
                if store_ms != last_ms:  # most come many to a turn, which has one store time
                    last_ms = store_ms
                    seconds = min(max(0, (store_ms - begin_ms) // 1000), LARGEST_SECONDS)
                slot = key_hash % slots
                number_of_page = slot >> PAGE_SHIFT
                page = pages[number_of_page] or read_page(number_of_page)
                slot &= PAGE_MASK
                previous = page[slot]
                page[slot] = number
                dirty[number_of_page] = 1
                if not previous:
                    used_slots += 1
                pending += _pack_entry(key_hash, log_offset, seconds, previous)
                number += 1
        finally:
            if number > first:
                _, self._end_offset, self._end_ms = keys[number - first - 1]
                self._next, self._used_slots = number, used_slots
        return number - first

    def _put_compiled(self, twin: compiled.Twin, keys: PackedKeys) -> int:
        """The same by the compiled twin, which leaves the reading of pages to us."""
        table, slots, begin_ms = self._slots, self.shape.slots, self._begin_ms
        done = 0
        while done < len(keys):
            entered, unused, entries = twin.enter_keys(
                keys.raw, done, table.pages, table.dirty, slots, self._next, begin_ms
            )
            if entered:
                done += entered
                self._pending += entries
                self._next += entered
                self._used_slots += unused
                _, self._end_offset, self._end_ms = keys[done - 1]
            if done < len(keys):
                table.read_page(keys[done][0] % slots >> PAGE_SHIFT)
        return done

    def make_room(self) -> None:
        """Write new entries to the file when many have gathered."""
        if len(self._pending) >= PENDING_BYTES:
            self._write_entries()

    def find(self, query: KeyQuery) -> None:
        """Add to `query` what this file knows."""
        number = self._slots[query.key_hash % self.shape.slots]
        on_disk = EntryBlocks(self._file, self.shape).entry

        def entry_at(number: int) -> Entry:
            at = (number - self._pending_from) * ENTRY_BYTES
            return ENTRY.unpack_from(self._pending, at) if at >= 0 else on_disk(number)

        query.follow(number, self._begin_ms, entry_at)

    def entry(self, number: int) -> Entry:
        at = (number - self._pending_from) * ENTRY_BYTES
        return ENTRY.unpack_from(self._pending, at) if at >= 0 else EntryBlocks(self._file, self.shape).entry(number)

    # to the disk

    @property
    def is_settled(self) -> bool:
        """Whether everything that was put is safe, the header included."""
        return self._step is _Step.NOTHING and self._snapshot_header.next_number == self._next

    @property
    def is_flushing(self) -> bool:
        """Whether a flush has begun and some of its steps are still to come."""
        return self._step is not _Step.NOTHING

    def flush(self, log_synced: int, checkpoint_ms: int) -> bool:
        """Take the next step; whether the file must be synced before the next call. After an OSError the step is open."""
        header = self._snapshot_header
        match self._step:
            case _Step.NOTHING:
                return self._begin_flush()
            case _Step.ENTRIES if log_synced <= header.end_offset:
                return False
            case _Step.ENTRIES if self._counted is not None:
                self._file.write_at(0, HEADER.pack(*self._counted))
                self._step = _Step.COUNT
                return True
            case _Step.ENTRIES | _Step.COUNT:
                for offset, data in self._snapshot:
                    self._file.write_at(offset, data)
                self._snapshot.clear()
                self._step = _Step.SLOTS
                return True
            case _Step.SLOTS:
                self.safe_ms = header.end_ms
                if checkpoint_ms < header.end_ms:
                    return False
                self._file.write_at(0, HEADER.pack(*header))
                self._step = _Step.HEADER
                return True
            case _Step.HEADER:
                self.told_ms = header.end_ms
                self._step = _Step.NOTHING
                return False

    def _begin_flush(self) -> bool:
        if self.is_settled:
            return False
        before = self._snapshot_header
        # Without older keys there are none to protect; and keys of one message on both sides of an end cannot be told apart.
        is_apart = not before.is_empty and self.entry(before.next_number)[1] > before.end_offset
        self._counted = before._replace(next_number=self._next) if is_apart else None
        self._write_entries()
        self._snapshot = self._slots.take_dirty()
        self._snapshot_header = self.header
        self._step = _Step.ENTRIES
        return True

    def _write_entries(self) -> None:
        if self._pending:
            self._file.write_at(self.shape.entries_at + self._pending_from * ENTRY_BYTES, self._pending)
            self._pending_from = self._next
            self._pending = bytearray()

    def close(self) -> None:
        """What is not flushed is lost; it is made again from the log."""
        self._file.close()


def put_slots_right(files: Files, index_file: IndexFile) -> int:
    """After a crash, lead slots that are ahead of the header back to entries that it counts; how many there were.

    The file is synced at once, because the entries behind the header's end are about to be overwritten. StoreDamaged when a
    slot does not lead back.
    """
    end, shape = index_file.header.next_number, index_file.shape
    with files.open(index_file.path) as file:
        if file.size() != shape.file_bytes:
            return 0  # nothing was ever written to it
        table = SlotTable(file, shape.slots)
        ahead = table.slots_outside(end)
        blocks = EntryBlocks(file, shape)
        for slot in ahead:
            table[slot] = _led_back(index_file, slot, table[slot], blocks)
        for offset, data in table.take_dirty():
            file.write_at(offset, data)
        if ahead:
            file.sync()
    return len(ahead)


def _led_back(index_file: IndexFile, slot: int, number: int, blocks: EntryBlocks) -> int:
    end, shape = index_file.header.next_number, index_file.shape
    while number >= end:
        if number < shape.entries:
            key_hash, _, _, previous = blocks.entry(number)
            if key_hash % shape.slots == slot and previous < number:
                number = previous
                continue
        raise StoreDamaged(f"slot {slot} of {index_file.path} points to entry {number}, which is not its own")
    if number < 0:
        raise StoreDamaged(f"slot {slot} of {index_file.path} points to entry {number}")
    return number
