"""Opening and closing a store, and deleted topics."""

import errno
import logging
from pathlib import Path
from time import process_time

import pytest
from tests.store.kit import HOST, ROOT
from tests.store.open_store import OpenStore, numbered

from pocketmq.errors import StoreError, StoreFull, StoreLocked, WrongState
from pocketmq.files import DiskFile, DiskFiles
from pocketmq.model.names import TopicName
from pocketmq.store.message_store import MessageStore
from pocketmq.store.queues.consume_queue import ENTRY_BYTES
from pocketmq.store.reading import ReadStatus
from pocketmq.store.settings import StoreSettings
from pocketmq.testing import FakeClock, FaultyFiles

# opening and closing


def test_a_store_can_be_opened_once() -> None:
    opened = OpenStore.small()

    with pytest.raises(WrongState, match="this store is open"):
        opened.store.open()
    opened.send(b"still working")
    opened.store.close()
    opened.store.close()

    with pytest.raises(WrongState, match="this store is closed"):
        opened.store.open()


def test_a_store_is_a_context_manager(tmp_path: Path) -> None:
    settings = StoreSettings(
        folder=tmp_path / "deep" / "store", log_file_bytes=64 * 1024, index_slots=9, index_entries=9
    )
    with MessageStore(settings, store_host=HOST, post=lambda _: None) as store:
        store.stage(store.queue(TopicName("T"), 0), b"body", b"", 0, 0, 0, HOST)
        store.end_turn()

    with MessageStore(settings, store_host=HOST, post=lambda _: None) as store:
        message = store.message(0)

    assert message is not None
    assert message.body == b"body"


def test_an_unused_store_is_opened_again_without_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = StoreSettings(folder=tmp_path, log_file_bytes=64 * 1024, index_slots=9, index_entries=9)

    for _ in range(2):
        with MessageStore(settings, store_host=HOST, post=lambda _: None):
            pass

    assert (tmp_path / "checkpoint").exists()
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_a_second_owner_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    settings = StoreSettings(folder=tmp_path, log_file_bytes=64 * 1024, index_slots=9, index_entries=9)
    with MessageStore(settings, store_host=HOST, post=lambda _: None) as store:
        with pytest.raises(StoreLocked, match="in use by process"):
            MessageStore(settings, store_host=HOST, post=lambda _: None).open()
        store.stage(store.queue(TopicName("T"), 0), b"body", b"", 0, 0, 0, HOST)
        store.end_turn()
        assert store.max_offset("T", 0) == 1
    assert not (tmp_path / "abort").exists()


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES])
def test_a_folder_without_write_permission_is_an_error(code: int) -> None:
    disk = FaultyFiles()
    disk.make_dir(ROOT)
    disk.fail("create", code, times=None)

    with pytest.raises(StoreError, match=r"/store cannot be used: .*can write to"):
        OpenStore.small(disk)


def test_closing_on_a_failing_disk_leaves_the_abort_file() -> None:
    opened = OpenStore.small()
    opened.send(*numbered(3))
    opened.disk.fail("write", errno.ENOSPC, "*/consumequeue/*")

    with pytest.raises(StoreFull, match="cannot close the store cleanly"):
        opened.store.close()

    assert "abort" in opened.names(".")
    again = OpenStore(opened.settings, opened.clock, opened.disk)
    assert not again.report.clean
    assert again.bodies() == numbered(3)


def test_closing_ends_the_sync_thread_even_when_the_last_write_fails() -> None:
    opened = OpenStore.small(transient_pool=True)
    opened.send(*numbered(3))
    opened.run_workers()
    opened.store._log.end_writing = _refuse  # type: ignore[method-assign]

    with pytest.raises(StoreError, match="no answer"):
        opened.store.close()

    assert opened.store._log.synced == opened.store._log.written
    assert "abort" in opened.names(".")


def _refuse() -> None:
    raise StoreError("no answer from the disk")


def test_a_store_that_could_not_be_opened_releases_the_folder() -> None:
    opened = OpenStore.small()
    opened.send(*numbered(3))
    opened.store.close()
    opened.disk.fail("sync", errno.EIO, "*/commitlog/*")

    with pytest.raises(StoreError, match="cannot sync the recovered log"):
        OpenStore(opened.settings, opened.clock, opened.disk)

    assert OpenStore(opened.settings, opened.clock, opened.disk).bodies() == numbered(3)


def test_a_clean_start_reads_no_queue_for_any_number_of_queues(tmp_path: Path) -> None:
    settings = StoreSettings(folder=tmp_path, log_file_bytes=1024 * 1024, index_slots=9, index_entries=9)
    store = MessageStore(settings, store_host=HOST, post=lambda _: None)
    store.open()
    for number in range(100):
        store.stage(store.queue(TopicName(f"T{number}"), 0), b"body", b"", 0, 0, 0, HOST)
    store.end_turn()
    store.close()
    point = store._parts.resume.load()
    assert point is not None
    for number in range(100, 10_000):
        (tmp_path / "consumequeue" / f"T{number}" / "0").mkdir(parents=True)
        with (tmp_path / "consumequeue" / f"T{number}" / "0" / f"{0:020d}").open("wb") as file:
            file.truncate(settings.queue_file_entries * ENTRY_BYTES)
        point.queues[f"T{number}", 0] = (0, 1)
    store._parts.resume.save(point)
    counting = CountingFiles()

    again = MessageStore(settings, store_host=HOST, post=lambda _: None, files=counting)
    used_s = process_time()
    report = again.open()
    used_s = process_time() - used_s

    assert report.clean
    assert used_s < 2
    assert again.max_offset("T9999", 0) == 1
    assert counting.opened_queues == 0
    assert again.read("T99", 0, 0, 1).count == 1
    again._parts.close(clean=False)


