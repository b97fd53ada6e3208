"""Reads the log record by record: for recovery, verification, dumps and rebuilds.

`RecoveryScan` ends at the first bytes that are not a complete, valid record, and reports them. Later bytes may be the
rest of a torn write and were never acknowledged in order, so recovery must not restore them.

    record ─ record ─ record ─ filler │ record ─ record ─ zeros       one file after the other
                                                        └─ the end: nothing was written here

`LogScan` reads every readable record, also after damage. It finds the next record by its magic number and by the log
offset in it.

    record ─ record ─ ??? ─ record ─ filler │ record ─ record ─ zeros
                      └┬┘                                       └─ the end: no valid record follows
                  unreadable: up to the next record

A record's checksum covers only its body, so `has_lost_part` detects lost sectors in the rest of it:

    | head, sizes | body …        | topic | properties … |
      sizes agree   checksum        └── text: lost bytes are zeros

A crash may lose any unsynced sector, and a failed write may end anywhere. Lost bytes read as zeros, up to the end of
the sector or of the record. In the head they contradict the sizes, in the body the checksum is wrong, and in topic
and properties the text ends in zeros. A real message with zeros at that position would look the same. So the writer
shifts its properties by a few bytes, with separators that mean nothing:

    | … properties: name 1 va 0 | lue 2 |            the zero ends a sector
    | … properties: 2 name 1 va | 0 lue 2 |          and now it does not

The writer rejects a message that is full of zeros or ends in one.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple

from pocketmq.errors import ProtocolError
from pocketmq.files import File, Files
from pocketmq.model import StoredMessage
from pocketmq.model.properties import VALUE_END
from pocketmq.protocol.record import (
    BLANK_SIZE,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    SMALLEST_RECORD,
    SYS_FLAG_AT,
    decode_record,
    record_size,
)
from pocketmq.store.log.segments import MAX_OFFSET, NAME_DIGITS

CHUNK_BYTES = 1024 * 1024
"""The bytes of one read; at least the head of a record."""
_LENGTHS_BYTES: Final = 3
"""The bytes of the lengths of topic and properties."""


class ScanEnd(Enum):
    """Why a scan ended."""

    NO_MORE = "the log ends here"
    DAMAGE = "the bytes here are not a valid record"


class RecoveryScan:
    """Iterate over it for (log offset, message); afterwards `end`, `ending` and `reason` say where and why it stopped.

    `read(offset, size)` returns `size` bytes of the log, or fewer at the end of a file; offsets are log offsets.
    """

    def __init__(
        self, read: Callable[[int, int], bytes], file_bytes: int, start: int, stop: int, *, check_crc: bool = True
    ) -> None:
        self._read = read
        self._file_bytes = file_bytes
        self._stop = stop
        self._check_crc = check_crc
        self.end = start
        self.ending = ScanEnd.NO_MORE
        self.reason = ""
        self.records = 0

    def __iter__(self) -> Iterator[tuple[int, StoredMessage]]:
        while self.end < self._stop:
            file_end = (self.end // self._file_bytes + 1) * self._file_bytes
            yield from self._records_of_file(file_end)
            if self.end != file_end:
                return

    def _records_of_file(self, file_end: int) -> Iterator[tuple[int, StoredMessage]]:
        """Records up to `file_end`; `end` is `file_end` when its filler was reached."""
        at, readable = self.end, min(file_end, self._stop)
        chunk_at, chunk = at, self._read(at, min(CHUNK_BYTES, readable - at))
        while at < readable:
            try:
                message = decode_record(chunk, at - chunk_at, self._check_crc)
            except ProtocolError as error:
                size = _more(chunk, at - chunk_at, readable - at)
                if not size:
                    self._finish(chunk[at - chunk_at :][:BLANK_SIZE], file_end, str(error))
                    return
                chunk_at, chunk = at, self._read(at, size)
                if len(chunk) < size:
                    readable = at + len(chunk)
                continue
            if message.log_offset != at:
                self._damage(f"the record contains log offset {message.log_offset}")
                return
            # Counted before the yield, so that `end` is after the last yielded record if the caller stops.
            offset = at
            self.end = at = at + message.size
            self.records += 1
            yield offset, message

    def refuse(self, offset: int, what: str) -> None:
        """The caller found that the last record, at `offset`, is invalid: end the scan before it."""
        self.end = offset
        self.records -= 1
        self._damage(what)

    def _finish(self, head: bytes, file_end: int, error: str) -> None:
        size, magic = int.from_bytes(head[:4], "big"), int.from_bytes(head[4:], "big")
        if magic == MAGIC_BLANK and size == file_end - self.end:
            self.end = file_end
        elif any(head):
            known = magic in (MAGIC_V1, MAGIC_V2)
            self._damage(error.partition(" has ")[2] if known else f"magic {magic:#010x}")

    def _damage(self, what: str) -> None:
        self.ending = ScanEnd.DAMAGE
        self.reason = f"at log offset {self.end}: {what}"


def _more(chunk: bytes, at: int, readable: int) -> int:
    """How many bytes to read for the record that begins at `at` of the chunk; 0 if more bytes would not help."""
    here = len(chunk) - at
    if here >= readable:
        return 0
    if at:
        return min(CHUNK_BYTES, readable)
    # Larger than a chunk, or damaged. If the record size does not match the body size, do not read a gigabyte.
    size, sys_flag = int.from_bytes(chunk[:4], "big"), int.from_bytes(chunk[SYS_FLAG_AT : SYS_FLAG_AT + 4], "big")
    body_at = record_size(0, 0, 0, sys_flag) - _LENGTHS_BYTES
    body_size = int.from_bytes(chunk[body_at - 4 : body_at], "big")
    return size if here < size <= min(readable, record_size(0xFFFF, body_size, 0xFFFF, sys_flag)) else 0


SCAN_CHUNK_BYTES: Final = 1024 * 1024
_ZERO_CHUNK: Final = bytes(SCAN_CHUNK_BYTES)
_MAGIC_AT: Final = 4
_ANY_MAGIC: Final = re.compile(
    b"|".join(re.escape(magic.to_bytes(4, "big")) for magic in (MAGIC_V1, MAGIC_V2, MAGIC_BLANK))
)


class LogFile(NamedTuple):
    """A file in the folder of the log; it may have any size."""

    path: Path
    first: int
    size: int


class Unreadable(NamedTuple):
    """A range of the log without a valid record, followed by valid ones. Without `path`, a file is missing."""

    begin: int
    end: int
    reason: str
    path: Path | None


class Tail(NamedTuple):
    """Bytes of one file, beyond the end of the log, that are not zero."""

    path: Path
    begin: int
    end: int


def list_log_files(files: Files, folder: Path) -> list[LogFile]:
    """The files of the log in `folder`, by their first offset; ignores files with other names."""
    found = []
    for name in files.list(folder):
        path = folder / name
        status = files.status(path) if is_offset_name(name) else None
        if status is not None and not status.is_dir:
            found.append(LogFile(path, int(name), status.size))
    return found


def is_offset_name(name: str) -> bool:
    """Whether the name of a file is an offset, as for log and queue files."""
    return len(name) == NAME_DIGITS and name.isascii() and name.isdecimal() and int(name) <= MAX_OFFSET


class LogScan:
    """Iterate over it for messages and `Unreadable` ranges, in order; afterwards `end`, `ending` and `tails` describe
    its end.

    Only reads. It may scan a log that is being written, and then ends at the end that it finds. `begin` is the start
    of a record, or before the log.
    """

    def __init__(self, files: Files, log_files: list[LogFile], file_bytes: int, begin: int = 0) -> None:
        self._files = files
        self._log_files = [log_file for log_file in log_files if log_file.size and begin < log_file.first + file_bytes]
        self._file_bytes = file_bytes
        self._begin = begin
        self.end = max(log_files[0].first, begin) if log_files else 0
        """The end of the last valid record or filler."""
        self.ending = ""
        """Why the bytes at `end` are not a record."""
        self.tails: list[Tail] = []
        """Bytes after `end` that are not zero."""
        self._open_ends: list[Unreadable] = []

    def __iter__(self) -> Iterator[StoredMessage | Unreadable]:
        before: LogFile | None = None
        for log_file in self._log_files:
            is_first = True
            for found in self._scan_file(log_file):
                if is_first:
                    yield from self._lost_before(log_file, before)
                    is_first = False
                yield found
            before = log_file
        if self._open_ends:
            self.ending = self._open_ends[0].reason
        self.tails = [tail for log_file in self._log_files for tail in self._tail_of(log_file)]

    def _lost_before(self, log_file: LogFile, before: LogFile | None) -> Iterator[Unreadable]:
        """This file has a record, so the log did not end in a file before it."""
        yield from self._open_ends
        self._open_ends.clear()
        behind = log_file.first if before is None else before.first + self._file_bytes
        if behind < log_file.first:
            yield Unreadable(behind, log_file.first, "its file is missing", None)

    def _scan_file(self, log_file: LogFile) -> Iterator[StoredMessage | Unreadable]:
        """The content of a file. Yields nothing before the first valid record is found."""
        at, stop = max(log_file.first, self._begin), log_file.first + min(log_file.size, self._file_bytes)
        try:
            opened = self._files.open(log_file.path, write=False)
        except FileNotFoundError:  # a broker that uses the store has deleted it meanwhile: its messages expired
            self._open_ends.append(Unreadable(at, at + self._file_bytes, "the file was deleted", None))
            return
        with opened as file:
            part = _FilePart(file, log_file.first, stop)
            while True:
                # `stop` is the end of the file; its name must not matter here, because it may be no multiple of the
                # size.
                scan = RecoveryScan(part.read, MAX_OFFSET, at, stop)
                for _, message in scan:
                    self.end = scan.end
                    yield message
                at = scan.end
                if part.is_filler(at, log_file.first + self._file_bytes) or at == log_file.first + self._file_bytes:
                    self.end = log_file.first + self._file_bytes
                    return
                reason = _reason(scan, at, stop)
                following = part.next_sound(at)
                if following is None:
                    self._open_ends.append(Unreadable(at, log_file.first + self._file_bytes, reason, log_file.path))
                    return
                # A record that was just being written may be complete by now.
                if not part.is_record(at):
                    yield Unreadable(at, following, reason, log_file.path)
                    at = following

    def _tail_of(self, log_file: LogFile) -> Iterator[Tail]:
        if log_file.first + log_file.size <= self.end or self._files.status(log_file.path) is None:
            return
        with self._files.open(log_file.path, write=False) as file:
            begin = max(0, self.end - log_file.first)
            found = nonzero_range(file, begin, log_file.size)
        if found is not None:
            yield Tail(log_file.path, *found)


def _reason(scan: RecoveryScan, at: int, stop: int) -> str:
    if at == stop:
        return "the file ends here"
    return scan.reason.partition(": ")[2] if scan.ending is ScanEnd.DAMAGE else "only zeros"


class _FilePart:
    """One file of the log, by log offsets."""

    def __init__(self, file: File, first: int, stop: int) -> None:
        self._file = file
        self._first = first
        self._stop = stop

    def read(self, offset: int, size: int) -> bytes:
        return self._file.read_at(offset - self._first, size)

    def is_filler(self, offset: int, file_end: int) -> bool:
        """Whether the rest of the file is filler; the file itself may be shorter than it should be."""
        head = self.read(offset, BLANK_SIZE)
        return head == (file_end - offset).to_bytes(4, "big") + MAGIC_BLANK.to_bytes(4, "big")

    def is_record(self, offset: int) -> bool:
        size = int.from_bytes(self.read(offset, 4), "big")
        if not SMALLEST_RECORD <= size <= self._stop - offset:
            return False
        try:
            return decode_record(self.read(offset, size)).log_offset == offset
        except ProtocolError:
            return False

    def next_sound(self, offset: int) -> int | None:
        """The start of the next valid record or of the file's filler after `offset`; None if there is none."""
        at = self._file.next_data(offset - self._first)
        while at is not None and at < self._stop - self._first:
            chunk = self._file.read_at(at, SCAN_CHUNK_BYTES)
            for match in _ANY_MAGIC.finditer(chunk):
                candidate = self._first + at + match.start() - _MAGIC_AT
                if candidate > offset and (self.is_record(candidate) or self.is_filler(candidate, self._stop)):
                    return candidate
            if len(chunk) < SCAN_CHUNK_BYTES:
                return None
            at = self._file.next_data(at + len(chunk) - _MAGIC_AT + 1)
        return None


