"""The key index: from a key of a message to its log offset.

    index/20261115093434288 … 20261201174455021      files of a fixed number of entries, named by their creation time
    full, on disk ────────────────┘        └── growing: in memory first, written back by `flush`

Every message is added with its unique key and each of its keys. Queries read from the newest file to the oldest.

Derived: the files may be deleted at any time. `IndexBuilder` builds them from the log, behind the writers. The header of
a file says which part of the log it covers, so after any stop the work continues at the end of the newest file.
"""

import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final

from pocketmq.clock import Clock
from pocketmq.codes import SysFlag
from pocketmq.errors import InvalidSetting, StoreDamaged
from pocketmq.files import Files
from pocketmq.model.properties import raw_property
from pocketmq.store.index.growing_index_file import GrowingIndexFile, Write, put_slots_right
from pocketmq.store.index.index_file import (
    HEADER,
    IndexFile,
    IndexHeader,
    IndexShape,
    KeyEntry,
    KeyHashes,
    KeyQuery,
    key_hash,
)
from pocketmq.store.settings import LARGEST_FILE_BYTES, StoreSettings

log = logging.getLogger(__name__)

MAX_FOUND: Final = 64
"""The limit on results of one query."""
MAX_VISITED: Final = 100_000
"""The limit on entries that one query reads; it does not find older messages with very frequent keys."""

_TRANSACTION: Final = SysFlag.TRANSACTION_MASK
_ROLLED_BACK: Final = SysFlag.TRANSACTION_ROLLBACK
_NAME_FORMAT: Final = "%Y%m%d%H%M%S"


