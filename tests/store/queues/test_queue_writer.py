"""Queue entries written to files by a thread: what readers see, and the effects of a failing or stalled disk."""

import errno
import threading
from random import Random
from typing import Any

import msgspec
import pytest
from tests.store.kit import HOST, ROOT, OwnerThread
from tests.store.open_store import SMALL, OpenStore, numbered

from pocketmq.errors import StoreBusy, StoreError
from pocketmq.model.names import parse_topic
from pocketmq.store import upkeep
from pocketmq.store.checkpoint import Checkpoint
from pocketmq.store.message_store import MessageStore
from pocketmq.testing import FakeClock, FaultyFiles
from pocketmq.testing.disk.faults import Call


def full() -> OpenStore:
    """A store that hands entries to the thread at every tick."""
    return OpenStore.small(queue_least_pages=0)


def test_only_the_thread_creates_and_writes_queue_files() -> None:
    opened = full()
    for second in range(30):
        since = opened.disk.position
        opened.send(*numbered(15), queue_id=second % 3)
        opened.clock.advance_ms(1000)
        opened.store.tick()
        assert not any("consumequeue" in one.path for one in opened.disk.operations[since:])
        opened.run_workers()

    assert all(queue.flushed_offset > 100 for queue in opened.store._queues)


def test_entries_being_written_are_read_from_memory_and_later_from_the_file() -> None:
    opened = full()
    opened.send(*numbered(5))
    opened.store.tick()
    opened.send(b"meanwhile")

    assert opened.bodies() == [*numbered(5), b"meanwhile"]
    opened.run_workers()

    assert opened.queue().flushed_offset == 5
    assert opened.bodies() == [*numbered(5), b"meanwhile"]
    opened.tick(200)
    assert opened.queue().flushed_offset == 6
    assert opened.store.facts.unsaved_queues == 0


def test_completely_written_queues_are_not_checked_again() -> None:
    opened = full()
    opened.send(*numbered(5))
    opened.send(b"deleted soon", topic="Gone")
    opened.tick(200)
    opened.store.delete_topic("Gone")
    opened.tick(200)

    assert opened.store._queues.full() == []


def test_a_job_copies_a_limited_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pocketmq.store.queues.queue_writer.MAX_JOB_BYTES", 60)
    opened = full()
    for queue_id in range(4):
        opened.send(*numbered(2), queue_id=queue_id)

    opened.store.tick()
    opened.run_workers()
    assert sum(queue.flushed_offset for queue in opened.store._queues) == 4
    opened.tick(200)
    opened.tick(200)

    assert sum(queue.flushed_offset for queue in opened.store._queues) == 8


