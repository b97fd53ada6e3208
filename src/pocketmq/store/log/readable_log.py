"""Reading the log: bytes, records and store times by their offset, and the files that hold them.

    offset ──► file ──► map of the file ──► view of the bytes

`CommitLog` adds writing to it.
"""

import struct

from pocketmq.codes import SysFlag
from pocketmq.errors import StoreError
from pocketmq.files import File, FileStatus
from pocketmq.protocol.record import FIELD_AT, MAGIC_V1, MAGIC_V2, SMALLEST_RECORD, SYS_FLAG_AT
from pocketmq.store.log.segments import Segments, disk_error

_SIZE_AND_MAGIC = struct.Struct(">II")
_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")


class ReadableLog:
    """The log as readers use it: offsets from `start` to `written`."""

    def __init__(self, segments: Segments) -> None:
        self.segments = segments
        self._file_bytes = segments.file_bytes
        self._is_recovered = False
        self.start = self.written = 0

    def view(self, offset: int, size: int) -> memoryview:
        """Bytes of one file, not copied. The view stays valid after the file is deleted."""
        if not self.start <= offset <= self.written - size:
            raise self._not_here(offset, size)
        found = self.peek(offset, size)
        if found is None:
            raise self._not_here(offset, size)
        return found

    def peek(self, offset: int, size: int) -> memoryview | None:
        """The same; None if they span two files. The first of them must be in the log."""
        segment = self.segments.files[(offset - self.start) // self._file_bytes]
        at = offset - segment.first
        # Before recovery has found the end, the file may have holes anywhere. On tmpfs, reading a hole through a map
        # allocates memory, and a full file system ends the process with SIGBUS.
        found = segment.map[at : at + size] if self._is_recovered else memoryview(segment.file.read_at(at, size))
        return found if len(found) == size else None

    def map_at(self, offset: int) -> tuple[memoryview | None, int]:
        """All bytes of the file with `offset`, and its first offset; None if it is not in the log."""
        if not self.start <= offset < self.written:
            return None, 0
        segment = self.segments.files[(offset - self.start) // self._file_bytes]
        return segment.map, segment.first

    def record(self, offset: int) -> bytes | None:
        """The record that begins at `offset`; None if there is none, such as in filler, or outside of the log."""
        if not self.start <= offset <= self.written - SMALLEST_RECORD:
            return None
        segment = self.segments.files[(offset - self.start) // self._file_bytes]
        at = offset - segment.first
        if at > self._file_bytes - SMALLEST_RECORD:
            return None
        # Not through the map: the offset may be in the filler, which is a hole.
        try:
            size, magic = _SIZE_AND_MAGIC.unpack(segment.file.read_at(at, _SIZE_AND_MAGIC.size))
        except OSError as error:
            raise disk_error(f"cannot read {segment.path}", error) from error
        end = min(self.written - segment.first, self._file_bytes)
        if magic not in (MAGIC_V1, MAGIC_V2) or not SMALLEST_RECORD <= size <= end - at:
            return None
        return bytes(self.view(offset, size))

    def bytes_at(self, offset: int, most: int) -> bytes:
        """Up to `most` bytes of one file from `offset` on; none outside of the log. Fillers are read, too, so not through the
        map.
        """
        if not self.start <= offset < self.written:
            return b""
        segment = self.segments.files[(offset - self.start) // self._file_bytes]
        try:
            return segment.file.read_at(offset - segment.first, min(most, self.written - offset, segment.end - offset))
        except OSError as error:
            raise disk_error(f"cannot read {segment.path}", error) from error

    def store_ms_at(self, offset: int) -> int:
        """The store time of the record that begins at `offset`."""
        head = self.view(offset, SMALLEST_RECORD)
        born_v6 = _INT.unpack_from(head, SYS_FLAG_AT)[0] & SysFlag.BORN_HOST_V6
        found: int = _LONG.unpack_from(head, FIELD_AT["store_ms"] + (12 if born_v6 else 0))[0]
        return found

    def _not_here(self, offset: int, size: int) -> StoreError:
        return StoreError(
            f"the log holds offsets {self.start} to {self.written} in files of {self._file_bytes}, "
            f"but not {size} bytes at {offset}"
        )

    # files

    @property
    def first_offsets(self) -> list[int]:
        """The first offset of each file."""
        return [segment.first for segment in self.segments.files]

    def files_between(self, start: int, end: int) -> list[File]:
        """The files with bytes from `start` up to `end`: a sync of that range must include them."""
        return [segment.file for segment in self.segments.between(start, end)]

    def file_statuses(self, most: int | None = None) -> list[tuple[int, FileStatus]]:
        """First offset, size and age of each file, oldest first; of the oldest `most`, or of all."""
        statuses = ((segment.first, segment.status()) for segment in self.segments.files[:most])
        return [(first, status) for first, status in statuses if status is not None]