class KeyIndex:
    """All index files of a store. Owned by the store's thread."""

    def __init__(self, settings: StoreSettings, files: Files, clock: Clock) -> None:
        if settings.index_slots < 1 or settings.index_entries < 2:
            raise InvalidSetting(
                "index_slots must be at least 1, and index_entries at least 2, because one entry is never used"
            )
        self._shape = IndexShape(settings.index_slots, settings.index_entries)
        if self._shape.file_bytes > LARGEST_FILE_BYTES:
            raise InvalidSetting(
                f"an index of {settings.index_slots} index_slots and {settings.index_entries} index_entries takes "
                f"{self._shape.file_bytes} bytes; the limit is {LARGEST_FILE_BYTES}"
            )
        self._files = files
        self._clock = clock
        self.folder = settings.folder / "index"
        self._hash_of = KeyHashes().of
        self._table: list[IndexFile | GrowingIndexFile] = []
        self._growing: list[GrowingIndexFile] = []
        self._new_names = self._needs_file = False
        self.indexed_to = -1
        """Log offset of the last message that was entered; -1 if there is none."""
        self._entered_before: int | None = 0
        """How many keys of that message were in the files when they were loaded; None once keys were added."""
        self.newest_ms = 0
        """The index time for the checkpoint: keys of messages up to this store time are on the disk."""
        self.recorded_ms = 0
        """The files on disk contain the keys of messages up to this store time without any repair."""
        self.foreign: list[Path] = []
        """Entries of the folder that are not index files; they are not changed."""

    # loading

    def recover(self, log_start: int, log_end: int, *, crashed_at_ms: int | None) -> int:
        """Find the files, and make them match a recovered log. Returns the number of deleted files.

        `crashed_at_ms` is the index time of the checkpoint when the last stop was a crash, None when it was clean.
        """
        self.load()
        discarded = self.discard_after(log_end, crashed_at_ms)
        self.drop_before(log_start)
        return len(discarded)

    def load(self) -> None:
        """Find the files. Raises StoreDamaged for a file of another size than in the settings."""
        if self._files.status(self.folder) is None:
            self._files.make_dir(self.folder)
            self._files.sync_dir(self.folder.parent)
        self.foreign.clear()
        for name in self._files.list(self.folder):
            path = self.folder / name
            status = self._files.status(path)
            if _made_at(name) is None or status is None or status.is_dir:
                self.foreign.append(path)
            else:
                self._table.append(IndexFile(self._files, path, self._shape))
        self._save_end()

    def discard_after(self, log_end: int, checkpoint_ms: int | None = None) -> list[Path]:
        """Delete files that may be wrong, and return them. They are rebuilt from the log.

        A file may be wrong if its header is invalid or names records at or after `log_end`. After a crash,
        `checkpoint_ms` is the index time of the checkpoint, and any newer file may be wrong. Later files are deleted
        with it.
        """
        kept = self._count_sound(log_end, checkpoint_ms)
        for file in self._table[kept:]:
            self._files.unlink(file.path)
        removed = [file.path for file in self._table[kept:] if not file.header.is_empty or _has_flaw(file)]
        if kept < len(self._table):
            self._files.sync_dir(self.folder)
        if removed:
            log.warning(
                "removed %d index files that may be wrong, from %s on; rebuilding them from the log",
                len(removed),
                removed[0],
            )
        del self._table[kept:]
        if self._table and checkpoint_ms is not None:
            self._write_header_again(self._table[-1])
        self._save_end()
        return removed

    def _count_sound(self, log_end: int, checkpoint_ms: int | None) -> int:
        """How many files can be trusted, counted from the oldest."""
        for number, file in enumerate(self._table):
            if not self._is_sound(file, log_end, checkpoint_ms):
                return number
            # A file is created when the one before it is full. After a crash, a file that is not full is the last one.
            if checkpoint_ms is not None and not file.is_full:
                return number if file.header.is_empty else number + 1
        return len(self._table)

    def _write_header_again(self, file: IndexFile | GrowingIndexFile) -> None:
        """A failed sync may have left this header readable but not on the disk; a second sync would not report that."""
        with self._files.open(file.path) as opened:
            opened.write_at(0, HEADER.pack(*file.header))
            opened.sync()

    def _is_sound(self, file: IndexFile | GrowingIndexFile, log_end: int, checkpoint_ms: int | None) -> bool:
        assert isinstance(file, IndexFile), "no key was added yet"
        if file.flaw:
            log.warning("invalid header of %s: %s; rebuilding the file from the log", file.path, file.flaw)
            return False
        if not file.header.is_empty and file.header.end_offset >= log_end:
            return False
        if checkpoint_ms is None:
            return True
        if file.header.end_ms > checkpoint_ms:
            return False
        file.count_back()
        try:
            return file.is_full or put_slots_right(self._files, file) >= 0
        except StoreDamaged as damage:
            log.warning("%s; rebuilding the file from the log", damage)
            return False

    def _save_end(self) -> None:
        headers = [file.header for file in self._table if not file.header.is_empty]
        self.indexed_to = headers[-1].end_offset if headers else -1
        self.newest_ms = self.recorded_ms = headers[-1].end_ms if headers else 0
        self._entered_before = None
        self._entered_before = self._entered_of(self.indexed_to)

    # adding

    def keys_of(
        self, topic: bytes, raw_properties: bytes, sys_flag: int, log_offset: int, store_ms: int
    ) -> list[KeyEntry]:
        """The unique key of a message and each of its keys. Empty if it was rolled back."""
        if sys_flag & _TRANSACTION == _ROLLED_BACK:
            return []
        found: list[KeyEntry] = []
        hash_of = self._hash_of
        # Like `raw_property`, at half the cost, unless a name is the end of a longer one.
        before, name, behind = raw_properties.rpartition(b"UNIQ_KEY\x01")
        if name:
            is_whole = not before or before[-1] == 2
            unique = behind.partition(b"\x02")[0] if is_whole else raw_property(raw_properties, b"UNIQ_KEY")
            if unique:
                found.append((hash_of(topic, unique), log_offset, store_ms))
        before, name, behind = raw_properties.rpartition(b"KEYS\x01")
        if name:
            is_whole = not before or before[-1] == 2
            keys = behind.partition(b"\x02")[0] if is_whole else raw_property(raw_properties, b"KEYS")
            if keys and b" " not in keys:
                found.append((hash_of(topic, keys), log_offset, store_ms))
            elif keys:
                found += [(hash_of(topic, key), log_offset, store_ms) for key in keys.split(b" ") if key]
        return found

    def put(self, keys: Sequence[KeyEntry]) -> None:
        """Like `add`, but makes the necessary writes itself, and waits for them.

        After an OSError, or a MemoryError, call it again.
        """
        while self.write_next() or not self.add(keys):
            pass

    def add(self, keys: Sequence[KeyEntry]) -> bool:
        """Add the keys of complete messages, in the order of the log. Skips messages that were added before.

        Returns False if `next_write` must be made first; then call it again with the same keys. The same after a
        MemoryError.
        """
        self._save_entered()  # the last call may have failed before this
        if keys and keys[0][1] <= self.indexed_to:
            keys = self._not_yet_entered(keys)
        while keys:
            newest = self._growing[-1] if self._growing else None
            if newest is None or not newest.takes_keys:
                self._needs_file = newest is None or newest.is_full
                return False
            self._entered_before = None
            try:
                added = newest.put(keys)
            finally:
                self._save_entered()
            keys = keys[added:]
        return True

    def next_write(self) -> Write | None:
        """The write that `add` waits for, or will soon: of many new entries, or of a new file. None if there is none."""
        if self._growing and (surplus := self._growing[-1].surplus()) is not None:
            return surplus
        return self._next_file() if self._needs_file else None

    def write_next(self) -> bool:
        """Make the write that `add` waits for, if there is one, and wait for the disk. Returns whether there was one."""
        write = self.next_write()
        if write is not None:
            write.now()
        return write is not None

    def _save_entered(self) -> None:
        if self._growing and self._growing[-1].end_offset > self.indexed_to:
            self.indexed_to = self._growing[-1].end_offset

    def _not_yet_entered(self, keys: Sequence[KeyEntry]) -> list[KeyEntry]:
        last = [key for key in keys if key[1] == self.indexed_to]
        later = [key for key in keys if key[1] > self.indexed_to]
        return last[self._entered_of(self.indexed_to) :] + later if last else later

    def _entered_of(self, log_offset: int) -> int:
        """How many keys of the last message are in the index: a stop may have separated them."""
        if self._entered_before is not None:
            return self._entered_before
        entered = 0
        for file in reversed(self._table):
            number = file.header.next_number - 1
            while number > 0 and file.entry(number)[1] == log_offset:
                number -= 1
                entered += 1
            if number > 0:
                break
        return entered

    def _next_file(self) -> Write:
        """The file for new keys: the newest file is opened, or a new one is created if that is full."""
        last = self._table[-1] if self._table else None
        opened: list[GrowingIndexFile] = []
        is_new = not isinstance(last, IndexFile) or last.is_full or bool(last.flaw)
        path, header = (self._new_path(), IndexHeader()) if last is None or is_new else (last.path, last.header)

        def make() -> None:
            opened.append(GrowingIndexFile(self._files, path, self._shape, header))

        return Write(make, partial(self._opened, opened, is_new))

    def _opened(self, opened: list[GrowingIndexFile], is_new: bool) -> None:
        if is_new:
            self._table += opened
            self._new_names = True
        else:
            self._table[-1:] = opened
        self._growing += opened
        self._needs_file = False

    def _new_path(self) -> Path:
        """A name that no file has and that sorts after all others, at any time of the clock."""
        now_ms = self._clock.now_ms()
        made_at = datetime.fromtimestamp(now_ms // 1000) + timedelta(milliseconds=now_ms % 1000)
        newest = _made_at(self._table[-1].path.name) if self._table else None
        if newest is not None and made_at <= newest:
            made_at = newest + timedelta(milliseconds=1)
        while self._files.status(path := self.folder / _name_of(made_at)) is not None:
            made_at += timedelta(milliseconds=1)
        return path

    # looking up

    def find(self, topic: str, key: str, begin_ms: int, end_ms: int, limit: int) -> list[int]:
        """Log offsets of messages that may have this key and were stored in this range of time, newest first.

        The caller must compare key and topic, because another key may have the same hash, and the time, which is
        stored in whole seconds.
        """
        query = KeyQuery(key_hash(topic, key), begin_ms, end_ms, min(limit, MAX_FOUND), MAX_VISITED)
        for file in reversed(self._table):
            header = file.header
            if query.overlaps(header):
                file.find(query)
            if query.is_over or (not header.is_empty and header.begin_ms < begin_ms):
                break
        if query.visits_left <= 0:
            log.warning(
                "query of key %r of %s stopped after %d index entries; the answer may lack messages",
                key,
                topic,
                MAX_VISITED,
            )
        return query.found

    # to the disk

    @property
    def is_flushing(self) -> bool:
        """Whether a flush is in progress and its next step waits."""
        return bool(self._growing) and self._growing[0].is_flushing

    @property
    def is_settled(self) -> bool:
        """Whether all added keys are safe and covered by the headers."""
        return all(file.is_settled for file in self._growing)

    def flush(self, log_synced: int, checkpoint_ms: int) -> list[Path]:
        """Make the next step of a flush, and wait for the disk. Returns the paths to sync before the next one."""
        step = self.next_step(log_synced, checkpoint_ms)
        if step is None:
            return []
        step.now()
        return [*step.to_sync]

    def next_step(self, log_synced: int, checkpoint_ms: int) -> Write | None:
        """The next step of a flush: make it, sync its paths, then call again. None: nothing to do now.

        The paths may include the folder, whose names must be synced. The log is safe up to `log_synced`, and
        `checkpoint_ms` is the index time of the checkpoint on disk: one step waits for each. After an OSError, call
        it again; nothing is lost.
        """
        while self._growing:
            file = self._growing[0]
            step = file.next_step(log_synced, checkpoint_ms)
            self.newest_ms = max(self.newest_ms, file.safe_ms)
            self.recorded_ms = max(self.recorded_ms, file.recorded_ms)
            if step is not None:
                to_sync = (file.path, self.folder) if self._new_names else (file.path,)
                return Write(step.make, partial(self._stepped, step), to_sync)
            if not (file.is_full and file.is_settled):
                break
            self._table[self._table.index(file)] = IndexFile(self._files, file.path, self._shape, file.header)
            self._growing.pop(0).close()
        return None

    def _stepped(self, step: Write) -> None:
        step.done()
        self._new_names = False

    def settle(self, log_synced: int, save_checkpoint: Callable[[int], None]) -> None:
        """Flush everything and wait for the disk: for a clean stop. Calls `save_checkpoint` with the index time."""
        assert log_synced > self.indexed_to, "the log is synced before the index"
        saved_ms = -1
        while not self.is_settled:
            paths = self.flush(log_synced, saved_ms)
            for path in paths:
                self._sync(path)
            if not paths and saved_ms < self.newest_ms:
                saved_ms = self.newest_ms
                save_checkpoint(saved_ms)

    def sync_newer(self, checkpoint_ms: int) -> None:
        """Sync the files that are newer than a checkpoint with this index time."""
        for file in self._table:
            if file.header.end_ms > checkpoint_ms:
                self._sync(file.path)

    def _sync(self, path: Path) -> None:
        if path == self.folder:
            self._files.sync_dir(path)
            return
        with self._files.open(path) as file:
            file.sync()

    def drop_before(self, log_offset: int) -> int:
        """Delete the index files of deleted log files, and return their number. The newest always stays."""
        dropped = 0
        while len(self._table) > 1:
            oldest = self._table[0]
            if isinstance(oldest, GrowingIndexFile) or oldest.header.end_offset >= log_offset:
                break
            self._files.unlink(oldest.path)
            del self._table[0]
            dropped += 1
        return dropped

    def close(self) -> None:
        """Close the files. Unflushed keys are read from the log again."""
        for file in self._growing:
            file.close()
        self._growing.clear()
        self._table.clear()


def _has_flaw(file: IndexFile | GrowingIndexFile) -> bool:
    return isinstance(file, IndexFile) and bool(file.flaw)


def _made_at(name: str) -> datetime | None:
    """The creation time in the name of a file; None if it is not the name of an index file."""
    if len(name) != 17 or not (name.isascii() and name.isdecimal()):
        return None
    try:
        return datetime.strptime(name[:14], _NAME_FORMAT) + timedelta(milliseconds=int(name[14:]))
    except ValueError:
        return None


def _name_of(made_at: datetime) -> str:
    return f"{made_at:{_NAME_FORMAT}}{made_at.microsecond // 1000:03d}"
