"""Creates the next log files before they are needed, and deletes old ones, in a thread.

    log ── … | in use |   ready  ready   creating …       `prepared_files` ahead
                      └ take()

A file is created with its full size, sparse or with allocated blocks, as the settings say. Its bytes and name are
synced before the next one is begun. So after a crash the log is a sequence of files without gaps, followed by files
that are all zeros, of which the newest may be empty. Old files are deleted in order, each name synced before the next,
for the same reason.
If no file is ready, the send is counted and rejected (StoreBusy; StoreFull if the disk is full); it never waits.
"""

import logging
from collections import deque
from contextlib import ExitStack, suppress
from functools import partial

from pocketmq.clock import Clock
from pocketmq.errors import StoreBusy, StoreDamaged, StoreError
from pocketmq.files import File, Files
from pocketmq.store.log.segments import Segment, Segments, disk_error
from pocketmq.store.settings import StoreSettings
from pocketmq.store.worker import Worker

log = logging.getLogger("pocketmq.store")


class FilePreparer:
    """Keeps files ready for the end of a log, and deletes files before its start. Owned by the store's thread."""

    def __init__(
        self, settings: StoreSettings, files: Files, clock: Clock, segments: Segments, worker: Worker | None = None
    ) -> None:
        self._files = files
        self._clock = clock
        self._segments = segments
        self._worker = worker or Worker("pocketmq-files")
        self._allocate = settings.allocate_files
        self._most_ready = settings.prepared_files
        self._retry_s = settings.retry_ms / 1000
        self._close_timeout_s = settings.close_timeout_ms / 1000
        self._open = False
        self._next = 0
        self._ready: deque[tuple[int, File]] = deque()
        self._making = False
        self._make_at = 0.0
        self._old: deque[Segment] = deque()
        self._removing = False
        self._remove_at = 0.0
        self.failure: StoreError | None = None
        """Why the next file could not be created; None if it could."""
        self.removal_failure: StoreError | None = None
        """Why the oldest file could not be deleted."""
        self.starved = 0
        """How often the log needed a file and none was ready."""
        self.starved_since: float | None = None
        """Monotonic time since which the log has been waiting for a file."""

    @property
    def ready(self) -> int:
        """The number of ready files."""
        return len(self._ready)

    @property
    def busy(self) -> bool:
        """Whether the thread is at work."""
        return self._worker.busy

    @property
    def removing(self) -> bool:
        """Whether files that were removed from the log may still exist, or may be restored by a crash."""
        return bool(self._old)

    def begin(self) -> None:
        """Start to create files beyond the end of the log. Waits for the very first file of a log, and only for this
        one.
        """
        folder = self._segments.folder
        self._next = self._segments.end_of_files
        self._open = True
        try:
            self._files.make_dir(folder)
            self._files.sync_dir(folder.parent)
            if not self._segments.files:
                self._made(self._make(self._next))
        except OSError as error:
            raise disk_error(f"cannot create the first log file in {folder}", error) from error
        self._make_next()

    def begin_at(self, first: int) -> None:
        """The log is empty, and its first file will be this one: discard all others. Raises StoreBusy while one is created."""
        self._worker.settle()
        if self._making:
            raise StoreBusy(f"a log file for offset {self._next} is still being created")
        try:
            while self._ready:
                unused, file = self._ready[-1]
                file.close()
                Segment(self._files, self._segments.path_of(unused), unused, self._segments.file_bytes).remove()
                self._ready.pop()
            self._segments.drop_after(-1)
        except OSError as error:
            raise disk_error("cannot remove the unused log files", error) from error
        self._next = first
        self._make_next()

    def take(self) -> Segment:
        """The next file, which belongs to the log from now on. Raises StoreBusy or StoreFull if none is ready."""
        self._worker.settle()
        while self._ready and self._ready[0][0] < self._segments.end_of_files:
            self._ready.popleft()  # it belongs to the log already: a later call failed
        if self._ready and self._is_removed(self._ready[0][0]):
            self._begin_again(self._ready[0][0])
        if not self._ready:
            raise self._starved()
        segment = self._segments.add(*self._ready[0])
        self._ready.popleft()
        self._make_next()
        return segment

    def remove(self, segment: Segment) -> None:
        """Delete a file that was removed from the log, after those of earlier calls."""
        self._old.append(segment)
        self._remove_next()

    def tick(self) -> None:
        """Retry failed operations after their pause."""
        self._worker.settle()
        self._make_next()
        self._remove_next()

    def close(self) -> None:
        """End the thread, and delete unused files, newest first, so that no gap can remain."""
        self._open = False
        removable = self._worker.close(self._close_timeout_s)
        if not removable:
            log.warning(
                "the disk does not respond while a log file is created or removed; closing without "
                "waiting for its thread"
            )
        while self._ready:
            first, file = self._ready.pop()
            file.close()
            removable = removable and self._remove_unused(first)

    def _remove_unused(self, first: int) -> bool:
        try:
            Segment(self._files, self._segments.path_of(first), first, self._segments.file_bytes).remove()
        except OSError as error:
            log.warning("cannot remove unused log files, which is harmless: %s", error)
            return False
        return True

    def _starved(self) -> StoreError:
        self.starved += 1
        if self.starved_since is None:
            self.starved_since = self._clock.monotonic()
            log.warning(
                "no log file is ready for offset %d: %s", self._next, self.failure or "it is still being created"
            )
        if self.failure is not None:
            return type(self.failure)(*self.failure.args)
        return StoreBusy(f"the log file for offset {self._next} is still being created")

    def _is_removed(self, first: int) -> bool:
        """Whether another program deleted a ready file: data written to it would be lost with the process.

        An Apache broker that is started on this folder by mistake does that. It recovers, and deletes all files
        beyond the end of the log, before it checks the lock and stops.
        """
        return self._files.status(self._segments.path_of(first)) is None

    def _begin_again(self, first: int) -> None:
        """Discard the ready files and create them again, from `first` on, after a file that is being created."""
        if self._making:
            raise StoreBusy(
                f"the log file for offset {first} is missing because another program removed it; it "
                "is being created again"
            )
        log.error("another program removed %s; creating log files again from there", self._segments.path_of(first))
        while self._ready:
            self._ready.pop()[1].close()
        self._next = first
        self._make_next()

    # making

    def _make_next(self) -> None:
        if not self._open or self._making or len(self._ready) >= self._most_ready:
            return
        if self.failure is not None and self._clock.monotonic() < self._make_at:
            return
        self._worker.submit(partial(self._make, self._next), self._made, self._not_made)
        self._making = True

    def _make(self, first: int) -> File:
        """On the thread: a file of zeros, synced with its name."""
        path = self._segments.path_of(first)
        file = self._files.open(path, create=True)
        with ExitStack() as undo:
            undo.callback(file.close)
            if file.next_data(0) is not None:
                raise StoreDamaged(
                    f"{path} already exists, but a new log file must be created there. Move it elsewhere"
                )
            try:
                file.truncate(
                    self._segments.file_bytes
                )  # the size comes first: half a file would look like damage after a crash
                if self._allocate:
                    file.allocate(self._segments.file_bytes)
                file.sync()
                self._files.sync_dir(path.parent)
            except OSError:
                with suppress(OSError):  # the file contains only zeros, and the next attempt continues with it
                    self._files.unlink(path)
                raise
            undo.pop_all()
        return file

    def _made(self, file: File) -> None:
        self._making = False
        if self.failure is not None:
            log.info("log files can be created again")
            self.failure = None
        self._ready.append((self._next, file))
        self._next += self._segments.file_bytes
        self.starved_since = None
        self._make_next()

    def _not_made(self, error: Exception) -> None:
        self._making = False
        if self.failure is None:
            log.error("cannot create the next log file; retrying: %s", error)
        self.failure = _cause("cannot create the next log file", error)
        self._make_at = self._clock.monotonic() + self._retry_s

    # removing

    def _remove_next(self) -> None:
        if not self._open or self._removing or not self._old:
            return
        if self.removal_failure is not None and self._clock.monotonic() < self._remove_at:
            return
        self._worker.submit(self._old[0].remove, self._removed, self._not_removed)
        self._removing = True

    def _removed(self, _: None) -> None:
        self._removing = False
        self.removal_failure = None
        self._old.popleft()
        self._remove_next()

    def _not_removed(self, error: Exception) -> None:
        self._removing = False
        if self.removal_failure is None:
            log.error("cannot remove the oldest log file; retrying: %s", error)
        self.removal_failure = _cause("cannot remove the oldest log file", error)
        self._remove_at = self._clock.monotonic() + self._retry_s


def _cause(what: str, error: Exception) -> StoreError:
    return disk_error(what, error) if isinstance(error, OSError) else StoreError(f"{what}: {error}")
