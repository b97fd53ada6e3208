"""A store with what the loop of a broker does for it: callbacks of its threads are run, and it ticks."""

from collections.abc import Callable, Iterable
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Self

from bench.samples import BORN_HOST, STORE_HOST
from bench.store.messages import BORN_MS, TOPIC, Addressed
from pocketmq.clock import SystemClock
from pocketmq.errors import StoreBusy, StoreError
from pocketmq.model.names import parse_topic
from pocketmq.protocol.batch import BatchItem
from pocketmq.store.message_store import MessageStore
from pocketmq.store.queues.consume_queue import ConsumeQueue
from pocketmq.store.settings import StoreSettings

PATIENCE = 3000
"""Pauses of 10 ms that a busy store gets before the benchmark gives up."""

MOST_WAITS = 24
"""How often a sync may take longer than a send would wait."""


class BenchClock(SystemClock):
    """The machine's clocks, and one may put them forward."""

    wall_ahead_ms = 0
    monotonic_ahead_s = 0.0

    def now_ms(self) -> int:
        return super().now_ms() + self.wall_ahead_ms

    def monotonic(self) -> float:
        return super().monotonic() + self.monotonic_ahead_s


def settings_for(folder: Path, **changes: Any) -> StoreSettings:
    """RocketMQ's defaults, but retention leaves the files alone, however full the disk is."""
    full = {"disk_clean_ratio": 1.0, "disk_force_ratio": 1.0, "disk_full_ratio": 1.0}
    return StoreSettings(**{"folder": folder, **full, **changes})


class HostedStore:
    """An open store in `folder`. Leaving the block closes it; a process that ends without that has crashed."""

    def __init__(self, folder: Path, **changes: Any) -> None:
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.clock = BenchClock()
        self.store = MessageStore(
            settings_for(folder, **changes), store_host=STORE_HOST, post=self._calls.put, clock=self.clock
        )
        self.report = self.store.open()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.store.close()

    def queues(self, count: int, topic: str = TOPIC) -> list[ConsumeQueue]:
        return [self.store.queue(parse_topic(topic), queue_id) for queue_id in range(count)]

    def append(self, turns: Iterable[list[Addressed]]) -> None:
        """Store everything, turn by turn, then do what a loop does every few milliseconds."""
        stage, end_turn = self.store.stage, self.store.end_turn
        for turn in turns:
            for queue, body, properties in turn:
                try:
                    stage(queue, body, properties, 0, 0, BORN_MS, BORN_HOST)
                except StoreBusy:
                    self._stage_later(queue, body, properties)
            end_turn()
        self.tend()

    def append_batches(self, batches: Iterable[tuple[ConsumeQueue, list[BatchItem]]]) -> None:
        """Store batches, each a turn of its own."""
        stage_batch, end_turn = self.store.stage_batch, self.store.end_turn
        for queue, items in batches:
            try:
                stage_batch(queue, items, 0, BORN_MS, BORN_HOST)
            except StoreBusy:
                self.store.abandon_turn()
                for _, body, properties in items:
                    self._stage_later(queue, body, properties)
            end_turn()
        self.tend()

    def append_safely(self, turn: list[Addressed]) -> None:
        """Store one turn and wait until the disk has it."""
        self.append([turn])
        if not self._is_synced():
            raise StoreError("a turn was not safe within sync_timeout_ms; this disk is too slow for the benchmark")

    def _is_synced(self) -> bool:
        """Wait for the disk; False when it takes longer than a send would wait."""
        answers: list[bool] = []
        self.store.when_synced(self.store.end, answers.append)
        while not answers:
            self.wait()
        return answers[0]

    def _stage_later(self, queue: ConsumeQueue, body: bytes, properties: bytes) -> None:
        """As a broker does with a request that does not fit into the turn: put it into a later turn."""
        self.store.end_turn()
        for _ in range(PATIENCE):
            self.wait()
            try:
                self.store.stage(queue, body, properties, 0, 0, BORN_MS, BORN_HOST)
            except StoreBusy:
                continue
            return
        raise StoreError("the store has been busy for half a minute; this disk is too slow for the benchmark")

    def tend(self) -> None:
        """Run the callbacks that have come, and tick."""
        while not self._calls.empty():
            self._calls.get()()
        self.store.tick()

    def wait(self) -> None:
        """Run the next callback; tick when none comes within 10 ms."""
        try:
            self._calls.get(timeout=0.01)()
        except Empty:
            self.store.tick()

    def rest(self) -> None:
        """Wait until the disk has everything, so that what is measured next has the machine for itself."""
        if not any(self._is_synced() for _ in range(MOST_WAITS)):
            raise StoreError("the disk has not taken the log within minutes; it is too slow for the benchmark")
        self.tend()
