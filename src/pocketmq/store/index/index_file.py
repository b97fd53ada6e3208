"""One file of the key index: a hash table from keys to log offsets, in RocketMQ's format.

    header   | begin ms 8 | end ms 8 | begin log offset 8 | end log offset 8 | used slots 4 | next entry number 4 |
    slots    | number of the newest entry 4 | …                                slot = key hash mod slots; 0: none yet
    entries  | key hash 4 | log offset 8 | seconds since begin ms 4 | number of the previous entry of this slot 4 | …

    slot ──► 812 ──► 97 ──► 3 ──► 0     newest first: the entries of one slot are a chain

Entry 0 is never used. The file does not contain the key itself: two keys with one hash look the same, and the caller
compares the key in the record. A file is only appended to; see `growing_index_file` for how, and for what a crash leaves.

`find_shape` finds the number of slots and entries of a store's index files if the settings do not contain it:

    | header 40 | slots × 4 | entries × 20 |      the size of the file is one equation for two unknowns
                ▲           ▲
                │           └ entry 0, never used, then entry 1: its bytes follow from the record that the header names
                └ so the position of those bytes gives the number of slots

The hash of a key is Java's, made positive. It is computed once per key of every message.

    hash("Orders#7F00000100012A139A5514E1B2C300A1")
         └ topic ┘└─ head, seen before ────────┘└─┴─ tail: few different ones

The hash of a text is the hash of its first part × 31ⁿ plus the hash of the n characters behind it, so the three parts
are cached separately. The unique keys that one producer makes in one millisecond differ only in their last characters,
so all three parts are usually known.
"""

import re
import struct
from collections import Counter
from collections.abc import Callable
from operator import mul
from pathlib import Path
from typing import Final, NamedTuple

from pocketmq.errors import InvalidSetting, ProtocolError, StoreDamaged
from pocketmq.files import File, Files
from pocketmq.model.java_hash import java_hash
from pocketmq.model.properties import UNIQ_KEY
from pocketmq.protocol.record import SMALLEST_RECORD, decode_record
from pocketmq.store.log.log_scan import LogFile

HEADER: Final = struct.Struct(">qqqqii")
HEADER_BYTES: Final = 40
SLOT_BYTES: Final = 4
ENTRY: Final = struct.Struct(">iqii")
ENTRY_BYTES: Final = 20
LARGEST_SECONDS: Final = 0x7FFFFFFF

_BLOCK_ENTRIES = 64
"""Entries of one read: the entries of a frequent key are often adjacent."""

Entry = tuple[int, int, int, int]
"""key hash, log offset, seconds since the file's begin, number of the previous entry of the slot."""

KeyEntry = tuple[int, int, int]
"""key hash, log offset, store ms: a key to add."""


class IndexShape(NamedTuple):
    """The numbers of slots and entries in each file of an index."""

    slots: int
    entries: int

    @property
    def entries_at(self) -> int:
        return HEADER_BYTES + self.slots * SLOT_BYTES

    @property
    def file_bytes(self) -> int:
        return self.entries_at + self.entries * ENTRY_BYTES


class IndexHeader(NamedTuple):
    """The header of a file. `next_number` is the next entry to write; 1 means that no entry was written."""

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
        """The impossible part of this header, for a file of this shape; empty if there is none."""
        if not 1 <= self.next_number <= shape.entries or not 0 <= self.used_slots <= shape.slots:
            return f"it counts {self.next_number - 1} entries in {self.used_slots} slots"
        if not 0 <= self.begin_offset <= self.end_offset:
            return f"it covers the log from {self.begin_offset} to {self.end_offset}"
        return ""

    @property
    def is_empty(self) -> bool:
        return self.next_number == 1

    def counted_back(self, entry_at: Callable[[int], Entry]) -> "IndexHeader":
        """Without the entries beyond its end: after a crash, a header may count some of these."""
        number = self.next_number
        while number > 1 and entry_at(number - 1)[1] > self.end_offset:
            number -= 1
        return self._replace(next_number=number)


