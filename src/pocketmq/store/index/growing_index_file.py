"""The index file that keys are added to, its slot table, and the order of its writes, so that a crash leaves nothing false.

    put ──► slot table and new entries, in memory; queries see them at once

    flush   1  entries ──► file, sync       nothing points to them yet
            2  count   ──► file, sync       once the log is synced as far: the header counts them, its end stays
            3  slots   ──► file, sync       as of step 1: they point to entries that are safe and counted
            4  header  ──► file, sync       as of step 1, once the checkpoint covers it

After a crash the end in the header is true: each key up to there is safe and found. Entries behind that end may be
counted and have slots, or not. They are removed (`IndexFile.count_back`, `put_slots_right`) and added again from the log.
The count is written before the slots for a RocketMQ broker that opens the store next. It repairs nothing: it treats a
slot that points behind the count as empty, and all older keys of the slot are lost with it.
The checkpoint is written before the header because RocketMQ writes its newest file through a map, in any order. So a
file that is newer than the checkpoint is deleted after a crash.

`SlotTable` is the slot table of one file: for each slot, the number of its newest entry.

    file     big-endian, 4 bytes a slot, behind the header
    memory   pages of 1024 slots, each an array of native integers; a page is read when it is first needed, and written
             back whole when it changed

`PackedKeys` are keys to add, as bytes that the C twin reads from the log and adds to the file. A tuple of three numbers
for each key of each message would cost more than to find the key. Iteration returns tuples.

    | key hash 4 | log offset 8 | store ms 8 |   repeated, in native byte order
"""

import struct
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from enum import Enum, auto
from functools import partial
from pathlib import Path
from sys import byteorder
from typing import Final, NamedTuple, Self, overload

from pocketmq import compiled
from pocketmq.errors import StoreDamaged
from pocketmq.files import File, Files
from pocketmq.store.index.index_file import (
    ENTRY,
    ENTRY_BYTES,
    HEADER,
    HEADER_BYTES,
    LARGEST_SECONDS,
    SLOT_BYTES,
    Entry,
    EntryBlocks,
    IndexFile,
    IndexHeader,
    IndexShape,
    KeyEntry,
    KeyQuery,
)

PAGE_SHIFT: Final = 10
PAGE_SLOTS: Final = 1 << PAGE_SHIFT
PAGE_MASK: Final = PAGE_SLOTS - 1
_PAGE_BYTES: Final = PAGE_SLOTS * SLOT_BYTES

Piece = tuple[int, bytes]
"""Bytes and their position in the file."""


