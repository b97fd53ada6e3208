"""The checkpoint: the store time up to which each kind of file is safe on disk. Recovery starts its scan from it.

    | physic ms 8 | logics ms 8 | index ms 8 | master flushed offset 8 | confirm offset 8 | zeros … |     4096 bytes
      log           queues        key index    both kept as found: they belong to RocketMQ's replication

The 40 bytes are overwritten in one sector, which a disk writes whole or not at all. An unreadable checkpoint counts as
zeros: recovery then starts at the beginning of the log.
"""

import logging
import struct
from pathlib import Path
from typing import Final, Self

from pocketmq.files import Files

log = logging.getLogger(__name__)

FILE_BYTES: Final = 4096
_TIMES: Final = struct.Struct(">qqqqq")
_Times = tuple[int, int, int, int, int]
_NOTHING: Final = (0, 0, 0, 0, 0)


class Checkpoint:
    """Times up to which everything is safe. Set one only after the sync that makes it true. Owned by the store's thread.

    `save`, sync what it returns, then `saved`.
    """

    def __init__(self, files: Files, folder: Path) -> None:
        self._files = files
        self.path = folder / "checkpoint"
        self.physic_ms = 0
        self.logics_ms = 0
        self.index_ms = 0
        self._replication = (0, 0)
        self._written: bytes | None = None
        self._is_saving = False
        self.saved_index_ms = 0
        """The index time that is known to be on the disk."""
        self.flaw = ""
        """Why the file could not be read; empty if it could."""

    @property
    def raw(self) -> bytes:
        """The times in the file."""
        return _TIMES.pack(self.physic_ms, self.logics_ms, self.index_ms, *self._replication)

    def load(self, *, clean: bool = False) -> Self:
        """Read the file. A missing or invalid file counts as zeros; `flaw` is the reason, and it is logged.

        `clean` means that the last stop was clean: a checkpoint of zeros then belongs to a store without messages.
        """
        times, self.flaw = self._read()
        self.physic_ms, self.logics_ms, self.index_ms = times[:3]
        self._replication = times[3:]
        self.saved_index_ms = self.index_ms
        self._written = None if self.flaw else self.raw
        if self.flaw:
            # This is normal for a new store, and for a store that never had a message.
            is_normal = self._files.status(self.path) is None or (clean and self.flaw == self._zeros)
            log.log(
                logging.INFO if is_normal else logging.WARNING,
                "no usable checkpoint found (%s); recovering from the start of the log",
                self.flaw,
            )
        return self

    @property
    def _zeros(self) -> str:
        return f"{self.path} contains only zeros"

    def _read(self) -> tuple[_Times, str]:
        if self._files.status(self.path) is None:
            return _NOTHING, f"{self.path} does not exist"
        data = self._files.read(self.path)[: _TIMES.size]
        if len(data) < _TIMES.size:
            return _NOTHING, f"{self.path} has only {len(data)} bytes"
        if not any(data):
            return _NOTHING, self._zeros
        times: _Times = _TIMES.unpack(data)
        if min(times[:3]) < 0:
            return _NOTHING, f"{self.path} holds a time before 1970"
        return times, ""

    def lower(self, newest_ms: int, newest_index_ms: int) -> bool:
        """Lower times that are newer than the log and the index. Returns whether anything changed."""
        before = self.raw
        self.physic_ms = min(self.physic_ms, newest_ms)
        self.logics_ms = min(self.logics_ms, newest_ms)
        self.index_ms = min(self.index_ms, max(newest_ms, newest_index_ms))
        return self.raw != before

    def save(self) -> list[Path]:
        """Write the times. Returns the paths to sync before `saved`; empty if nothing changed or a save is in progress."""
        raw = self.begin_save()
        return [] if raw is None else self.write(raw)

    def begin_save(self) -> bytes | None:
        """The bytes for `write`, on any thread; None if nothing changed or a save is in progress."""
        raw = self.raw
        if raw == self._written or self._is_saving:
            return None
        self._is_saving = True
        return raw

    def write(self, raw: bytes) -> list[Path]:
        """The paths to sync before `saved`. After an error, call `not_saved`."""
        is_new = self._files.status(self.path) is None
        with self._files.open(self.path, create=True) as file:
            if file.size() < FILE_BYTES:
                file.truncate(FILE_BYTES)
            file.write_at(0, raw)
        if is_new:
            self._files.sync_dir(self.path.parent)
        self._written = raw
        return [self.path]

    def not_saved(self) -> None:
        """The content of the file is unknown; the next save writes it again."""
        self._is_saving = False
        self._written = None

    def saved(self) -> None:
        """The bytes of `save` are on the disk."""
        self._is_saving = False
        if self._written is not None:
            self.saved_index_ms = _TIMES.unpack(self._written)[2]
