"""One file of the key index: a hash table from keys to log offsets, as RocketMQ lays it out.

    header   | begin ms 8 | end ms 8 | begin log offset 8 | end log offset 8 | used slots 4 | next entry number 4 |
    slots    | number of the newest entry 4 | …                                slot = key hash mod slots; 0: none yet
    entries  | key hash 4 | log offset 8 | seconds since begin ms 4 | number of the previous entry of this slot 4 | …

    slot ──► 812 ──► 97 ──► 3 ──► 0     newest first: entries of one slot are a chain that leads back in time

Entry 0 is never used. The key itself is not here: two keys with one hash look the same, and whoever reads the record decides.
A file is only ever appended to; see `growing_index_file` for how, and for what a crash may leave of it.
"""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from pocketmq.errors import StoreDamaged
from pocketmq.files import File, Files

HEADER: Final = struct.Struct(">qqqqii")
HEADER_BYTES: Final = 40
SLOT_BYTES: Final = 4
ENTRY: Final = struct.Struct(">iqii")
ENTRY_BYTES: Final = 20
LARGEST_SECONDS: Final = 0x7FFFFFFF

_BLOCK_ENTRIES = 64
"""Entries that are read at once: those of a key that comes often lie close together."""

Entry = tuple[int, int, int, int]
"""key hash, log offset, seconds since the file's begin, number of the previous entry of the slot."""

PlacedKey = tuple[int, int, int]
"""key hash, log offset, store ms: a key to be entered."""


class IndexShape(NamedTuple):
    """How many slots and entries the files of an index have."""

    slots: int
    entries: int

    @property
    def entries_at(self) -> int:
        return HEADER_BYTES + self.slots * SLOT_BYTES

    @property
    def file_bytes(self) -> int:
        return self.entries_at + self.entries * ENTRY_BYTES


class IndexHeader(NamedTuple):
    """What a file says about itself. `next_number` is the entry to write next, so 1 means none was written."""

    begin_ms: int = 0
    end_ms: int = 0
    begin_offset: int = 0
    end_offset: int = 0
    used_slots: int = 0
    next_number: int = 1

    @classmethod
    def parse(cls, data: bytes) -> "IndexHeader":
        header = cls(*HEADER.unpack(data))
        return header if header.next_number else header._replace(next_number=1)

    def flaw(self, shape: IndexShape) -> str:
        """What cannot be true of a file of this shape; empty when all may be."""
        if not 1 <= self.next_number <= shape.entries or not 0 <= self.used_slots <= shape.slots:
            return f"it counts {self.next_number - 1} entries in {self.used_slots} slots"
        if not 0 <= self.begin_offset <= self.end_offset:
            return f"it covers the log from {self.begin_offset} to {self.end_offset}"
        return ""

    @property
    def is_empty(self) -> bool:
        return self.next_number == 1

    def counted_back(self, entry_at: Callable[[int], Entry]) -> "IndexHeader":
        """Without the entries behind its own end: after a crash a header may count some of these."""
        number = self.next_number
        while number > 1 and entry_at(number - 1)[1] > self.end_offset:
            number -= 1
        return self._replace(next_number=number)


class KeyQuery:
    """A look-up on its way through the files, newest first: what is wanted, and what was found so far."""

    __slots__ = ("begin_ms", "end_ms", "found", "key_hash", "limit", "visits_left")

    def __init__(self, key_hash: int, begin_ms: int, end_ms: int, limit: int, visits: int) -> None:
        self.key_hash = key_hash
        self.begin_ms = begin_ms
        self.end_ms = end_ms
        self.limit = limit
        self.visits_left = visits
        self.found: list[int] = []

    @property
    def is_over(self) -> bool:
        return len(self.found) >= self.limit or self.visits_left <= 0

    def overlaps(self, header: IndexHeader) -> bool:
        return not header.is_empty and header.begin_ms <= self.end_ms and header.end_ms >= self.begin_ms

    def follow(self, number: int, begin_ms: int, entry_at: Callable[[int], Entry]) -> None:
        """Collect what matches along a chain of a file that begins at `begin_ms`.

        Times are kept in whole seconds, so a match may lie up to a second outside of the range that was asked for.
        """
        key_hash, found, limit = self.key_hash, self.found, self.limit
        earliest, latest = (self.begin_ms - begin_ms - 999) / 1000, (self.end_ms - begin_ms) / 1000
        visits_left = self.visits_left
        while number > 0 and visits_left > 0 and len(found) < limit:
            visits_left -= 1
            entry_hash, log_offset, seconds, previous = entry_at(number)
            if seconds < earliest:
                break
            # A message may carry a key twice; its entries follow each other.
            if entry_hash == key_hash and seconds <= latest and not (found and found[-1] == log_offset):
                found.append(log_offset)
            if previous >= number:
                break  # a chain leads back; this one is damaged
            number = previous
        self.visits_left = visits_left


class EntryBlocks:
    """Reads entries of a file backwards, a block at a time."""

    __slots__ = ("_block", "_entries_at", "_file", "_first")

    def __init__(self, file: File, shape: IndexShape) -> None:
        self._file = file
        self._entries_at = shape.entries_at
        self._first = 0
        self._block = b""

    def entry(self, number: int) -> Entry:
        at = (number - self._first) * ENTRY_BYTES
        if not 0 <= at < len(self._block):
            self._first = max(0, number + 1 - _BLOCK_ENTRIES)
            size = (number + 1 - self._first) * ENTRY_BYTES
            self._block = self._file.read_at(self._entries_at + self._first * ENTRY_BYTES, size)
            at = size - ENTRY_BYTES
        return ENTRY.unpack_from(self._block, at)


class IndexFile:
    """A file as it lies on the disk: the header is kept, everything else is read when asked for."""

    __slots__ = ("_files", "flaw", "header", "path", "shape")

    def __init__(self, files: Files, path: Path, shape: IndexShape) -> None:
        """Read the header. StoreDamaged for a file of another size; one with a `flaw` counts as empty."""
        self._files = files
        self.path = path
        self.shape = shape
        with files.open(path, write=False) as file:
            size, head = file.size(), file.read_at(0, HEADER_BYTES)
        # One that was made just before a crash may be shorter, but then nothing was ever written to it.
        if size != shape.file_bytes and (any(head) or size > shape.file_bytes):
            raise StoreDamaged(
                f"{path} has {size} bytes; index files of this store have {shape.file_bytes}. Set index_slots and "
                f"index_entries to what the store was made with, or move {path.parent} away: it is made anew from the log"
            )
        header = IndexHeader.parse(head.ljust(HEADER_BYTES, b"\0"))
        self.flaw = header.flaw(shape)
        self.header = IndexHeader() if self.flaw else header

    @property
    def is_full(self) -> bool:
        return self.header.next_number >= self.shape.entries

    def count_back(self) -> None:
        """After a crash, forget entries that the header counts though it ends before them."""
        with self._files.open(self.path, write=False) as file:
            self.header = self.header.counted_back(EntryBlocks(file, self.shape).entry)

    def find(self, query: KeyQuery) -> None:
        """Add to `query` what this file knows."""
        slot = query.key_hash % self.shape.slots
        with self._files.open(self.path, write=False) as file:
            number = int.from_bytes(file.read_at(HEADER_BYTES + slot * SLOT_BYTES, SLOT_BYTES), "big", signed=True)
            if number < self.header.next_number:
                query.follow(number, self.header.begin_ms, EntryBlocks(file, self.shape).entry)

    def entry(self, number: int) -> Entry:
        with self._files.open(self.path, write=False) as file:
            return EntryBlocks(file, self.shape).entry(number)
