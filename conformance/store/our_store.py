"""PocketMQ's store as a small program uses it: this thread owns it, and waits when there is something to wait for."""

import json
import queue
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Final, Self

import msgspec

from conformance.store.drafts import Draft
from conformance.store.file_sizes import FileSizes
from conformance.store.snapshots import QueueKey, Snapshot, stored
from pocketmq.errors import StoreBusy
from pocketmq.model.message import StoredMessage
from pocketmq.model.message_id import Host
from pocketmq.model.names import parse_topic
from pocketmq.protocol.record import decode_records
from pocketmq.store.message_store import MessageStore
from pocketmq.store.recovery.recovery import RecoveryReport

STORE_HOST: Final = Host.parse("127.0.0.1:10911").packed()
WAIT_S: Final = 60.0
"""The disk is never that slow."""
COMMAND_S: Final = 600.0
_TICK_S: Final = 0.01


class OurStore:
    """A store that is opened, used and closed by one thread. A context manager."""

    def __init__(self, folder: Path, sizes: FileSizes, **changes: object) -> None:
        self._posted: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        settings = msgspec.structs.replace(sizes.settings(folder), **changes)
        self.store = MessageStore(settings, store_host=STORE_HOST, post=self._posted.put)
        self.report: RecoveryReport | None = None

    def __enter__(self) -> Self:
        self.report = self.store.open()
        return self

    def __exit__(self, *exc: object) -> None:
        self.store.close()

    def pump(self, wait_s: float = 0.0) -> None:
        """Run what the store's threads have posted, and let the store do what is due."""
        try:
            self._posted.get(timeout=wait_s)() if wait_s else self._posted.get_nowait()()
            while True:
                self._posted.get_nowait()()
        except queue.Empty:
            self.store.tick()

    def wait_until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < deadline, f"nothing came of it within {WAIT_S} s"
            self.pump(_TICK_S)

    def append(self, drafts: Iterable[Draft], per_turn: int = 7) -> list[StoredMessage]:
        """Store messages, some in each turn; how they must read from now on."""
        placed: list[tuple[Draft, int, int]] = []
        for number, draft in enumerate(drafts, 1):
            placed.append((draft, *self.stage(draft)))
            if number % per_turn == 0:
                self.store.end_turn()
                self.pump()
        self.store.end_turn()
        self.pump()
        return [
            stored(draft, queue_offset, log_offset, self._store_ms(log_offset), STORE_HOST)
            for draft, queue_offset, log_offset in placed
        ]

    def stage(self, draft: Draft) -> tuple[int, int]:
        """Put a message into this turn. When no log file is ready, the turn ends here and the next one begins."""
        target = self.store.queue(parse_topic(draft.topic), draft.queue_id)
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                return self.store.stage(
                    target,
                    draft.body,
                    draft.raw_properties,
                    draft.flag,
                    draft.sys_flag,
                    draft.born_ms,
                    draft.born_host,
                    draft.reconsume_times,
                    draft.prepared_offset,
                )
            except StoreBusy:
                assert time.monotonic() < deadline, f"the store was busy for {WAIT_S} s"
                self.store.end_turn()
                self.pump(_TICK_S)

    def _store_ms(self, log_offset: int) -> int:
        message = self.store.message(log_offset)
        return -1 if message is None else message.store_ms

    def read_queue(self, topic: str, queue_id: int) -> list[StoredMessage]:
        found: list[StoredMessage] = []
        offset, end = self.store.min_offset(topic, queue_id), self.store.max_offset(topic, queue_id)
        while offset < end:
            result = self.store.read(topic, queue_id, offset, 32)
            assert result.next_offset > offset, f"{topic}:{queue_id} stands still at {offset}: {result.status.name}"
            found += decode_records(result.body())
            offset = result.next_offset
        return found

    def read(self, queues: Collection[QueueKey]) -> Snapshot:
        return {key: self.read_queue(*key) for key in queues}


def verify(folder: Path, sizes: FileSizes, *, with_index: bool = True) -> list[str]:
    """What `pocketmq store verify` finds wrong; nothing when it calls the store sound."""
    done = _pocketmq(folder, sizes, "verify", "--json", *([] if with_index else ["--no-index"]))
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    if not lines or lines[-1]["type"] != "summary":
        return [f"store verify gave up: {done.stderr.strip()}"]
    return [
        f"{finding['severity']}: {finding['path']}: {finding['kind']}: {finding['text']}"
        for finding in lines[:-1]
        if finding["severity"] != "note"
    ]


def rebuild(folder: Path, sizes: FileSizes) -> list[str]:
    """Make the derived files new by `pocketmq store rebuild`; what it complained about."""
    done = _pocketmq(folder, sizes, "rebuild", "--yes")
    return [] if done.returncode == 0 else [f"store rebuild gave up: {done.stdout}{done.stderr}"]


def _pocketmq(folder: Path, sizes: FileSizes, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pocketmq", "store", *words, str(folder), *sizes.store_options()]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=COMMAND_S)
