"""Transient pool: turns are acknowledged from memory, and a thread writes them to the log later.

    put ──► | buffer 0 | buffer 1 | buffer 2 | … |  ── the thread writes, in order ──► log files
              ▲ written_bytes        ▲ filled_bytes       free_bytes = the rest of the ring

The buffers form a ring that is allocated once, so memory is bounded by `pool_buffers` × `pool_buffer_bytes`. A write
is at most one buffer long; turns that arrive during a write become one write. Acknowledged bytes stay here until they
are written. After a failed write the pool accepts nothing more, and retries the same bytes until the disk accepts
them. They are lost only if the process ends: this mode trades that for speed.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

from pocketmq.clock import Clock
from pocketmq.errors import StoreError, WrongState
from pocketmq.files import File
from pocketmq.store.log.log_scan import SECTOR_BYTES
from pocketmq.store.log.segments import disk_error
from pocketmq.store.settings import StoreSettings
from pocketmq.store.worker import Post, Worker

log = logging.getLogger("pocketmq.store")


class Portion:
    """Adjacent bytes for one file: `size` bytes from `position` of the ring, for position `at` of the file."""

    __slots__ = ("at", "file", "position", "size", "upto")

    def __init__(self, file: File, at: int, position: int, size: int, upto: int) -> None:
        self.file = file
        self.at = at
        self.position = position
        self.size = size
        self.upto = upto
        """The end of the log after this write."""


Mark = tuple[int, int, Portion | None, int, int]
"""Bytes added so far, portions, and the size and end of the last portion that may still grow."""


class TransientPool:
    """A ring of buffers and the thread that writes its content. Owned by the store's thread.

    `on_written` is called on the owner's thread with the end of the written log; after a failed write, with the same end again.
    """

    def __init__(
        self,
        settings: StoreSettings,
        clock: Clock,
        post: Post,
        on_written: Callable[[int], None],
        worker: Worker | None = None,
    ) -> None:
        self._clock = clock
        self._worker = worker or Worker("pocketmq-pool", post)
        self._buffer_bytes = settings.pool_buffer_bytes
        self._buffers = [bytearray(settings.pool_buffer_bytes) for _ in range(settings.pool_buffers)]
        self._retry_s = settings.retry_ms / 1000
        self._close_timeout_s = settings.close_timeout_ms / 1000
        self._portions: deque[Portion] = deque()
        self._submitted = 0
        self._write_at = 0.0
        self._on_written = on_written
        self._upto = 0
        self.filled_bytes = 0
        """Bytes ever added."""
        self.written_bytes = 0
        """Bytes of these that are in the log files."""
        self.capacity = settings.pool_buffers * settings.pool_buffer_bytes
        self.failure: StoreError | None = None
        """Why the last write failed; while it is set, nothing new should be acknowledged."""

    @property
    def free_bytes(self) -> int:
        """Bytes that can be added now."""
        return self.capacity - self.waiting_bytes

    @property
    def waiting_bytes(self) -> int:
        """Acknowledged bytes that are only in memory."""
        return self.filled_bytes - self.written_bytes

    @property
    def free_buffers(self) -> int:
        return self.free_bytes // self._buffer_bytes

    @property
    def busy(self) -> bool:
        """Whether the thread is at work."""
        return self._worker.busy

    def put(self, file: File, at: int, data: bytes, upto: int) -> None:
        """Copy `data`, which must fit into the free space; `write_behind` after the last piece of a turn."""
        size = len(data)
        assert size <= self.free_bytes, "the caller has checked the free space"
        self._copy(data, size)
        last = self._portions[-1] if len(self._portions) > self._submitted else None
        filled_bytes = self.filled_bytes + size
        if last is not None and last.file is file and last.at + last.size == at:
            last.size += size
            last.upto = upto
        else:
            self._portions.append(Portion(file, at, self.filled_bytes, size, upto))
        self.filled_bytes = filled_bytes

    def mark(self) -> "Mark":
        """The content of the pool now, for `take_back`."""
        last = self._portions[-1] if len(self._portions) > self._submitted else None
        return self.filled_bytes, len(self._portions), last, last.size if last else 0, last.upto if last else 0

    def take_back(self, mark: "Mark") -> None:
        """Drop everything added since; the thread has none of it yet."""
        self.filled_bytes, count, last, size, upto = mark
        while len(self._portions) > count:
            self._portions.pop()
        if last is not None:
            last.size, last.upto = size, upto

    def write_behind(self) -> None:
        """Let the thread write new data, unless it waits for a failed disk."""
        if self.failure is None:
            self._write_on()

    def settle(self) -> None:
        """Process writes that have just ended."""
        self._worker.settle()

    def tick(self) -> None:
        """Retry a failed write after its pause, and data that could not be passed to the thread."""
        self._worker.settle()
        if self.failure is None or self._clock.monotonic() >= self._write_at:
            self._write_on()

    def close(self) -> None:
        """Write the rest and end the thread. Raises if the disk does not accept it: that data is lost."""
        patience_s = self._close_timeout_s
        try:
            while self._portions:
                self._write_on()
                if not self._worker.drain(patience_s):
                    patience_s = 0
                    raise StoreError(f"{self.waiting_bytes} acknowledged bytes are lost: the disk does not respond")
                if self.failure is not None:
                    raise type(self.failure)(*self.failure.args) from self.failure
        finally:
            self._worker.close(patience_s)

    def _copy(self, data: bytes, size: int) -> None:
        number, start = divmod(self.filled_bytes, self._buffer_bytes)
        if start + size <= self._buffer_bytes:
            self._buffers[number % len(self._buffers)][start : start + size] = data
            return
        rest = memoryview(data)
        for buffer, begin, end in self._slices(self.filled_bytes, size):
            buffer[begin:end] = rest[: end - begin]
            rest = rest[end - begin :]

    def _slices(self, position: int, size: int) -> Iterator[tuple[bytearray, int, int]]:
        """The position of `size` bytes from `position` of the ring: buffer, start and end in it."""
        while size:
            number, start = divmod(position, self._buffer_bytes)
            part = min(size, self._buffer_bytes - start)
            yield self._buffers[number % len(self._buffers)], start, start + part
            position += part
            size -= part

    def _write_on(self) -> None:
        if self._submitted or not self._portions:
            return
        portions = tuple(self._portions)
        self._submitted = len(portions)
        try:
            self._worker.submit(partial(self._write, portions), self._wrote, self._broke)
        except (WrongState, MemoryError):  # `tick` retries
            self._submitted = 0
            raise

    def _write(self, portions: tuple[Portion, ...]) -> tuple[int, OSError | None]:
        """On the thread: how many portions were written, and the error of the next one."""
        for count, portion in enumerate(portions):
            try:
                self._write_portion(portion)
            except OSError as error:
                return count, error
        return len(portions), None

    def _write_portion(self, portion: Portion) -> None:
        """One write per buffer. The power may fail between two writes, so they share no sector: the other half of the
        sector would be zeros, and might look like part of a record.
        """
        at, kept = portion.at, b""
        for buffer, start, end in self._slices(portion.position, portion.size):
            data = kept + bytes(memoryview(buffer)[start:end]) if kept else memoryview(buffer)[start:end]
            is_last = at + len(data) == portion.at + portion.size
            whole = len(data) if is_last else len(data) - (at + len(data)) % SECTOR_BYTES
            if whole > 0:
                portion.file.write_at(at, data[:whole])
            kept = bytes(data[max(whole, 0) :])
            at += max(whole, 0)

    def _wrote(self, outcome: tuple[int, OSError | None]) -> None:
        count, error = outcome
        self._submitted = 0
        for _ in range(count):
            portion = self._portions.popleft()
            self.written_bytes += portion.size
            self._upto = portion.upto
        if error is not None:
            self._fail(error)
        elif self.failure is not None:
            log.info("transient pool writes to the log again")
            self.failure = None
        self._on_written(self._upto)
        self.write_behind()

    def _broke(self, error: Exception) -> None:
        self._submitted = 0
        self._fail(error)
        self._on_written(self._upto)

    def _fail(self, error: Exception) -> None:
        what = f"{self.waiting_bytes} acknowledged bytes are only in memory because writing them failed"
        if self.failure is None:
            log.error("%s: %s; retrying", what, error)
        self.failure = disk_error(what, error) if isinstance(error, OSError) else StoreError(f"{what}: {error}")
        self._write_at = self._clock.monotonic() + self._retry_s
