"""Writes queue entries to their files in a thread, so that a stalled write blocks only this thread.

    owner's thread                                        writer's thread
    pending of some queues ── copied, a block of each ──► written one after the other, for a slice of time
      │ readers find the entries here meanwhile             │
    no longer pending, files recorded for a sync ◄─────── number of blocks written, and the error of the next one

While the thread has no entries to write, its open files belong to the owner; it opens each new file for readers, too.
It also makes the writes to the key index and to the checkpoint. Entries that were not written are still pending, and part of the next job.
"""

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from typing import Final, TypeVar

from pocketmq.clock import Clock
from pocketmq.errors import StoreError
from pocketmq.files import Files
from pocketmq.store.log.segments import OpenFiles
from pocketmq.store.queues.consume_queue import Block, ConsumeQueue
from pocketmq.store.queues.queues import Queues
from pocketmq.store.settings import StoreSettings
from pocketmq.store.worker import Worker

SLICE_S: Final = 0.003
"""How long one job may take: creating a file for a new queue takes time, and blocks the interpreter."""
MAX_JOB_BYTES: Final = 1024 * 1024
"""About how many bytes of entries a job copies: after a stall there may be many, and the event loop makes the copy."""
QUEUES_PER_JOB: Final = 256

Written = Callable[[list[ConsumeQueue]], None]
"""Called with the queues whose pending entries of the job are all in files."""
Failed = Callable[[OSError | StoreError], None]
T = TypeVar("T")


class QueueWriter:
    """The writing thread, as its owner uses it."""

    def __init__(self, settings: StoreSettings, files: Files, clock: Clock, queues: Queues, worker: Worker) -> None:
        self._clock = clock
        self._queues = queues
        self._worker = worker
        self._open_files = OpenFiles(files, settings.max_open_queue_files // 4, for_owner=True)
        self._jobs = 0
        self._since = 0.0
        self._is_closed = False
        self.is_closing = False
        """Whether it takes no more jobs."""
        self.is_writing = False
        """Whether the thread has queue entries to write."""

    @property
    def busy(self) -> bool:
        """Whether the thread is at work."""
        return self._jobs > 0

    def seconds(self, now: float) -> float:
        """The duration of the thread's current job so far; 0 if it has none."""
        return now - self._since if self._jobs else 0.0

    def tick(self) -> None:
        """The owner calls this every 10 to 100 ms. If no thread can be started, the owner does the job."""
        self._worker.settle()
        if self._worker.lacks_thread:  # otherwise the disk would seem to hang, and messages would be rejected
            self._worker.drain(0)

    def write(self, queues: Iterable[ConsumeQueue], written: Written, failed: Failed) -> None:
        """Write the pending entries of these queues, in order, or of the first of them. The thread must have no other
        entries to write.

        Calls `written`, and then `failed` if a write failed.
        """
        assert not self.is_writing, "its open files are in use"
        self._queues.mark_written_by(self._open_files)
        done: list[ConsumeQueue] = []
        blocks: list[tuple[ConsumeQueue, Block]] = []
        size = 0
        for queue in queues:
            block = queue.next_block()
            if block is None:
                done.append(queue)
                continue
            blocks.append((queue, block))
            size += len(block.entries)
            if size >= MAX_JOB_BYTES:
                break
        if not blocks:
            written(done)
            return
        ended = partial(self._ended, done, blocks, written, failed)
        with ExitStack() as undo:  # there may be no memory for the job
            self.is_writing = True
            undo.callback(setattr, self, "is_writing", False)
            self._submit(partial(self._write, [block for _, block in blocks]), ended, lambda error: ended((0, error)))
            undo.pop_all()

    def run(self, write: Callable[[], T], done: Callable[[T], None], failed: Failed) -> None:
        """Make a small write to another derived file on the thread."""
        self._submit(write, done, lambda error: failed(_disk_error(error)))

    def _submit(self, work: Callable[[], T], done: Callable[[T], None], failed: Callable[[Exception], None]) -> None:
        if not self._jobs:
            self._since = self._clock.monotonic()
        self._jobs += 1
        with ExitStack() as undo:
            undo.callback(setattr, self, "_jobs", self._jobs - 1)
            self._worker.submit(work, partial(self._job_ended, done), partial(self._job_ended, failed))
            undo.pop_all()

    def _job_ended(self, then: Callable[[T], None], outcome: T) -> None:
        self._jobs -= 1
        self._since = self._clock.monotonic()
        if not self._is_closed:
            then(outcome)

    def _write(self, blocks: list[Block]) -> tuple[int, Exception | None]:
        """On the thread: how many blocks were written, and the error of the next one."""
        stop_at = self._clock.monotonic() + SLICE_S
        for count, block in enumerate(blocks):
            if count and self._clock.monotonic() >= stop_at:
                return count, None
            try:
                block.write(self._open_files)
            except OSError as error:
                return count, error
        return len(blocks), None

    def _ended(
        self,
        done: list[ConsumeQueue],
        blocks: list[tuple[ConsumeQueue, Block]],
        written: Written,
        failed: Failed,
        outcome: tuple[int, Exception | None],
    ) -> None:
        count, error = outcome
        self.is_writing = False
        self._queues.mark_written_by(self._open_files)
        for queue, block in blocks[:count]:
            queue.written(block)
            if not block.is_cut:
                done.append(queue)
        written(done)
        if error is not None:
            failed(_disk_error(error))

    def drain(self, timeout_s: float) -> bool:
        """Owner: wait until the thread has no job; False after the timeout."""
        return not self._jobs or self._worker.drain(timeout_s)

    def close(self, timeout_s: float) -> bool:
        """Owner: end the thread; False if the disk did not respond in time. A second call does nothing."""
        self.is_closing = True
        is_free = self._worker.close(timeout_s)
        self._is_closed = True
        if is_free:
            self._open_files.close()
        return is_free


def _disk_error(error: Exception) -> OSError | StoreError:
    return error if isinstance(error, OSError | StoreError) else StoreError(str(error) or type(error).__name__)