class SlotTable:
    """The slot table. Slot s is `pages[s >> PAGE_SHIFT][s & PAGE_MASK]`, once that page is read; a writer marks the
    page dirty.
    """

    __slots__ = ("_file", "_slots", "dirty", "pages")

    def __init__(self, file: File, slots: int) -> None:
        self._file = file
        self._slots = slots
        self.pages: list[array[int] | None] = [None] * (-(-slots // PAGE_SLOTS))
        self.dirty = bytearray(len(self.pages))

    def read_page(self, page: int) -> "array[int]":
        """Read a page that is not in memory yet."""
        first = page << PAGE_SHIFT
        size = min(PAGE_SLOTS, self._slots - first) * SLOT_BYTES
        numbers = array("i", self._file.read_at(HEADER_BYTES + first * SLOT_BYTES, size))
        if byteorder == "little":
            numbers.byteswap()
        self.pages[page] = numbers
        return numbers

    def __getitem__(self, slot: int) -> int:
        page = slot >> PAGE_SHIFT
        return (self.pages[page] or self.read_page(page))[slot & PAGE_MASK]

    def __setitem__(self, slot: int, number: int) -> None:
        page = slot >> PAGE_SHIFT
        (self.pages[page] or self.read_page(page))[slot & PAGE_MASK] = number
        self.dirty[page] = 1

    def slots_outside(self, end: int) -> list[int]:
        """The slots whose number is negative, or `end` or more. Reads every written part of the table."""
        found = []
        table_end = HEADER_BYTES + self._slots * SLOT_BYTES
        at = self._file.next_data(HEADER_BYTES)
        while at is not None and at < table_end:
            page = (at - HEADER_BYTES) // _PAGE_BYTES
            numbers = self.pages[page] or self.read_page(page)
            if max(numbers) >= end or min(numbers) < 0:
                first = page << PAGE_SHIFT
                found += [first + slot for slot, number in enumerate(numbers) if not 0 <= number < end]
            at = self._file.next_data(HEADER_BYTES + (page + 1) * _PAGE_BYTES)
        return found

    def take_dirty(self) -> list[Piece]:
        """A copy of the pages that changed since the last call; adjacent pages are joined."""
        pieces = []
        dirty, clean = self.dirty, bytearray(len(self.dirty))
        first = dirty.find(1)
        while first >= 0:
            behind = dirty.find(0, first)
            behind = len(dirty) if behind < 0 else behind
            pages = [_file_bytes(page) for page in self.pages[first:behind] if page is not None]
            pieces.append((HEADER_BYTES + first * _PAGE_BYTES, b"".join(pages)))
            first = dirty.find(1, behind)
        self.dirty = clean  # only now: if memory is too short for a copy, all pages stay dirty
        return pieces


def _file_bytes(page: "array[int]") -> bytes:
    if byteorder == "little":
        page = page[:]
        page.byteswap()
    return page.tobytes()


_KEY: Final = struct.Struct("=iqq")
KEY_BYTES: Final = 20


class PackedKeys(Sequence[KeyEntry]):
    """A sequence of keys; `raw` contains their bytes."""

    __slots__ = ("raw",)

    def __init__(self, raw: bytes) -> None:
        self.raw = raw

    @classmethod
    def of(cls, keys: Iterable[KeyEntry]) -> Self:
        return cls(b"".join([_KEY.pack(*key) for key in keys]))

    def __len__(self) -> int:
        return len(self.raw) // KEY_BYTES

    def __iter__(self) -> Iterator[KeyEntry]:
        return _KEY.iter_unpack(self.raw)

    @overload
    def __getitem__(self, at: int) -> KeyEntry: ...

    @overload
    def __getitem__(self, at: slice) -> "PackedKeys": ...

    def __getitem__(self, at: int | slice) -> "KeyEntry | PackedKeys":
        if isinstance(at, int):
            return _KEY.unpack_from(self.raw, range(len(self))[at] * KEY_BYTES)
        start, stop, step = at.indices(len(self))
        if step != 1:
            raise ValueError("slices of keys have no step")
        return PackedKeys(self.raw[start * KEY_BYTES : stop * KEY_BYTES])


PENDING_BYTES: Final = 256 * 1024
"""When so many new entries are in memory, they are written to the file, unsynced."""
PENDING_WRITES: Final = 4
"""How many such writes may be pending; then the file takes no more entries until the disk accepts a write."""

_pack_entry = ENTRY.pack


class Write(NamedTuple):
    """A write that an index file needs. After a failure, the file asks for it again."""

    make: Callable[[], object]
    """May block: a thread can call it."""
    done: Callable[[], object]
    """The owner calls this when the write is made, before the next write."""
    to_sync: tuple[Path, ...] = ()
    """To sync before the next step of a flush."""

    def now(self) -> None:
        """Make the write, and wait for the disk."""
        self.make()
        self.done()


class _Step(Enum):
    """The step of a flush that is written; its sync is running or done."""

    NOTHING = auto()
    BEGUN = auto()
    ENTRIES = auto()
    COUNT = auto()
    SLOTS = auto()
    HEADER = auto()


class GrowingIndexFile:
    """The newest file of an index, or a full file that is not completely on the disk yet. Owned by the store's thread."""

    def __init__(self, files: Files, path: Path, shape: IndexShape, header: IndexHeader) -> None:
        """Continue the file at `path`, which is created if it is missing."""
        self.path = path
        self.shape = shape
        self._file = files.open(path, create=True)
        try:
            if self._file.size() != shape.file_bytes:
                self._file.truncate(shape.file_bytes)
            self._slots = SlotTable(self._file, shape.slots)
        except (OSError, MemoryError):
            self._file.close()
            if header.is_empty:
                with suppress(OSError):  # an empty file before it would look as if its keys were lost
                    files.unlink(path)
            raise
        self._pending = bytearray()
        self._pending_from = header.next_number
        self._begin_ms, self._end_ms, self._begin_offset, self._end_offset, self._used_slots, self._next = header
        self._twin = compiled.twin()
        self._step = _Step.NOTHING
        self._snapshot: list[Piece] = []
        self._snapshot_header = header
        self._counted: IndexHeader | None = None
        self.safe_ms = header.end_ms
        """Keys of messages up to this store time are on the disk, although the header may not cover them yet."""
        self.recorded_ms = header.end_ms
        """The header on disk covers keys up to this store time."""

    @property
    def header(self) -> IndexHeader:
        return IndexHeader(
            self._begin_ms, self._end_ms, self._begin_offset, self._end_offset, self._used_slots, self._next
        )

    @property
    def end_offset(self) -> int:
        """Log offset of the last message that was entered; -1 if there is none. The header contains it only after a
        flush.
        """
        return self._end_offset if self._next > 1 else -1

    @property
    def is_full(self) -> bool:
        return self._next >= self.shape.entries

    @property
    def takes_keys(self) -> bool:
        """Whether the file takes entries now."""
        return self._next < self.shape.entries and len(self._pending) < PENDING_WRITES * PENDING_BYTES

    def put(self, keys: Sequence[KeyEntry]) -> int:
        """Add as many keys as fit; returns how many. After an error, the keys before it are added."""
        number = first = self._next
        keys = keys[: self.shape.entries - first]
        if not keys:
            return 0
        if first == 1:
            _, self._begin_offset, self._begin_ms = keys[0]
        if self._twin is not None:
            return self._put_compiled(self._twin, keys if isinstance(keys, PackedKeys) else PackedKeys.of(keys))
        begin_ms, pending, used_slots = self._begin_ms, self._pending, self._used_slots
        end_offset, end_ms = self._end_offset, self._end_ms
        pages, read_page, dirty, slots = self._slots.pages, self._slots.read_page, self._slots.dirty, self.shape.slots
        last_ms, seconds = begin_ms, 0
        try:
            for key_hash, log_offset, store_ms in keys:
                if store_ms != last_ms:  # most messages come in large turns, and a turn has one store time
                    last_ms = store_ms
                    seconds = min(max(0, (store_ms - begin_ms) // 1000), LARGEST_SECONDS)
                slot = key_hash % slots
                number_of_page = slot >> PAGE_SHIFT
                page = pages[number_of_page] or read_page(number_of_page)
                slot &= PAGE_MASK
                previous = page[slot]
                next_number, next_used = number + 1, used_slots + (not previous)
                pending += _pack_entry(key_hash, log_offset, seconds, previous)
                # Nothing below allocates memory, so a slot never points to a missing entry.
                page[slot] = number
                dirty[number_of_page] = 1
                number, used_slots, end_offset, end_ms = next_number, next_used, log_offset, store_ms
        finally:
            self._next, self._used_slots, self._end_offset, self._end_ms = number, used_slots, end_offset, end_ms
        return number - first

    def _put_compiled(self, twin: compiled.Twin, keys: PackedKeys) -> int:
        """The same with the C twin. Only this class reads pages."""
        table, slots, begin_ms = self._slots, self.shape.slots, self._begin_ms
        done = 0
        while done < len(keys):
            entered, unused, entries = twin.enter_keys(
                keys.raw, done, table.pages, table.dirty, slots, self._next, begin_ms
            )
            if entered:
                try:
                    done += entered
                    _, end_offset, end_ms = keys[done - 1]
                    next_number, used_slots = self._next + entered, self._used_slots + unused
                    self._pending += entries
                except BaseException:
                    twin.withdraw_keys(entries, table.pages, table.dirty, slots)
                    raise
                self._next, self._used_slots = next_number, used_slots
                self._end_offset, self._end_ms = end_offset, end_ms
            if done < len(keys):
                page = keys[done][0] % slots >> PAGE_SHIFT
                if table.pages[page] is None:  # memory was short: the next call retries, or raises
                    table.read_page(page)
        return done

    def surplus(self) -> Write | None:
        """The write of new entries when there are many."""
        return self._entries_write() if len(self._pending) >= PENDING_BYTES else None

    def find(self, query: KeyQuery) -> None:
        """Add the entries of this file to `query`."""
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
        """Whether all keys are safe, including the header."""
        return self._step is _Step.NOTHING and self._snapshot_header.next_number == self._next

    @property
    def is_flushing(self) -> bool:
        """Whether a flush has begun and is not finished."""
        return self._step is not _Step.NOTHING

    def next_step(self, log_synced: int, checkpoint_ms: int) -> Write | None:
        """The next step of a flush; None if there is nothing to do now. The file must be synced after each step."""
        header = self._snapshot_header
        match self._step:
            case _Step.NOTHING | _Step.BEGUN:
                return self._begin_flush()
            case _Step.ENTRIES if log_synced <= header.end_offset:
                return None
            case _Step.ENTRIES if self._counted is not None:
                return self._step_write([(0, HEADER.pack(*self._counted))], _Step.COUNT)
            case _Step.ENTRIES | _Step.COUNT:
                return self._step_write(self._snapshot, _Step.SLOTS)
            case _Step.SLOTS:
                self.safe_ms = header.end_ms
                if checkpoint_ms < header.end_ms:
                    return None
                return self._step_write([(0, HEADER.pack(*header))], _Step.HEADER)
            case _Step.HEADER:
                self.recorded_ms = header.end_ms
                self._step = _Step.NOTHING
                return None

    def _begin_flush(self) -> Write | None:
        if self.is_settled:
            return None
        if self._step is _Step.NOTHING:
            before = self._snapshot_header
            # Without older keys there are none to protect. Keys of one message on both sides of an end look the same.
            is_apart = not before.is_empty and self.entry(before.next_number)[1] > before.end_offset
            self._counted = before._replace(next_number=self._next) if is_apart else None
            # Allocate memory first: pages must not count as written if this fails.
            header, step = self.header, _Step.BEGUN
            self._snapshot = self._slots.take_dirty()
            self._snapshot_header, self._step = header, step
        entries = self._entries_write()
        return Write(entries.make, partial(self._entries_flushed, entries))

    def _entries_flushed(self, entries: Write) -> None:
        entries.done()
        self._reached(_Step.ENTRIES)

    def _step_write(self, pieces: list[Piece], step: _Step) -> Write:
        return Write(partial(_write_pieces, self._file, pieces), partial(self._reached, step))

    def _reached(self, step: _Step) -> None:
        if step is _Step.SLOTS:
            self._snapshot.clear()
        self._step = step

    def _entries_write(self) -> Write:
        """The write of all new entries; readers find them in memory until it is done."""
        at = self.shape.entries_at + self._pending_from * ENTRY_BYTES
        entries = bytes(self._pending)
        return Write(partial(self._file.write_at, at, entries), partial(self._entries_written, len(entries)))

    def _entries_written(self, size: int) -> None:
        del self._pending[:size]  # unchanged if there is no memory
        self._pending_from += size // ENTRY_BYTES

    def close(self) -> None:
        """Close the file. Unflushed keys are lost, and rebuilt from the log."""
        self._file.close()


def _write_pieces(file: File, pieces: list[Piece]) -> None:
    for offset, data in pieces:
        file.write_at(offset, data)


def put_slots_right(files: Files, index_file: IndexFile) -> int:
    """After a crash, point slots that are ahead of the header to entries that it counts. Returns their number.

    The file is synced at once, because the entries behind the header's end are about to be overwritten. Raises
    StoreDamaged if a slot has no such entry.
    """
    end, shape = index_file.header.next_number, index_file.shape
    with files.open(index_file.path) as file:
        if file.size() != shape.file_bytes:
            return 0  # the file was never written
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
        raise StoreDamaged(f"slot {slot} of {index_file.path} points to entry {number}, which belongs to another slot")
    if number < 0:
        raise StoreDamaged(f"slot {slot} of {index_file.path} points to entry {number}")
    return number