def test_a_job_that_runs_out_of_memory_is_restarted(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = full()
    opened.send(*numbered(5))
    writer = opened.store._parts.queue_writer
    with monkeypatch.context() as patch:
        patch.setattr(writer._worker, "submit", lambda *_: (_ for _ in ()).throw(MemoryError))
        with pytest.raises(MemoryError):
            opened.store.tick()
    assert not writer.is_writing
    assert not writer.busy

    opened.tick(200)

    assert opened.queue().flushed_offset == 5


def test_entries_for_several_files_are_written_file_by_file() -> None:
    opened = full()
    opened.send(*numbered(25))

    flushed = []
    for _ in range(4):
        opened.tick(200)
        flushed.append(opened.queue().flushed_offset)

    assert flushed == [10, 20, 25, 25]
    assert opened.bodies() == numbered(25)


def test_a_flush_at_the_end_of_a_file_continues() -> None:
    opened = OpenStore.small()
    opened.send(*numbered(25))

    opened.settle(15)

    assert opened.queue().flushed_offset == 25
    again = opened.crash("nothing")
    assert again.bodies() == numbered(25)
    assert again.report.scanned_from >= 0


def test_a_flush_due_during_a_write_waits_for_newer_entries() -> None:
    opened = full()
    opened.clock.advance_ms(9950)
    for queue_id in (0, 1):
        opened.send(b"first", queue_id=queue_id)
    opened.store.tick()
    assert opened.store._parts.queue_writer.is_writing
    opened.send(b"meanwhile")
    for _ in range(2):  # no safety margin of recovery covers a wall clock that is set forward
        opened.clock.step_ms(3_600_000)
        opened.send(*numbered(30), queue_id=1)
    opened.store.when_synced(opened.store.end, lambda _: None)

    opened.tick(60)  # the flush is due, and then the thread comes to an end
    for _ in range(50):
        opened.tick(100)

    again = opened.crash("nothing")
    assert again.bodies() == [b"first", b"meanwhile"]
    assert len(again.bodies(queue_id=1)) == 61


@pytest.mark.parametrize("call", ["write", "open", "create", "truncate", "make_dir"])
def test_entries_refused_by_the_disk_stay_pending_and_are_written_later(call: Call) -> None:
    opened = full()
    opened.send(*numbered(5))
    fault = opened.disk.fail(call, errno.ENOSPC, "*consumequeue*", times=None)
    opened.tick(200)

    assert opened.bodies() == numbered(5)
    with pytest.raises(StoreError, match="cannot write its queues"):
        opened.send()
    opened.store.abandon_turn()
    fault.heal()
    opened.tick(200)
    opened.send(b"after")
    opened.settle(15)

    assert opened.crash("nothing").bodies() == [*numbered(5), b"after"]


def test_a_removed_file_is_created_again_and_readers_use_the_new_one() -> None:
    opened = full()
    opened.send(*numbered(5))
    opened.tick(200)
    assert opened.bodies() == numbered(5)
    opened.disk.unlink(opened.queue().file_of(0))

    opened.send(b"behind")
    opened.tick(200)
    opened.tick(200)

    assert opened.bodies() == [*numbered(5), b"behind"]
    opened.settle(15)
    assert opened.crash("nothing").bodies() == [*numbered(5), b"behind"]


def test_a_recreated_topic_gets_new_files() -> None:
    opened = full()
    opened.send(*numbered(5))
    opened.tick(200)
    opened.store.delete_topic("T")

    opened.send(b"new")
    opened.settle(15)

    assert opened.bodies() == [b"new"]
    assert opened.crash("nothing").bodies() == [b"new"]


class Threads:
    """A store whose thread writes queue entries for real, and a disk that can stall it."""

    def __init__(self, **changes: Any) -> None:
        self.clock = FakeClock()
        self.disk = FaultyFiles(clock=self.clock)
        self.settings = msgspec.structs.replace(SMALL, queue_least_pages=0, **changes)
        self._open()

    def _open(self) -> None:
        self.owner = OwnerThread()
        self.store = MessageStore(
            self.settings, store_host=HOST, post=self.owner.post, files=self.disk, clock=self.clock
        )
        self.store.open()
        self.owner.run_until(lambda: not self.store._parts.preparer.busy)

    def restart(self) -> None:
        self.store.close()
        self._open()

    def send(self, body: bytes = b"body", properties: bytes = b"") -> None:
        queue = self.store.queue(parse_topic("T"), 0)
        self.store.stage(queue, body, properties, 0, 0, self.clock.now_ms(), HOST)
        self.store.end_turn()
        self.owner.run_until(lambda: self.store.busy_since is None)

    def tick(self, after_ms: int = 0) -> None:
        self.clock.advance_ms(after_ms)
        self.store.tick()

    def written(self) -> None:
        self.owner.run_until(lambda: not self.store._parts.queue_writer.busy)


@pytest.mark.parametrize("call", ["write", "create", "make_dir"])
def test_while_the_thread_is_stalled_messages_are_accepted_and_read(call: Call) -> None:
    threads = Threads()
    with threads.disk.stall(call, "*consumequeue*") as stall:
        threads.send()
        threads.tick()
        stall.wait_until_reached()
        for _ in range(20):
            threads.send()
            threads.tick(200)

        assert threads.store.max_offset("T", 0) == 21
        assert threads.store.read("T", 0, 20, 1).next_offset == 21
        assert not threads.store._writer.is_calm, "the log may stall, too"
    threads.written()
    threads.store.close()

    again = OpenStore(SMALL, threads.clock, threads.disk.crash(Random(0), survives="nothing"))
    assert (again.report.clean, len(again.bodies())) == (True, 21)


def test_readers_do_not_open_new_queue_files() -> None:
    opened = full()
    opened.send(*numbered(25))
    for _ in range(4):
        opened.tick(200)
    assert opened.queue().flushed_offset == 25

    with opened.disk.fail("open", errno.EIO, "*consumequeue*", times=None):
        assert opened.bodies() == numbered(25)


def test_a_file_deleted_before_its_first_reader_is_not_used() -> None:
    opened = full()
    opened.send(*numbered(5))
    opened.clock.advance_ms(200)
    opened.store.tick()
    opened.store.delete_topic("T")  # waits for the thread
    opened.send(b"new")
    opened.tick(200)

    assert opened.bodies() == [b"new"]


def test_only_the_thread_creates_and_writes_index_files() -> None:
    opened = OpenStore.small()
    for _ in range(30):
        since = opened.disk.position
        opened.send(*numbered(15), properties="KEYS\x01k\x02")
        opened.clock.advance_ms(1000)
        opened.store.tick()
        assert not any("/index/" in one.path for one in opened.disk.operations[since:])
        opened.run_workers()

    assert len(opened.names("index")) > 5
    assert opened.store.index_backlog_bytes == 0


@pytest.mark.parametrize("call", ["write", "open", "create", "truncate"])
def test_during_a_stalled_write_of_the_index_messages_are_accepted_and_read(call: Call) -> None:
    threads = Threads(index_entries=50)
    threads.send(properties=b"KEYS\x01first\x02")
    if call == "open":
        threads.restart()
    with threads.disk.stall(call, "*/index/*") as stall:
        for _ in range(200):
            threads.send(properties=b"KEYS\x01k\x02")
            threads.tick(200)
            if stall.waiting:
                break
        stall.wait_until_reached()
        for _ in range(100):
            threads.send(properties=b"KEYS\x01k\x02")
            threads.tick(200)
        end = threads.store.max_offset("T", 0)
        assert threads.store.read("T", 0, end - 1, 1).next_offset == end
    threads.store.close()

    again = OpenStore(threads.settings, threads.clock, threads.disk.crash(Random(0), survives="nothing"))
    assert (again.report.clean, len(again.bodies())) == (True, end)
    assert again.report.discarded_index_files == 0
    assert [one.queue_offset for one in again.store.find_by_key("T", "k", 3)] == [end - 1, end - 2, end - 3]
    assert len(again.store.find_by_key("T", "first", 3)) == 1


def test_a_long_stall_of_the_index_keeps_few_keys_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pocketmq.store.index.growing_index_file.PENDING_BYTES", 200)
    opened = OpenStore.small(index_entries=10_000, index_backlog_bytes=0)
    opened.send(properties="KEYS\x01k\x02")
    opened.run_workers()
    for _ in range(50):
        opened.send(*numbered(10), properties="KEYS\x01k\x02")
        opened.run_workers("files")

    (growing,) = opened.store._index._growing
    assert len(growing._pending) < 2000
    opened.run_workers()
    opened.tick(100)
    assert opened.store.index_backlog_bytes == 0


@pytest.mark.parametrize("call", ["write", "create", "truncate"])
def test_during_a_stalled_write_of_the_checkpoint_messages_are_accepted_and_read(call: Call) -> None:
    threads = Threads()
    with threads.disk.stall(call, "*/checkpoint") as stall:
        threads.send()
        threads.store.when_synced(threads.store.end, lambda _: None)
        threads.owner.run_until(lambda: threads.store.synced == threads.store.end)
        threads.tick(1000)
        stall.wait_until_reached()
        for _ in range(20):
            threads.send()
            threads.tick(100)
        assert threads.store.read("T", 0, 20, 1).next_offset == 21
    threads.written()
    threads.store.close()

    again = OpenStore(SMALL, threads.clock, threads.disk.crash(Random(0), survives="nothing"))
    assert (again.report.clean, len(again.bodies())) == (True, 21)


def test_a_checkpoint_that_the_disk_refuses_is_written_later(caplog: pytest.LogCaptureFixture) -> None:
    opened = OpenStore.small()
    opened.send()
    with opened.disk.fail("write", errno.EIO, "*/checkpoint", times=None):
        opened.settle(20)
        opened.send(b"taken all the same")
    assert caplog.text.count("checkpoint: disk error, retrying") == 1

    opened.settle(20)

    assert caplog.text.count("checkpoint: the disk accepts writes again") == 1
    on_disk = Checkpoint(opened.disk.crash(Random(0), survives="nothing"), ROOT).load()
    assert on_disk.physic_ms == opened.store._parts.checkpoint.physic_ms > 0


def test_without_a_thread_the_owner_writes_queue_files(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = Threads()

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        for _ in range(10):
            threads.send()
            threads.tick(100)
        assert threads.store._writer.is_calm
        assert threads.store.queue(parse_topic("T"), 0).flushed_offset > 0
    threads.tick(100)
    threads.written()
    threads.store.close()

    again = OpenStore(SMALL, threads.clock, threads.disk.crash(Random(0), survives="nothing"))
    assert (again.report.clean, len(again.bodies())) == (True, 10)


def test_pending_entries_in_memory_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "MAX_PENDING_BYTES", 100)
    threads = Threads()
    with threads.disk.stall("write", "*consumequeue*") as stall:
        for _ in range(5):
            threads.send()
        threads.tick()
        stall.wait_until_reached()
        threads.tick(1000)
        threads.send()
        threads.tick(1000)
        with pytest.raises(StoreBusy, match="120 bytes of queue entries are waiting: a write has taken 2000 ms so far"):
            threads.send()
        threads.store.abandon_turn()
    threads.written()
    threads.tick()
    threads.written()

    threads.send(b"again")
    threads.store.close()


def test_a_topic_is_not_deleted_while_the_thread_may_create_its_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "DELETE_WAIT_S", 0.01)
    threads = Threads()
    with threads.disk.stall("create", "*consumequeue*") as stall:
        threads.send()
        threads.tick()
        stall.wait_until_reached()
        with pytest.raises(StoreBusy, match="topic T cannot be removed"):
            threads.store.delete_topic("T")
    monkeypatch.setattr(upkeep, "DELETE_WAIT_S", 10)

    threads.store.delete_topic("T")

    assert threads.disk.list(ROOT / "consumequeue") == []
    threads.store.close()


def test_a_stop_waits_for_the_thread_up_to_a_limit() -> None:
    threads = Threads()
    threads.store._parts.settings = msgspec.structs.replace(threads.store.settings, close_timeout_ms=10)
    with threads.disk.stall("write", "*consumequeue*") as stall:
        threads.send()
        threads.tick()
        stall.wait_until_reached()
        with pytest.raises(StoreError, match="the result of the last write to consume queues is unknown"):
            threads.store.close()

    again = OpenStore(SMALL, threads.clock, threads.disk.crash(Random(0), survives="everything"))
    assert (again.report.clean, again.bodies()) == (False, [b"body"])
