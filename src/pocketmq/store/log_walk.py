"""Walking the log record by record: what recovery, verification, dumps and rebuilds have in common.

    record ─ record ─ record ─ blank filler │ record ─ record ─ zeros       one file after the other
                                                           └─ the end: nothing was written here

A walk ends at the first thing that is not a whole, sound record, and says what it was. It never looks behind it: what follows
a hole was never acknowledged in order, and must not come back.
"""

from collections.abc import Callable, Iterator
from enum import Enum
from typing import Final

from pocketmq.errors import ProtocolError
from pocketmq.model.message import StoredMessage
from pocketmq.protocol.record import (
    BLANK_SIZE,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    SYS_FLAG_AT,
    decode_record,
    record_size,
)

CHUNK_BYTES = 1024 * 1024
"""What is read at a time; no less than the head of a record."""
_LENGTHS_BYTES: Final = 3
"""What the lengths of topic and properties take."""


class Ending(Enum):
    """Why a walk ended."""

    NO_MORE = "the log ends here"
    DAMAGE = "the bytes here are not a sound record"


class LogWalk:
    """Iterate over it for (log offset, message); afterwards `end`, `ending` and `reason` tell where and why it stopped.

    `read(offset, size)` gives bytes of the log, `size` of them unless the file ends before; offsets are the log's own.
    """

    def __init__(
        self, read: Callable[[int, int], bytes], file_bytes: int, start: int, stop: int, *, check_crc: bool = True
    ) -> None:
        self._read = read
        self._file_bytes = file_bytes
        self._stop = stop
        self._check_crc = check_crc
        self.end = start
        self.ending = Ending.NO_MORE
        self.reason = ""
        self.records = 0

    def __iter__(self) -> Iterator[tuple[int, StoredMessage]]:
        while self.end < self._stop:
            file_end = (self.end // self._file_bytes + 1) * self._file_bytes
            yield from self._walk_file(file_end)
            if self.end != file_end:
                return

    def _walk_file(self, file_end: int) -> Iterator[tuple[int, StoredMessage]]:
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
                self._damage(f"the record says that it lies at {message.log_offset}")
                return
            # Counted before it is handed out, so that whoever breaks off finds `end` behind what was given.
            offset = at
            self.end = at = at + message.size
            self.records += 1
            yield offset, message

    def refuse(self, offset: int, what: str) -> None:
        """Whoever walks has found that the record just given, at `offset`, is not sound: the walk ends before it."""
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
        self.ending = Ending.DAMAGE
        self.reason = f"at log offset {self.end}: {what}"


def _more(chunk: bytes, at: int, readable: int) -> int:
    """How many bytes to read for the record that begins at `at` of the chunk; 0 when more would not help."""
    here = len(chunk) - at
    if here >= readable:
        return 0
    if at:
        return min(CHUNK_BYTES, readable)
    # Larger than a chunk, or damaged. A size that does not fit to the body's is not worth a gigabyte of memory.
    size, sys_flag = int.from_bytes(chunk[:4], "big"), int.from_bytes(chunk[SYS_FLAG_AT : SYS_FLAG_AT + 4], "big")
    body_at = record_size(0, 0, 0, sys_flag) - _LENGTHS_BYTES
    body_size = int.from_bytes(chunk[body_at - 4 : body_at], "big")
    return size if here < size <= min(readable, record_size(0xFFFF, body_size, 0xFFFF, sys_flag)) else 0
