"""A consume queue: the log offset of each message of one queue.

    | log offset 8 | size 4 | tags code 8 |     20 bytes, so entry n is at n * 20

    written to files ──────────────┬─ pending, in memory ─┬─ staged in this turn ─┐
    min_offset …              flushed_offset         max_offset            next_offset

Files hold a fixed number of entries and are named by the byte offset of their first one. Offsets without a message have
an entry of size 2^31 - 1 that means "no message":

    | 0 | 2^31 - 1 | 0 |                        the head of the first file, when a queue begins at a later offset
    | 0 | 2^31 - 1 | log offset of the next |   a hole in the middle; bisection continues with the entry after it

Derived: the files may be deleted at any time; recovery rebuilds them from the log. `tags_code_of` computes the same
code when a message is stored and when a queue is rebuilt.

Entries of a turn are made when a message is staged, and enter their queue when the turn is written:

    stage ──► (queue, entries) ─┬─ the turn is written ──► the end of the queue ──► arrivals     `Queues.enter_all`
                                └─ the write fails ──────► their offsets are assigned again

They are kept as bytes of a queue file: a batch, or all entries of one queue in a turn, is one bytes object.
"""

import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from pocketmq.codes import SysFlag
from pocketmq.model import SCHEDULE_TOPIC, DelayLevels
from pocketmq.model.java_hash import java_hash
from pocketmq.model.properties import raw_property
from pocketmq.protocol.record import magic_for, record_size, topic_field
from pocketmq.store.log.segments import OpenFiles, disk_error

ENTRY = struct.Struct(">qiq")
ENTRY_BYTES: Final = 20
NOTHING_HERE_SIZE: Final = 0x7FFFFFFF
_NOTHING_HERE = ENTRY.pack(0, NOTHING_HERE_SIZE, 0)

KNOWN_TAGS: Final = 4096
LONGEST_KNOWN_TAG: Final = 64
"""Tags are few, short and recur. A long one is probably data, and caching thousands would take memory."""
_known_codes: dict[bytes, int] = {}
_MAX_INT: Final = 2**31 - 1

Entry = tuple[int, int, int]
"""log offset, size, tags code."""


def is_entry(entry: Entry) -> bool:
    """Whether these bytes are an entry that was written; the unused part of a file is zeros."""
    return entry[0] >= 0 and entry[1] > 0


def is_message(entry: Entry) -> bool:
    """Whether the entry points to a message, and does not mean "no message"."""
    return entry[0] >= 0 and 0 < entry[1] < NOTHING_HERE_SIZE


def is_head(entry: Entry) -> bool:
    """Whether the entry belongs to the filled head of a queue that begins later."""
    return entry == (0, NOTHING_HERE_SIZE, 0)


def log_offset_of(entry: Entry) -> int:
    """The log offset of the entry's message; for a hole, of the next message; -1 for a filled head."""
    if entry[1] != NOTHING_HERE_SIZE:
        return entry[0]
    return entry[2] or -1


