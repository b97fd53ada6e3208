"""The resume point: the bounds of all queues in one small file, so that a start need not open every queue.

    config/resume.json    {"crc": …, "point": {"version": 1, "clean": …, "checkpoint": …, "log_end": …, "queues": …}}

It is written at a clean stop and sometimes while the store runs. In the second case, it contains the bounds that are
safe on disk, and a queue that is shorter has lost entries. Recovery ignores a missing or damaged file, or one of
another version. RocketMQ does not update the file, so recovery compares it with the other files first.
"""

import logging
from pathlib import Path
from typing import Final, Literal
from zlib import crc32

import msgspec

from pocketmq.files import Files

log = logging.getLogger(__name__)

QueueKey = tuple[str, int]
"""Topic and queue id."""
Bounds = tuple[int, int]
"""The smallest offset, and the end offset."""


class ResumePoint(msgspec.Struct, frozen=True, kw_only=True):
    """The state on disk at one time."""

    clean: bool
    """Written at a clean stop: the bounds are exact. Otherwise they are lower bounds."""
    checkpoint: bytes = b""
    """The checkpoint at that time: if it differs now, another program wrote to the store since."""
    log_end: int = 0
    last_record: int = -1
    """Log offset of the last record; -1 if there is none."""
    queues: dict[QueueKey, Bounds] = {}
    unfinished: list[QueueKey] = []
    """Queues that were being rebuilt: their files may look complete, but are not."""
    deleted: dict[str, int] = {}
    """Deleted topics, and the end of the log at that time: earlier messages must not be restored."""


class _SavedPoint(msgspec.Struct, frozen=True):
    """A resume point in the form of the file: each topic once, with the id and the bounds of each queue."""

    version: Literal[1]
    clean: bool
    checkpoint: bytes
    log_end: int
    last_record: int
    queues: dict[str, list[tuple[int, int, int]]]
    unfinished: list[QueueKey] = []
    deleted: dict[str, int] = {}


class _File(msgspec.Struct):
    crc: int
    point: msgspec.Raw


_decode_file: Final = msgspec.json.Decoder(_File).decode
_decode_point: Final = msgspec.json.Decoder(_SavedPoint).decode
_encode: Final = msgspec.json.Encoder().encode


class ResumeFile:
    """The resume point of the store in `folder`."""

    def __init__(self, files: Files, folder: Path) -> None:
        self._files = files
        self.path = folder / "config" / "resume.json"
        self._new = self.path.with_name(self.path.name + ".tmp")

    def save(self, point: ResumePoint) -> None:
        """Replace the file and wait for the disk. After a crash, it is the old or the new file."""
        new = self.write(point)
        with self._files.open(new) as file:
            file.sync()
        self._files.sync_dir(self.publish())

    def write(self, point: ResumePoint) -> Path:
        """The first half of `save`, without waiting: writes a new file beside the old one. Sync it, then call
        `publish`.
        """
        queues: dict[str, list[tuple[int, int, int]]] = {}
        for (topic, queue_id), (low, high) in point.queues.items():
            queues.setdefault(topic, []).append((queue_id, low, high))
        saved = _SavedPoint(
            1, point.clean, point.checkpoint, point.log_end, point.last_record, queues, point.unfinished, point.deleted
        )
        body = _encode(saved)
        folder = self.path.parent
        if self._files.status(folder) is None:
            self._files.make_dir(folder)
            self._files.sync_dir(folder.parent)
        with self._files.open(self._new, create=True) as file:
            file.truncate(0)
            file.write_at(0, _encode(_File(crc32(body), msgspec.Raw(body))))
        return self._new

    def publish(self) -> Path:
        """Replace the old file with the synced new one. Returns the folder to sync."""
        self._files.replace(self._new, self.path)
        return self.path.parent

    def load(self) -> ResumePoint | None:
        """The point in the file; None if there is no valid one."""
        if self._files.status(self.path) is None:
            return None
        try:
            file = _decode_file(self._files.read(self.path))
            if crc32(file.point) != file.crc:
                raise msgspec.ValidationError("its checksum is wrong")
            saved = _decode_point(file.point)
        except (OSError, UnicodeDecodeError, msgspec.DecodeError) as error:
            log.warning("ignoring the resume file %s: %s", self.path, error)
            return None
        queues = {(topic, id_): (low, high) for topic, bounds in saved.queues.items() for id_, low, high in bounds}
        return ResumePoint(
            clean=saved.clean,
            checkpoint=saved.checkpoint,
            log_end=saved.log_end,
            last_record=saved.last_record,
            queues=queues,
            unfinished=saved.unfinished,
            deleted=saved.deleted,
        )