class KeyQuery:
    """A query that reads the files, newest first, and the entries found so far."""

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
        """Collect the matches of one chain in a file that begins at `begin_ms`.

        Times are stored in whole seconds, so a match may be up to a second outside the requested range.
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
                break  # this chain has a loop; it is damaged
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
    """A file on disk: the header is in memory, everything else is read on demand."""

    __slots__ = ("_files", "flaw", "header", "path", "shape")

    def __init__(self, files: Files, path: Path, shape: IndexShape, header: IndexHeader | None = None) -> None:
        """Read the header, unless it is known. Raises StoreDamaged for a file of another size. A file with a `flaw`
        counts as empty.
        """
        self._files = files
        self.path = path
        self.shape = shape
        self.flaw = ""
        if header is not None:
            self.header = header
            return
        with files.open(path, write=False) as file:
            size, head = file.size(), file.read_at(0, HEADER_BYTES)
        # A file that was created just before a crash may be shorter, but it was never written.
        if size != shape.file_bytes and (any(head) or size > shape.file_bytes):
            raise StoreDamaged(
                f"{path} has {size} bytes; index files of this store have {shape.file_bytes}. Set index_slots and "
                f"index_entries to the values that the file was created with, or move {path.parent} away; the "
                "index is then rebuilt from the log"
            )
        header = IndexHeader.parse(head.ljust(HEADER_BYTES, b"\0"))
        self.flaw = header.flaw(shape)
        self.header = IndexHeader() if self.flaw else header

    @property
    def is_full(self) -> bool:
        return self.header.next_number >= self.shape.entries

    def count_back(self) -> None:
        """After a crash, drop entries that the header counts but that are beyond its end."""
        with self._files.open(self.path, write=False) as file:
            self.header = self.header.counted_back(EntryBlocks(file, self.shape).entry)

    def find(self, query: KeyQuery) -> None:
        """Add the entries of this file to `query`."""
        slot = query.key_hash % self.shape.slots
        with self._files.open(self.path, write=False) as file:
            number = int.from_bytes(file.read_at(HEADER_BYTES + slot * SLOT_BYTES, SLOT_BYTES), "big", signed=True)
            if number < self.header.next_number:
                query.follow(number, self.header.begin_ms, EntryBlocks(file, self.shape).entry)

    def entry(self, number: int) -> Entry:
        with self._files.open(self.path, write=False) as file:
            return EntryBlocks(file, self.shape).entry(number)


KNOWN_HEADS: Final = 8192
"""The limit on remembered parts; above it, all are dropped."""
KNOWN_TAILS: Final = 16_384
KNOWN_TOPICS: Final = 16_384
MAX_KNOWN_CHARS: Final = 128
"""Longer keys are not cached, so that a few of them cannot fill the memory."""

_TAIL_CHARS: Final = 3
_FAMILY_CHARS: Final = 12
"""What differs between the unique keys of one producer: eight digits of time and four of a counter."""

_MASK: Final = 0xFFFFFFFF
_POWERS: Final[list[tuple[int, list[int]]]] = [
    (31**size & _MASK, [31**n & _MASK for n in range(size)][::-1]) for size in range(65)
]
"""By the size of a text: the factor for the text before it, and for each of its own characters."""
_TAIL_FACTOR: Final[int] = 31**_TAIL_CHARS
_FACTORS: Final[list[int]] = [31**size & _MASK for size in range(MAX_KNOWN_CHARS + 1)]
"""By the size of a key: the factor for the topic before it."""


def key_hash(topic: str, key: str) -> int:
    """The hash of a key of a topic, without a cache. Java's smallest int has no absolute value: RocketMQ uses 0 for it."""
    return abs(java_hash(f"{topic}#{key}")) & 0x7FFFFFFF


class KeyHashes:
    """`key_hash` with a cache of the parts that keys share. Its arguments are bytes, as a record contains them."""

    def __init__(self) -> None:
        self._topics: dict[bytes, int] = {}
        self._heads: dict[bytes, int] = {}
        self._tails: dict[bytes, int] = {}

    def of(self, topic: bytes, key: bytes) -> int:
        """The hash of `key`."""
        base = self._topics.get(topic)
        head = self._heads.get(key[:-3])
        tail = self._tails.get(key[-3:])
        if base is None or head is None or tail is None:
            value = self._learn(topic, key)
        else:
            value = base * _FACTORS[len(key)] + head * _TAIL_FACTOR + tail & _MASK
        return value if value < 0x80000000 else 0x100000000 - value & 0x7FFFFFFF

    def _learn(self, topic: bytes, key: bytes) -> int:
        if not _TAIL_CHARS <= len(key) <= MAX_KNOWN_CHARS or not key.isascii():
            return java_hash(f"{topic.decode('utf-8', 'replace')}#{key.decode('utf-8', 'replace')}") & _MASK
        base = self._topics.get(topic)
        if base is None:
            base = java_hash(topic.decode("utf-8", "replace") + "#") & _MASK
            _remember(self._topics, topic, base, KNOWN_TOPICS)
        return base * _FACTORS[len(key)] + self._learn_key(key) & _MASK

    def _learn_key(self, key: bytes) -> int:
        family = key[:-_FAMILY_CHARS]
        known = self._heads.get(family)
        if known is None:
            # The first key with this head, and maybe the only one: random keys share no heads.
            known = _extended(0, family)
            _remember(self._heads, family, known, KNOWN_HEADS)
            return _extended(known, key[-_FAMILY_CHARS:])
        head = _extended(known, key[len(family) : -3])
        _remember(self._heads, key[:-3], head, KNOWN_HEADS)
        tail = self._tails.get(key[-3:])
        if tail is None:
            tail = _extended(0, key[-3:])
            _remember(self._tails, key[-3:], tail, KNOWN_TAILS)
        return head * _TAIL_FACTOR + tail


def _remember(known: dict[bytes, int], part: bytes, value: int, most: int) -> None:
    """Cache the hash of a part. A full cache is cleared; the parts in use are soon cached again."""
    if len(known) >= most:
        known.clear()
    known[part] = value


