"""Shared by the tests of the store: threads that the test controls, records, and a log on a disk in memory."""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from pocketmq.errors import ProtocolError
from pocketmq.model import StoredMessage
from pocketmq.protocol.record import BLANK_SIZE, MAGIC_BLANK, decode_record, decode_records, encode_record, record_size
from pocketmq.store.log.commit_log import CommitLog
from pocketmq.store.log.flushing import Flusher
from pocketmq.store.log.preparing import FilePreparer
from pocketmq.store.log.transient_pool import TransientPool
from pocketmq.store.message_store import MessageStore
from pocketmq.store.settings import StoreSettings
from pocketmq.store.worker import Worker
from pocketmq.testing import FakeClock, FaultyFiles

ROOT = Path("/store")
LOG_FILE_BYTES = 4096
HOST = bytes((127, 0, 0, 1, 0, 0, 0x2A, 0x9F))
T = TypeVar("T")


def messages_in(store: MessageStore, topic: str = "T", queue_id: int = 0) -> list[StoredMessage]:
    """Every message of a queue, as readers get them."""
    found: list[StoredMessage] = []
    offset = store.min_offset(topic, queue_id)
    while offset < store.max_offset(topic, queue_id):
        result = store.read(topic, queue_id, offset, 32)
        found += decode_records(result.body())
        assert result.next_offset > offset
        offset = result.next_offset
    return found


class HandWorker(Worker):
    """A worker without a thread: its jobs run when the test calls them, on the thread of the test."""

    def __init__(self) -> None:
        super().__init__("by hand")
        self.jobs: deque[Callable[[], None]] = deque()

    @property
    def busy(self) -> bool:
        return bool(self.jobs)

    def submit(self, work: Callable[[], T], done: Callable[[T], None], failed: Callable[[Exception], None]) -> None:
        def run() -> None:
            try:
                result = work()
            except Exception as error:
                failed(error)
            else:
                done(result)

        self.jobs.append(run)

    def run(self, jobs: int | None = None) -> None:
        """Run this number of jobs, or all, including those that they submit."""
        while self.jobs and jobs != 0:
            self.jobs.popleft()()
            jobs = None if jobs is None else jobs - 1

    def drain(self, timeout_s: float) -> bool:
        self.run()
        return True

    def close(self, timeout_s: float) -> bool:
        self.run()
        return True


class OwnerThread:
    """The test's own thread as the owner of a store: callbacks that threads post run here, when it waits for something."""

    def __init__(self) -> None:
        self._posted: deque[Callable[[], None]] = deque()
        self._rung = threading.Semaphore(0)

    def post(self, callback: Callable[[], None]) -> None:
        self._posted.append(callback)
        self._rung.release()

    def run_until(self, condition: Callable[[], bool], deadline_s: float = 10.0) -> None:
        """Run posted callbacks until `condition` holds."""
        while not condition():
            assert self._rung.acquire(timeout=deadline_s), "nothing was posted in time"
            self._posted.popleft()()


class LogOnDisk:
    """A log with its parts, all driven by the test: on a disk in memory, with a stopped clock."""

    def __init__(self, files: FaultyFiles | None = None, **changes: object) -> None:
        self.files = files or FaultyFiles()
        self.settings = msgspec.structs.replace(
            StoreSettings(folder=ROOT, log_file_bytes=LOG_FILE_BYTES, pool_buffers=4, pool_buffer_bytes=1024), **changes
        )
        self.clock = FakeClock()
        self.making, self.writing, self.syncing = HandWorker(), HandWorker(), HandWorker()
        self.written_to: list[int] = []
        self.log = CommitLog(self.settings, self.files, on_written=self.written_to.append)
        self.log.load()
        self.preparer = FilePreparer(self.settings, self.files, self.clock, self.log.segments, self.making)
        self.pool = (
            TransientPool(self.settings, self.clock, lambda _: None, self.log.written_behind, self.writing)
            if self.settings.transient_pool
            else None
        )
        self.flusher = Flusher(self.settings, self.clock, lambda _: None, self.files, self.log, self.syncing)

    def begin(self) -> "LogOnDisk":
        """Open for writing, with files ready."""
        self.files.make_dir(ROOT)
        self.files.sync_dir(ROOT.parent)
        self.log.begin(self.preparer, self.pool)
        self.flusher.begin(0)
        self.making.run()
        return self

    def append(self, *sizes: int, topic: str = "T") -> list[int]:
        """Put one record of each size into the turn; their offsets."""
        return [self.append_one(size, topic) for size in sizes]

    def append_one(self, size: int, topic: str = "T") -> int:
        at = self.log.reserve(size)
        self.log.put((record_of(size, at, topic, self.clock.now_ms()),))
        return at

    def turn(self, *sizes: int, topic: str = "T") -> list[int]:
        """Append one record of each size and write."""
        offsets = self.append(*sizes, topic=topic)
        self.log.write()
        self.flusher.mark_written(self.log.written, self.clock.now_ms())
        return offsets

    def tick(self, after_ms: int = 0) -> None:
        """Let time pass and run all threads."""
        self.clock.advance_ms(after_ms)
        self.log.tick()
        self.flusher.tick(self.clock.monotonic())
        for worker in (self.making, self.writing, self.syncing):
            worker.run()


def record_of(size: int, log_offset: int, topic: str = "T", store_ms: int = 0, queue_offset: int = 0) -> bytes:
    """A record that is `size` bytes long."""
    name, properties = topic.encode(), b"P\x01v\x02"
    body = bytes(index % 251 for index in range(size - record_size(len(name), 0, len(properties))))
    return encode_record(name, 0, queue_offset, log_offset, body, properties, 0, 0, store_ms, HOST, store_ms, HOST)


SMALLEST = len(record_of(0, 0))
"""The smallest record that `record_of` makes."""


def walk(log: CommitLog) -> Iterator[tuple[int, bytes]]:
    """The records of a log from its start to the first invalid one, as recovery reads them."""
    at = log.start
    while at < log.written:
        raw = log.record(at)
        if raw is not None and is_sound(raw, at):
            yield at, raw
            at += len(raw)
        elif log.written - at >= BLANK_SIZE and log.view(at + 4, 4) == MAGIC_BLANK.to_bytes(4, "big"):
            at += int.from_bytes(log.view(at, 4), "big")
        else:
            return


def is_sound(raw: bytes, at: int) -> bool:
    try:
        return decode_record(raw).log_offset == at
    except ProtocolError:
        return False


class SteppingClock(FakeClock):
    """Every reading takes a millisecond, once `slow` is set."""

    slow = False

    def monotonic(self) -> float:
        if self.slow:
            self.advance_ms(1)
        return super().monotonic()
