"""The key index through power losses at any moment: it contains no wrong entry, and in the end nothing is missing.

A log, an index and a checkpoint live on a disk that loses power in every legal way; so may recovery itself. The log loses what
was not synced, and continues with other messages at the same positions. Afterwards the entries of the index, in their order, must be
what a build from the log that is left gives, and no file had to be thrown away for it. A RocketMQ broker, which does not repair
what it finds, must find every key as well.
"""

from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest
from tests.store.rocketmq_index import RocketMQIndex

from pocketmq.store.checkpoint import Checkpoint
from pocketmq.store.index import growing_index_file
from pocketmq.store.index.index_file import IndexShape, KeyEntry
from pocketmq.store.index.key_index import KeyIndex
from pocketmq.store.settings import StoreSettings
from pocketmq.testing import FakeClock, FaultyFiles
from pocketmq.testing.fake_clock import START_MS

ROOT = Path("/store")
SETTINGS = StoreSettings(folder=ROOT, index_slots=7, index_entries=16)
SEEDS = 300
FOREVER = 2**62


class Message(NamedTuple):
    offset: int
    keys: bytes
    store_ms: int


class World:
    """The state that survives a crash, and one run of the program that uses it."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.files = FaultyFiles()
        self.files.make_dir(ROOT)
        self.files.sync_dir(ROOT.parent)
        self.log: list[Message] = []
        self.synced = 0
        self.sent = 0
        self.start(crashed=False)

    def start(self, *, crashed: bool) -> None:
        self.checkpoint = Checkpoint(self.files, ROOT).load()
        self.index = KeyIndex(SETTINGS, self.files, FakeClock())
        discarded = self.index.recover(0, self.log_end, crashed_at_ms=self.checkpoint.index_ms if crashed else None)
        assert not discarded, "what this index wrote itself can be trusted"
        self.entered = sum(message.offset < self.index.indexed_to for message in self.log)
        self.to_sync: list[Path] = []

    @property
    def log_end(self) -> int:
        return self.log[-1].offset + 100 if self.log else 0

    @property
    def log_synced(self) -> int:
        return self.log[self.synced - 1].offset + 100 if self.synced else 0

    def placed(self, message: Message) -> list[KeyEntry]:
        return self.index.keys_of(b"T", b"KEYS\x01" + message.keys, 0, message.offset, message.store_ms)

    # what a program does

    def send(self) -> None:
        self.sent += 1
        keys = [b"key%d" % self.random.randrange(12) for _ in range(self.random.randrange(4))]
        self.log.append(Message(self.log_end, b" ".join([b"id%d" % self.sent, *keys]), START_MS + self.sent * 300))

    def enter(self) -> None:
        upto = self.random.randint(self.entered, len(self.log))
        batch = [key for message in self.log[self.entered : upto] for key in self.placed(message)]
        self.index.put(batch)
        self.entered = upto

    def sync_log(self) -> None:
        self.synced = self.random.randint(self.synced, len(self.log))

    def flush(self) -> None:
        if not self.to_sync:
            self.to_sync = self.index.flush(self.log_synced, self.checkpoint.saved_index_ms)
            self.checkpoint.index_ms = max(self.checkpoint.index_ms, self.index.newest_ms)

    def sync(self) -> None:
        if self.to_sync:
            self.sync_path(self.to_sync.pop(self.random.randrange(len(self.to_sync))))

    def sync_path(self, path: Path) -> None:
        if path == self.index.folder:
            self.files.sync_dir(path)
        else:
            with self.files.open(path) as file:
                file.sync()

    def save_checkpoint(self) -> None:
        paths = self.checkpoint.save()
        if paths and self.random.random() < 0.8:
            self.sync_path(paths[0])
            self.checkpoint.saved()

    def live(self) -> None:
        steps = [self.send, self.send, self.enter, self.sync_log, self.flush, self.flush, self.sync, self.sync]
        for _ in range(self.random.randrange(120)):
            self.random.choice([*steps, self.save_checkpoint])()

    def crash(self) -> None:
        self.files = self.files.crash(self.random)
        self.log = self.log[: self.random.randint(self.synced, len(self.log))]
        self.synced = len(self.log)

    def crash_in_recovery(self) -> None:
        """Recover, and lose power at some moment of it."""
        self.start(crashed=True)
        moment = self.files.state_at(self.random.randint(0, self.files.position))
        self.files = moment.crash(self.random)

    # what must be true

    def check(self) -> None:
        """Everything that is left of the log, and nothing else, is in the index, in order."""
        self.index.put([key for message in self.log for key in self.placed(message)])
        expected = [(key, offset) for message in self.log for key, offset, _ in self.placed(message)]
        assert self.entries() == expected
        for key in {key for message in self.log for key in message.keys.split()}:
            holders = [message.offset for message in self.log if key in message.keys.split()]
            assert self.index.find("T", key.decode(), 0, FOREVER, 64) == holders[::-1][:64]

    def check_for_rocketmq(self) -> None:
        """A broker that adds only messages after the end of the index finds every message by each of its keys."""
        shape = IndexShape(SETTINGS.index_slots, SETTINGS.index_entries)
        checkpoint_ms = Checkpoint(self.files, ROOT).load().index_ms
        theirs = RocketMQIndex(self.files, self.index.folder, shape, checkpoint_ms)
        behind = theirs.end_offset
        for message in self.log:
            if message.offset >= behind:
                theirs.enter(self.placed(message))
        for message in self.log:
            for key, offset, _ in self.placed(message):
                assert offset in theirs.find(key), f"{message} is not found, {behind} was the end"

    def entries(self) -> list[tuple[int, int]]:
        files = self.index._table
        return [file.entry(number)[:2] for file in files for number in range(1, file.header.next_number)]


def crash_a_few_times(seed: int) -> World:
    """A store after its last crash, before it is opened."""
    world = World(Random(seed))
    for crashes_left in (2, 1, 0):
        world.live()
        world.crash()
        while world.random.random() < 0.3:
            world.crash_in_recovery()
        if crashes_left:
            world.start(crashed=True)
    return world


@pytest.mark.parametrize("group", range(4))
@pytest.mark.parametrize("pending_bytes", [40, 100_000])
def test_after_any_power_loss_the_index_equals_one_built_from_the_log(
    group: int, pending_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growing_index_file, "PENDING_BYTES", pending_bytes)
    for seed in range(group * SEEDS // 4, (group + 1) * SEEDS // 4):
        try:
            world = crash_a_few_times(seed)
            world.check_for_rocketmq()
            world.start(crashed=True)
            world.check()
        except Exception as failure:
            raise AssertionError(f"seed {seed}") from failure