def _extended(start: int, text: bytes) -> int:
    """The hash of a text that begins with a part of hash `start` and continues with `text`."""
    if len(text) < len(_POWERS):
        factor, powers = _POWERS[len(text)]
        own: int = sum(map(mul, text, powers))
        return start * factor + own & _MASK
    for unit in text:
        start = start * 31 + unit & _MASK
    return start


_NAME: Final = re.compile(r"[0-9]{17}")
_CHUNK_BYTES: Final = 1024 * 1024


def list_index_files(files: Files, folder: Path) -> list[Path]:
    """The index files in `folder`, oldest first."""
    paths = [folder / name for name in files.list(folder) if _NAME.fullmatch(name)]
    return [path for path in paths if (status := files.status(path)) is not None and not status.is_dir]


def find_shape(
    files: Files,
    paths: list[Path],
    log_files: list[LogFile],
    *,
    slots: int | None,
    entries: int | None,
    hinted: IndexShape,
) -> IndexShape | None:
    """The shape of the index files at `paths`, None if it cannot be determined.

    `slots` and `entries` are certain if set. `hinted` is a guess; it counts if the files have its size.
    """
    sizes = Counter(status.size for path in paths if (status := files.status(path)) is not None and status.size)
    if not sizes:
        return IndexShape(slots or hinted.slots, entries or hinted.entries)
    [(size, _)] = sizes.most_common(1)
    if slots is not None or entries is not None:
        return _shape_of_size(size, slots, entries, paths[0].parent)
    if size == hinted.file_bytes:
        return hinted
    for path in paths:
        shape = _shape_by_first_entry(files, path, size, log_files)
        if shape is not None:
            return shape
    return None


def _shape_of_size(size: int, slots: int | None, entries: int | None, folder: Path) -> IndexShape:
    if slots is None:
        assert entries is not None, "one of them is known"
        slots = (size - HEADER_BYTES - entries * ENTRY_BYTES) // SLOT_BYTES
    if entries is None:
        entries = (size - HEADER_BYTES - slots * SLOT_BYTES) // ENTRY_BYTES
    shape = IndexShape(slots, entries)
    if slots < 1 or entries < 2 or shape.file_bytes != size:
        raise InvalidSetting(
            f"files in {folder} have {size} bytes, which {slots} slots and {entries} entries do not match "
            f"({HEADER_BYTES} + {SLOT_BYTES} × slots + {ENTRY_BYTES} × entries). Set both to the values of the "
            "broker (maxHashSlotNum, maxIndexNum), or neither"
        )
    return shape


def _shape_by_first_entry(files: Files, path: Path, size: int, log_files: list[LogFile]) -> IndexShape | None:
    with files.open(path, write=False) as file:
        if file.size() != size or size < HEADER_BYTES:
            return None
        header = IndexHeader.parse(file.read_at(0, HEADER_BYTES))
        wanted = [] if header.is_empty else _first_entries(files, header, log_files)
        positions = sorted(at for entry in wanted for at in _positions(file, entry))
    # The next keys of the record have the next entries, and would match a wrong shape.
    return next((shape for at in positions if (shape := _shape_for_position(at, size)) is not None), None)


def _first_entries(files: Files, header: IndexHeader, log_files: list[LogFile]) -> list[bytes]:
    """Possible bytes of entry 1: a key of the first record in the file. The file before it may contain the other keys."""
    for log_file in log_files:
        if 0 <= header.begin_offset - log_file.first < log_file.size:
            with files.open(log_file.path, write=False) as file:
                at = header.begin_offset - log_file.first
                size = int.from_bytes(file.read_at(at, 4), "big")
                raw = file.read_at(at, size) if SMALLEST_RECORD <= size <= log_file.size - at else b""
            try:
                message = decode_record(raw)
            except ProtocolError:
                return []
            keys = [*message.keys, *filter(None, [message.properties.get(UNIQ_KEY)])]
            return [ENTRY.pack(key_hash(message.topic, key), header.begin_offset, 0, 0) for key in keys]
    return []


def _positions(file: File, wanted: bytes) -> list[int]:
    """The positions of these bytes in `file`."""
    positions = []
    at = file.next_data(HEADER_BYTES)
    while at is not None:
        chunk = file.read_at(at, _CHUNK_BYTES)
        found = chunk.find(wanted)
        while found >= 0:
            positions.append(at + found)
            found = chunk.find(wanted, found + 1)
        if len(chunk) < _CHUNK_BYTES:
            break
        at = file.next_data(at + len(chunk) - len(wanted) + 1)
    return positions


def _shape_for_position(at: int, size: int) -> IndexShape | None:
    """The shape of a file whose entry 1 is at this position; None if there is no such shape."""
    slots, rest = divmod(at - ENTRY_BYTES - HEADER_BYTES, SLOT_BYTES)
    shape = IndexShape(slots, (size - HEADER_BYTES - slots * SLOT_BYTES) // ENTRY_BYTES)
    return shape if not rest and slots > 0 and shape.entries > 1 and shape.file_bytes == size else None