def nonzero_range(file: File, begin: int, end: int) -> tuple[int, int] | None:
    """The range of bytes of `file` between `begin` and `end` that are not zero; None if all are zero."""
    first = last = None
    at = file.next_data(begin)
    while at is not None and at < end:
        chunk = file.read_at(at, min(SCAN_CHUNK_BYTES, end - at))
        if not chunk:
            break
        if chunk != _ZERO_CHUNK[: len(chunk)]:
            first = at + len(chunk) - len(chunk.lstrip(b"\0")) if first is None else first
            last = at + len(chunk.rstrip(b"\0"))
        at = file.next_data(at + len(chunk))
    return None if first is None or last is None else (first, last)


def written_bytes(files: Files, log_files: list[LogFile]) -> int:
    """The approximate size of the log, without files that were created ahead and are empty."""
    total = 0
    for log_file in log_files:
        with suppress(FileNotFoundError), files.open(log_file.path, write=False) as file:
            total += log_file.size if any(file.read_at(0, BLANK_SIZE)) else 0
    return total


SECTOR_BYTES: Final = 512
_LENGTH_BYTES: Final = 2
_SEPARATOR: Final = VALUE_END.encode()


def looks_cut(text: bytes, at: int) -> bool:
    """Whether `text`, at position `at` of its file, ends in a zero, or what one sector holds of it does."""
    if b"\0" not in text:
        return False
    first_end = SECTOR_BYTES - at % SECTOR_BYTES
    return text[-1] == 0 or any(text[end - 1] == 0 for end in range(first_end, len(text), SECTOR_BYTES))


def moved_on(properties: bytes, at: int) -> bytes | None:
    """The same properties, shifted so that they do not look truncated at position `at` of their file; None if
    impossible.
    """
    if properties.endswith(b"\0"):
        return None
    sector_ends = SECTOR_BYTES - 1 - at
    for count in range(1, SECTOR_BYTES):
        if 0 not in properties[(sector_ends - count) % SECTOR_BYTES :: SECTOR_BYTES]:
            return _SEPARATOR * count + properties
    return None


def has_lost_part(message: StoredMessage, at: int) -> bool:
    """Whether the record of `message`, at position `at` of its file, has lost a part that its checksum does not cover."""
    properties_at = at + message.size - len(message.raw_properties)
    if looks_cut(message.raw_properties, properties_at):
        return True
    topic = message.topic.encode()
    return looks_cut(topic, properties_at - _LENGTH_BYTES - len(topic))
