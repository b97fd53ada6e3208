"""An open store, with its threads run by hand: shared by tests of the complete store."""

from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Self

import msgspec
from tests.store.kit import HOST, ROOT, HandWorker, messages_in

from pocketmq.model.names import parse_topic
from pocketmq.store.message_store import MessageStore
from pocketmq.store.queues.consume_queue import Arrival, ConsumeQueue
from pocketmq.store.settings import StoreSettings
from pocketmq.testing import FakeClock, FaultyFiles
from pocketmq.testing.disk.model import Survives

SMALL = StoreSettings(
    folder=ROOT,
    log_file_bytes=4096,
    prepared_files=8,
    queue_file_entries=10,
    index_slots=20,
    index_entries=50,
    pool_buffers=4,
    pool_buffer_bytes=1024,
    slow_write_ms=60_000,  # a clock that ticks must not make the disk look slow
)


class OpenStore:
    """Opened on `disk` by the constructor. Nothing happens in the background unless the test allows it."""

    make_store: type[MessageStore] = MessageStore

    def __init__(self, settings: StoreSettings, clock: FakeClock, disk: FaultyFiles) -> None:
        self.settings, self.clock, self.disk = settings, clock, disk
        self.workers: dict[str, HandWorker] = {}
        self.arrived: list[Arrival] = []
        self.store = self.make_store(
            settings,
            store_host=HOST,
            post=lambda _: None,
            files=disk,
            clock=clock,
            on_arrivals=self.arrived.extend,
            make_worker=self._make_worker,
        )
        self.report = self.store.open()

    def _make_worker(self, name: str, _post: object) -> HandWorker:
        return self.workers.setdefault(name.removeprefix("pocketmq-"), HandWorker())

    @classmethod
    def small(cls, disk: FaultyFiles | None = None, clock: FakeClock | None = None, **changes: object) -> Self:
        """A store with small files on a new disk, or on this one."""
        clock = clock or FakeClock()
        opened = cls(msgspec.structs.replace(SMALL, **changes), clock, disk or FaultyFiles(clock=clock))
        opened.run_workers()
        return opened

    # going on

    def run_workers(self, *names: str) -> None:
        """Run the pending work of the threads: those named (`files`, `sync`, `pool`), or all."""
        workers = [self.workers[name] for name in names] if names else list(self.workers.values())
        while any(worker.jobs for worker in workers):
            for worker in workers:
                worker.run()

    def tick(self, after_ms: int = 0) -> None:
        """Let time pass, tick, and run the threads."""
        self.clock.advance_ms(after_ms)
        self.store.tick()
        self.run_workers()

    def settle(self, seconds: int = 30) -> None:
        """Run everything that is due soon."""
        for _ in range(seconds):
            self.tick(1000)

    def reopen(self, **changes: object) -> "OpenStore":
        """Stop cleanly and start again."""
        self.store.close()
        return self._again(self.disk, **changes)

    def crash(self, survives: Survives = "everything", seed: int = 0, **changes: object) -> "OpenStore":
        """Simulate a power loss and start again. The present store is not changed, on its own disk."""
        return self._again(self.disk.crash(Random(seed), survives=survives), **changes)

    def _again(self, disk: FaultyFiles, **changes: object) -> "OpenStore":
        opened = type(self)(msgspec.structs.replace(self.settings, **changes), self.clock, disk)
        opened.run_workers()
        return opened

    # using it

    def queue(self, topic: str = "T", queue_id: int = 0) -> ConsumeQueue:
        return self.store.queue(parse_topic(topic), queue_id)

    def stage(
        self, body: bytes = b"body", topic: str = "T", queue_id: int = 0, properties: str = "", sys_flag: int = 0
    ) -> tuple[int, int]:
        """Put a message into the turn; its queue offset and log offset."""
        queue, now_ms = self.queue(topic, queue_id), self.clock.now_ms()
        return self.store.stage(queue, body, properties.encode(), 0, sys_flag, now_ms, HOST)

    def send(
        self, *bodies: bytes, topic: str = "T", queue_id: int = 0, properties: str = "", sys_flag: int = 0
    ) -> list[int]:
        """One turn with these messages; their log offsets."""
        offsets = [self.stage(body, topic, queue_id, properties, sys_flag)[1] for body in bodies or (b"body",)]
        self.store.end_turn()
        return offsets

    def bodies(self, topic: str = "T", queue_id: int = 0) -> list[bytes]:
        """Every message of a queue, as readers get them."""
        return [message.body for message in messages_in(self.store, topic, queue_id)]

    def names(self, folder: str) -> list[str]:
        return self.disk.list(ROOT / folder)


def numbered(count: int, size: int = 100) -> list[bytes]:
    """Bodies that differ, each of `size` bytes."""
    return [f"{number}:".encode().ljust(size, b"x") for number in range(count)]


def remove_all(disk: FaultyFiles, paths: Iterable[Path]) -> None:
    for path in list(paths):
        disk.unlink(path)