class Block(NamedTuple):
    """Entries to write to a file."""

    name: str
    file_bytes: int
    at: int
    """Their position in the file, in bytes."""
    entries: bytearray
    is_first: bool
    """Whether there is no message before them."""
    is_cut: bool
    """Whether the next entries belong to the next file."""

    def write(self, files: OpenFiles) -> None:
        """May be called again after an OSError."""
        file = files.make(self.name, self.file_bytes)
        if self.at and self.is_first:
            # Without the expired entries, a later start would treat the zeros as the end of the queue.
            before = file.read_at(self.at - ENTRY_BYTES, ENTRY_BYTES)
            if not is_entry(ENTRY.unpack(before)):
                file.write_at(0, _NOTHING_HERE * (self.at // ENTRY_BYTES))
        file.write_at(self.at, self.entries)


class ConsumeQueue:
    """One queue of one topic. Owned by the store's thread. Small: a broker may have forty thousand."""

    __slots__ = (
        "_file_entries",
        "_folder",
        "_is_deleted",
        "_open_files",
        "irregular_offsets",
        "is_delay",
        "key",
        "log_start",
        "max_offset",
        "min_offset",
        "next_offset",
        "pending",
        "queue_id",
        "record_magic",
        "record_overhead",
        "topic",
        "topic_bytes",
        "topic_field",
    )

    def __init__(self, topic: str, queue_id: int, folder: Path, open_files: OpenFiles, file_entries: int) -> None:
        self.topic = topic
        self.topic_bytes = topic.encode()
        self.queue_id = queue_id
        self.key = (topic, queue_id)
        self.topic_field = topic_field(self.topic_bytes)
        self.record_magic = magic_for(self.topic_bytes)
        self.is_delay = topic == SCHEDULE_TOPIC
        self.record_overhead = record_size(len(self.topic_bytes), 0, 0)
        self.log_start = 0
        """The start of the log at the last search for `min_offset`."""
        self.min_offset = 0
        self.max_offset = 0
        self.next_offset = 0
        self.irregular_offsets: frozenset[int] = frozenset()
        """Messages whose records contain a wrong queue offset, as the records before and after show."""
        self.pending = bytearray()
        self._folder = str(folder)
        self._open_files = open_files
        self._file_entries = file_entries
        self._is_deleted = False

    @property
    def folder(self) -> Path:
        return Path(self._folder)

    @property
    def flushed_offset(self) -> int:
        """First entry that is not in a file yet."""
        return self.max_offset - len(self.pending) // ENTRY_BYTES

    def begin_anew(self, offset: int = 0) -> None:
        """Become an empty queue whose first message has `offset`: earlier messages are not in the log."""
        self.pending.clear()
        self.min_offset = self.max_offset = self.next_offset = offset

    def skip_to(self, offset: int, log_offset: int) -> bool:
        """Add "no message" entries for the offsets before `offset`, whose message is at `log_offset`.

        Returns False if more than a file of entries would be missing: then the record's offset is wrong.
        """
        missing = offset - self.max_offset
        if missing > self._file_entries:
            return False
        if missing > 0:
            self.pending += ENTRY.pack(0, NOTHING_HERE_SIZE, log_offset) * missing
            self.max_offset = self.next_offset = offset
        return True

    def append(self, log_offset: int, size: int, tags_code: int) -> None:
        """Add the entry of the next message; its offset was assigned when it was staged."""
        self.pending += ENTRY.pack(log_offset, size, tags_code)
        self.max_offset += 1

    # reading

    def entry(self, offset: int) -> Entry | None:
        """The entry at `offset`; None if there is none."""
        raw = self.read(offset, 1)
        return ENTRY.unpack(raw) if raw else None

    def entries(self, offset: int, count: int) -> Iterator[Entry]:
        """Up to `count` entries from `offset` on."""
        return ENTRY.iter_unpack(self.read(offset, count))

    def read(self, offset: int, count: int) -> bytes:
        """Up to `count` entries from `offset` on, as bytes; flushed entries from files, the rest from memory.

        Ends early where a file is missing or too short.
        """
        count = min(count, self.max_offset - offset)
        if count <= 0:
            return b""
        flushed = self.flushed_offset
        if offset >= flushed:
            start = (offset - flushed) * ENTRY_BYTES
            return bytes(self.pending[start : start + count * ENTRY_BYTES])
        in_files = min(count, flushed - offset)
        data = self._read_files(offset, in_files)
        if in_files < count and len(data) == in_files * ENTRY_BYTES:
            data += self.pending[: (count - in_files) * ENTRY_BYTES]
        return data

    def _read_files(self, offset: int, count: int) -> bytes:
        name, index = self._position(offset)
        if index + count <= self._file_entries:
            return self._read_file(name, index * ENTRY_BYTES, count * ENTRY_BYTES)
        pieces = []
        while count > 0:
            name, index = self._position(offset)
            part = min(count, self._file_entries - index)
            piece = self._read_file(name, index * ENTRY_BYTES, part * ENTRY_BYTES)
            pieces.append(piece)
            if len(piece) < part * ENTRY_BYTES:
                break
            offset += part
            count -= part
        return b"".join(pieces)

    def _read_file(self, name: str, at: int, size: int) -> bytes:
        """Whole entries of a file; none when there is no such file."""
        try:
            data = self._open_files.get(name).read_at(at, size)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise disk_error(f"cannot read {name}", error) from error
        return data if len(data) == size else data[: len(data) // ENTRY_BYTES * ENTRY_BYTES]

    # writing

    def next_block(self) -> "Block | None":
        """A copy of pending entries, at most of one file; None if there are none. They stay pending until `written`."""
        if self._is_deleted:
            self.pending.clear()
        if not self.pending:
            return None
        offset = self.flushed_offset
        name, index = self._position(offset)
        file_bytes = self._file_entries * ENTRY_BYTES
        at = index * ENTRY_BYTES
        entries = self.pending[: file_bytes - at]
        return Block(name, file_bytes, at, entries, offset <= self.min_offset, len(entries) < len(self.pending))

    def written(self, block: "Block") -> None:
        """The last copied block is in its file."""
        del self.pending[: len(block.entries)]

    def flush(self) -> None:
        """Write pending entries to their files, and wait for that. After an OSError, they are still pending."""
        while (block := self.next_block()) is not None:
            block.write(self._open_files)
            self.written(block)

    def rewrite(self, offset: int, entries: bytes) -> int:
        """Overwrite entries in files, which are created or extended if necessary. Returns how many entries differed."""
        changed = 0
        while entries:
            name, index = self._position(offset)
            part, entries = (
                entries[: (self._file_entries - index) * ENTRY_BYTES],
                entries[(self._file_entries - index) * ENTRY_BYTES :],
            )
            file = self._open_files.make(name, self._file_entries * ENTRY_BYTES)
            before = file.read_at(index * ENTRY_BYTES, len(part)).ljust(len(part), b"\0")
            pairs = zip(ENTRY.iter_unpack(before), ENTRY.iter_unpack(part), strict=True)
            changed += sum(was != is_now for was, is_now in pairs)
            file.write_at(index * ENTRY_BYTES, part)
            offset += len(part) // ENTRY_BYTES
        return changed

    def abandon(self) -> None:
        """The topic was deleted. Entries of a turn in progress are dropped and reach no file."""
        self._is_deleted = True

    # bounds

    def cut(self, offset: int) -> None:
        """Drop the entries from `offset` on. `Queues.zero_behind` overwrites their bytes in files."""
        if offset >= self.max_offset:
            return
        if offset < self.flushed_offset:
            self.pending.clear()
        else:
            del self.pending[(offset - self.flushed_offset) * ENTRY_BYTES :]
        self.max_offset = self.next_offset = offset
        self.min_offset = min(self.min_offset, self.max_offset)

    def first_at_or_beyond(self, log_offset: int) -> int:
        """Offset of the first entry that points at or beyond `log_offset`; max_offset if there is none."""
        low, high = self.min_offset, self.max_offset
        # First in growing steps, then by bisection: after a crash, the end of a short queue may be in a long file,
        # and there may be many queues.
        step = 1
        while low < high and self._points_before(low + step - 1, log_offset):
            low += step
            step *= 2
        high = min(high, low + step - 1)
        return bisect_left(range(high), True, low, high, key=lambda at: not self._points_before(at, log_offset))

    def _points_before(self, offset: int, log_offset: int) -> bool:
        entry = self.entry(offset)
        return entry is not None and is_entry(entry) and log_offset_of(entry) < log_offset

    def raise_min(self, log_start: int) -> None:
        """Update the start of the queue after old log files were deleted: entries below `log_start` have no messages
        any more.

        A damaged entry may mislead the search. The queue then stays unchanged; a reader finds the damage, and the
        repair takes the start of the queue from the log.
        """
        found = self.first_at_or_beyond(log_start)
        if self._is_edge(found, log_start):
            self.min_offset = found
        self.log_start = log_start

    def _is_edge(self, offset: int, log_start: int) -> bool:
        """Whether the entries around `offset` show that it is the first one beyond `log_start`."""
        first = max(self.min_offset, offset - 2)
        around = [self.entry(number) for number in range(first, min(offset + 2, self.max_offset))]
        log_offsets = [log_offset_of(entry) for entry in around if entry is not None and is_entry(entry)]
        if len(log_offsets) != len(around) or log_offsets != sorted(log_offsets):
            return False
        return all((position >= log_start) is (first + number >= offset) for number, position in enumerate(log_offsets))

    # files

    def file_of(self, offset: int) -> Path:
        """The file of the entry at `offset`, whether it exists or not."""
        return Path(self._position(offset)[0])

    def _position(self, offset: int) -> tuple[str, int]:
        """The file of the entry at `offset`, and the entry's index in it."""
        number, index = divmod(offset, self._file_entries)
        return f"{self._folder}/{number * self._file_entries * ENTRY_BYTES:020d}", index


# from a record to its entry


def enters_queue(sys_flag: int) -> bool:
    """Prepared and rolled-back transaction records are only in the log."""
    return not sys_flag & SysFlag.TRANSACTION_PREPARED


def tags_code_of(raw_properties: bytes, is_delay: bool, store_ms: int, levels: DelayLevels) -> int:
    """The tags code of a queue entry: the hash of the tag; in the delay topic, the due time."""
    if is_delay:
        level = delay_level_of(raw_properties)
        if level > 0:
            return levels.due_ms(level, store_ms)
    # Like `raw_property`, at half the cost: this runs once per message.
    at = raw_properties.rfind(b"TAGS\x01")
    if at < 0:
        return 0
    if at and raw_properties[at - 1] != 2:  # the end of a longer name
        return _code_of_tag(raw_property(raw_properties, b"TAGS") or b"")
    end = raw_properties.find(b"\x02", at)
    tag = raw_properties[at + 5 : end] if end >= 0 else raw_properties[at + 5 :]
    code = _known_codes.get(tag)
    return _code_of_tag(tag) if code is None else code


def delay_level_of(raw_properties: bytes) -> int:
    """The delay level; 0 if it is missing or invalid."""
    text = (raw_property(raw_properties, b"DELAY") or b"").removeprefix(b"+")
    level = int(text) if text.isdigit() and len(text) <= len(str(_MAX_INT)) else 0
    return level if level <= _MAX_INT else 0


def _code_of_tag(tag: bytes) -> int:
    code = java_hash(tag.decode("utf-8", "replace"))
    if len(tag) <= LONGEST_KNOWN_TAG:
        if len(_known_codes) >= KNOWN_TAGS:
            _known_codes.clear()
        _known_codes[tag] = code
    return code


# the entries of a turn

_BEHIND_LOG_OFFSET = ENTRY_BYTES - 8
"""The bytes of an entry after its log offset."""

Entered = tuple[ConsumeQueue, bytes]
"""A queue, and entries for its end."""

Arrival = tuple[ConsumeQueue, int, int, int]
"""A message that became readable: its queue, log offset, size and tags code."""


def take_out(entered: list[Entered]) -> None:
    """Undo `enter_all`, before any other change of the queues, and empty the list. After an error it can continue."""
    while entered:
        queue, entries = entered[-1]
        size = len(entries)
        start = len(queue.pending) - size
        del queue.pending[start:]  # no call from here on, so that none can fail
        queue.max_offset -= size // ENTRY_BYTES
        del entered[-1]


def give_back(staged: Iterable[Entered]) -> None:
    """The offsets of these entries are free again."""
    for queue, entries in staged:
        queue.next_offset -= len(entries) // ENTRY_BYTES


def newest_log_offset(staged: Iterable[Entered]) -> int:
    """The log offset of the last of these messages. There is at least one."""
    # Log offsets are compared in packed form, high byte first: a turn may have a queue for each message.
    return int.from_bytes(max([entries[-ENTRY_BYTES:-_BEHIND_LOG_OFFSET] for _, entries in staged]), "big")


def arrivals_of(staged: Iterable[Entered]) -> Iterator[Arrival]:
    """The arrivals one by one; rarely used."""
    for queue, entries in staged:
        for log_offset, size, tags_code in ENTRY.iter_unpack(entries):
            yield queue, log_offset, size, tags_code
