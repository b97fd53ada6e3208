"""The store in real processes, on a real disk: killed while it writes, and out of space."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty, SimpleQueue
from random import Random
from time import monotonic

import pytest
from tests.store.writer_program import HOST, TOPIC, open_store

from pocketmq.clock import SystemClock
from pocketmq.errors import StoreBusy, StoreFull
from pocketmq.protocol.record import decode_records
from pocketmq.store.message_store import MessageStore

ROOT = Path(__file__).parents[2]
KILLS = 50
DEADLINE_S = 60


def write_until_killed(folder: Path, number: int, lines: int) -> dict[int, int]:
    """Let a program store messages from `number` on, and kill it once this many are safe; returns number and offset
    of each.
    """
    command = [sys.executable, "-m", "tests.store.writer_program", str(folder), str(number)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(lines)]
        process.kill()
        said += process.stdout.readlines()
    return {int(number): int(offset) for number, offset in (line.split() for line in said if line.endswith("\n"))}


def read_all(store: MessageStore, queue_id: int) -> dict[int, int]:
    """Number and offset of every message of a queue, which must be dense."""
    found: dict[int, int] = {}
    offset = store.min_offset(TOPIC, queue_id)
    while (result := store.read(TOPIC, queue_id, offset, 32)).count:
        for message in decode_records(result.body()):
            assert message.queue_offset == offset
            found[int(message.body)] = offset
            offset += 1
    assert offset == store.max_offset(TOPIC, queue_id)
    return found


def test_safe_messages_exist_after_fifty_kills(tmp_path: Path) -> None:
    random = Random(7)
    safe: dict[int, int] = {}

    for kill in range(KILLS):
        safe |= write_until_killed(tmp_path, kill * 100_000, random.randint(1, 40))

    with open_store(tmp_path, lambda callback: None) as store:
        found = read_all(store, 0) | read_all(store, 1)
        assert safe.items() <= found.items()
        assert len(safe) >= KILLS
        newest = max(safe)
        deadline = monotonic() + DEADLINE_S
        while not (by_key := store.find_by_key(TOPIC, f"k{newest}", 1)):  # each look-up brings the index on a little
            assert monotonic() < deadline, "the index does not get there"
        assert [message.body for message in by_key] == [b"%d" % newest]


class Filling:
    """A store on a small disk, and the callbacks of its threads."""

    def __init__(self, folder: Path) -> None:
        self._posted: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._clock = SystemClock()
        self.store = open_store(folder, self._posted.put)
        self.store.open()
        self.stored = 0

    def store_one(self) -> None:
        self.store.stage(self.store.queue(TOPIC, 0), b"%d" % self.stored + bytes(2000), b"", 0, 0, 0, HOST)
        self.store.end_turn()
        self.stored += 1

    def until(self, condition: Callable[[], bool], deadline_s: float = 20.0) -> None:
        give_up_at = self._clock.monotonic() + deadline_s
        while not condition():
            assert self._clock.monotonic() < give_up_at, "it did not happen in time"
            self.store.tick()
            try:
                self._posted.get(timeout=0.01)()
            except Empty:
                continue

    def is_full(self) -> bool:
        try:
            self.store_one()
        except StoreFull:
            return True
        except StoreBusy:
            pass  # the next file is being made
        return False

    def takes_more(self) -> bool:
        try:
            self.store_one()
        except (StoreFull, StoreBusy):
            return False
        return True


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = os.geteuid() == 0 and not subprocess.call(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], stderr=subprocess.DEVNULL
    )
    if not mounted:
        pytest.skip("a small disk cannot be mounted here")
    yield folder
    subprocess.check_call(["umount", "-l", str(folder)])


def test_a_full_disk_refuses_messages_and_accepts_them_when_it_has_space(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(500_000))
    filling = Filling(small_disk / "store")

    filling.until(filling.is_full)
    stored = filling.stored
    ballast.unlink()
    filling.until(filling.takes_more)

    assert stored > 10
    filling.store.close()
    with open_store(small_disk / "store", lambda callback: None) as store:
        assert store.max_offset(TOPIC, 0) == filling.stored
        body = store.read(TOPIC, 0, filling.stored - 1, 1).body()
        assert decode_records(body)[0].body.startswith(b"%d" % (filling.stored - 1))