class CountingFiles(DiskFiles):
    """Counts how often a file of a queue is opened."""

    opened_queues = 0

    def open(self, path: Path, *, create: bool = False, write: bool = True) -> DiskFile:
        self.opened_queues += "consumequeue" in path.parts
        return super().open(path, create=create, write=write)


# topics that are deleted


def test_topics_with_queues_are_listed_once() -> None:
    opened = OpenStore.small()
    opened.send(topic="T", queue_id=0)
    opened.send(topic="T", queue_id=1)
    opened.send(topic="U")

    assert opened.store.topics() == ["T", "U"]
    opened.store.delete_topic("T")
    assert opened.store.topics() == ["U"]


def test_topics_with_messages_are_returned_with_their_number_of_queues() -> None:
    opened = OpenStore.small()
    opened.send(topic="T", queue_id=2)
    opened.send(topic="T", queue_id=0)
    opened.send(topic="U")
    opened.queue("Empty", 7)

    assert opened.store.topic_queues() == {"T": 3, "U": 1}
    opened.store.delete_topic("T")
    assert opened.reopen().store.topic_queues() == {"U": 1}


def test_a_deleted_topic_has_no_messages_and_a_recreated_one_starts_at_zero() -> None:
    opened = OpenStore.small()
    opened.send(*numbered(25))
    opened.send(b"other", topic="U")
    opened.settle()

    opened.store.delete_topic("T")
    assert opened.store.find_queue("T", 0) is None
    assert opened.store.read("T", 0, 0, 32).status is ReadStatus.NO_QUEUE
    assert opened.names("consumequeue") == ["U"]
    assert opened.stage(b"new")[0] == 0
    opened.store.end_turn()

    assert opened.bodies() == [b"new"]
    assert opened.bodies("U") == [b"other"]
    for again in (opened.crash(), opened.crash("nothing"), opened.reopen()):
        assert again.bodies() in ([b"new"], []), "but never the old ones"


def test_a_deleted_topic_stays_deleted_after_a_crash() -> None:
    opened = OpenStore.small()
    opened.send(*numbered(25))
    opened.settle()
    opened.store.delete_topic("T")

    for survives in ("everything", "nothing"):
        again = opened.crash(survives)
        assert again.store.max_offset("T", 0) == 0
        assert again.stage(b"new")[0] == 0


@pytest.mark.parametrize("refused", [0, 2], ids=["at once", "later"])
def test_messages_stored_over_a_failed_write_do_not_count_as_deleted(refused: int) -> None:
    opened = OpenStore.small(slow_write_ms=0)
    opened.send(b"old")
    opened.run_workers()
    failed: list[StoreError | None] = []
    opened.stage(b"x" * 600, topic="OTHER")
    opened.store.end_turn(failed.append)
    opened.store.delete_topic("T")  # a thread has the turn, whose write fails now
    opened.disk.fail("write", path="*/commitlog/*", times=1)
    if refused:
        opened.disk.fail("replace", times=refused)
    opened.run_workers("log")
    assert [type(error) for error in failed] == [StoreError]
    opened.settle(3)

    opened.send(b"new")
    opened.run_workers()
    assert opened.bodies() == [b"new"]
    assert not opened.store.was_deleted("T", opened.store.end - 1)
    assert opened.crash().bodies() == [b"new"]


def test_a_topic_is_not_deleted_during_a_turn() -> None:
    opened = OpenStore.small()
    opened.stage(b"one")

    with pytest.raises(WrongState, match="during a turn"):
        opened.store.delete_topic("T")
    opened.store.end_turn()
    opened.store.delete_topic("T")

    assert opened.bodies() == []


def test_a_failed_deletion_of_a_topic_is_reported_and_can_be_repeated() -> None:
    opened = OpenStore.small()
    opened.send(b"one")
    opened.settle()
    opened.disk.fail("unlink", errno.EIO, "*/consumequeue/*")

    with pytest.raises(StoreError, match="queues of topic T cannot be removed"):
        opened.store.delete_topic("T")
    opened.store.delete_topic("T")

    assert opened.names("consumequeue") == []


def test_tables_are_stored_in_the_same_folder() -> None:
    opened = OpenStore.small()

    opened.store.tables.save("topics.json", b'{"a":1}')

    assert opened.disk.read(ROOT / "config" / "topics.json") == b'{"a":1}'
    assert opened.reopen().store.tables.load("topics.json") == {"a": 1}


def test_times_are_those_of_the_clock() -> None:
    clock = FakeClock(start_ms=5_000)
    opened = OpenStore.small(clock=clock)

    opened.send()

    assert opened.store.store_ms("T", 0, 0) == 5_000
