"""The store as a broker sees it: turns, reads, searches, refusals, and how it opens and closes."""

import errno
import logging
from pathlib import Path
from typing import Any

import pytest
from tests.store.kit import HOST, ROOT
from tests.store.open_store import OpenStore, numbered

from pocketmq.codes import BoundaryType
from pocketmq.errors import (
    InvalidMessage,
    InvalidName,
    StoreBusy,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreLocked,
    SyncFailed,
    WrongState,
)
from pocketmq.files import DiskFile, DiskFiles
from pocketmq.model.flags import SysFlag
from pocketmq.model.names import SCHEDULE_TOPIC, TopicName
from pocketmq.store.message_store import MessageStore
from pocketmq.store.reading import ReadStatus
from pocketmq.store.settings import FlushMode, StoreSettings
from pocketmq.testing import FakeClock, FaultyFiles
from pocketmq.testing.fake_clock import START_MS

HOUR_MS = 3_600_000

# turns


def test_a_turn_is_invisible_until_it_ends() -> None:
    opened = OpenStore.small()

    first, second = opened.stage(b"one"), opened.stage(b"two")

    assert (first[0], second[0]) == (0, 1)
    assert opened.store.max_offset("T", 0) == 0
    assert opened.store.read("T", 0, 0, 32).status is ReadStatus.NO_MESSAGE
    assert opened.store.message(first[1]) is None
    assert opened.arrived == []

    opened.store.end_turn()

    assert opened.bodies() == [b"one", b"two"]
    assert [(queue.key, log_offset) for queue, log_offset, _, _ in opened.arrived] == [
        (("T", 0), first[1]),
        (("T", 0), second[1]),
    ]


def test_a_turn_is_one_write_however_many_messages_and_queues_it_has() -> None:
    opened = OpenStore.small()
    before = opened.disk.position

    for number in range(9):
        opened.stage(topic=f"T{number % 3}", queue_id=number)
    opened.store.end_turn()

    assert [operation.kind for operation in opened.disk.operations[before:]] == ["write"]


def test_a_turn_goes_on_in_the_next_file() -> None:
    opened = OpenStore.small()

    opened.send(*numbered(30, size=200))

    assert opened.store.end > 4096
    assert opened.bodies() == numbered(30, size=200)


def test_a_turn_with_nothing_in_it_changes_nothing() -> None:
    opened = OpenStore.small()
    before = opened.disk.position

    opened.store.end_turn()
    with pytest.raises(InvalidMessage):
        opened.stage(bytes(5 * 1024 * 1024))
    opened.store.end_turn()

    assert opened.disk.position == before
    assert opened.arrived == []


def test_an_abandoned_turn_leaves_no_trace() -> None:
    opened = OpenStore.small()
    opened.send(b"kept")
    end = opened.store.end

    opened.stage(b"a")
    opened.stage(b"b" * 3900, topic="U")
    opened.store.abandon_turn()

    assert opened.store.end == end
    assert opened.stage(b"next") == (1, end)
    opened.store.end_turn()
    assert opened.bodies() == [b"kept", b"next"]
    assert opened.store.max_offset("U", 0) == 0


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_turn_that_cannot_be_written_leaves_no_trace_and_the_next_one_can(code: int) -> None:
    opened = OpenStore.small()
    opened.send(b"before")
    end = opened.store.end
    opened.disk.fail("write", code, "*/commitlog/*")
    opened.stage(b"a")
    opened.stage(b"b", topic="U")

    with pytest.raises(StoreFull if code == errno.ENOSPC else StoreError):
        opened.store.end_turn()

    assert (opened.store.end, opened.queue().next_offset, opened.queue("U").next_offset) == (end, 1, 0)
    assert opened.bodies() == [b"before"]
    assert len(opened.arrived) == 1
    opened.tick()
    assert opened.stage(b"after") == (1, end)
    opened.store.end_turn()
    assert opened.bodies() == [b"before", b"after"]


def test_what_a_failed_turn_left_on_the_disk_does_not_come_back() -> None:
    opened = OpenStore.small()
    opened.send(b"before")
    opened.disk.fail("write", errno.EIO, "*/commitlog/*")
    opened.stage(b"ghost")
    with pytest.raises(StoreError):
        opened.store.end_turn()
    opened.tick()
    opened.send(b"after")

    again = opened.crash()

    assert again.bodies() == [b"before", b"after"]


# what is refused


def test_messages_that_are_too_large_are_refused_by_name() -> None:
    opened = OpenStore.small(max_message_bytes=1000)

    with pytest.raises(InvalidMessage, match="1001 bytes; the limit is max_message_bytes = 1000"):
        opened.stage(bytes(1001))
    with pytest.raises(InvalidMessage, match="properties take 32768 bytes; at most 32767"):
        opened.stage(properties="x" * 32768)
    with pytest.raises(InvalidMessage, match="does not fit into a log file of 4096"):
        opened.stage(bytes(500), properties="x" * 4000)

    opened.send(bytes(1000))
    assert opened.bodies() == [bytes(1000)]


@pytest.mark.parametrize("name", ["", "../escape", "a/b", "white space", "x" * 128])
def test_a_topic_that_is_no_name_never_becomes_a_folder(name: str) -> None:
    opened = OpenStore.small()

    with pytest.raises(InvalidName):
        opened.store.queue(TopicName(name), 0)

    opened.settle()
    assert opened.names("consumequeue") == []


@pytest.mark.parametrize("queue_id", [-1, 2**31])
def test_a_queue_id_that_no_folder_can_have_is_refused(queue_id: int) -> None:
    with pytest.raises(InvalidMessage, match="ids go from 0 to"):
        OpenStore.small().store.queue(TopicName("T"), queue_id)


def test_a_number_that_does_not_fit_costs_its_message_alone() -> None:
    opened = OpenStore.small()
    opened.stage(b"one")

    with pytest.raises(InvalidMessage, match="does not fit"):
        opened.store.stage(opened.queue(), b"two", b"", 2**40, 0, 0, HOST)

    assert opened.stage(b"three")[0] == 1
    opened.store.end_turn()
    assert opened.bodies() == [b"one", b"three"]


def test_properties_that_a_crash_could_have_made_are_refused() -> None:
    opened = OpenStore.small()

    with pytest.raises(InvalidMessage, match="zero byte"):
        opened.stage(properties="name\x01value\0")
    with pytest.raises(InvalidMessage, match="zero byte"):
        opened.stage(properties="name\x01" + "\0" * 600 + "x\x02")

    opened.send(b"body", properties="name\x01va\0lue\x02")
    assert opened.crash().bodies() == [b"body"]


def test_messages_with_long_hosts_are_stored() -> None:
    opened = OpenStore.small()
    born_host = bytes(range(16)) + b"\0\0\x2a\x9f"

    opened.store.stage(opened.queue(), b"body", b"", 0, 0, START_MS, born_host)
    opened.store.end_turn()

    message = opened.store.message(0)
    assert message is not None
    assert message.packed_born_host == born_host
    assert message.sys_flag == SysFlag.BORN_HOST_V6


# transactions and delays


def test_prepared_and_rolled_back_messages_are_in_the_log_alone() -> None:
    opened = OpenStore.small()
    opened.send(b"first")

    offsets = [
        opened.stage(b"half", sys_flag=SysFlag.TRANSACTION_PREPARED),
        opened.stage(b"gone", sys_flag=SysFlag.TRANSACTION_ROLLBACK),
        opened.stage(b"done", sys_flag=SysFlag.TRANSACTION_COMMIT),
    ]
    opened.store.end_turn()

    assert [queue_offset for queue_offset, _ in offsets] == [0, 0, 1]
    assert opened.bodies() == [b"first", b"done"]
    half = opened.store.message(offsets[0][1])
    assert half is not None
    assert half.body == b"half"


def test_the_entry_of_a_delayed_message_says_when_it_is_due() -> None:
    opened = OpenStore.small()

    opened.send(topic=SCHEDULE_TOPIC, queue_id=2, properties="DELAY\x013\x02")

    entry = opened.queue(SCHEDULE_TOPIC, 2).entry(0)
    assert entry is not None
    assert entry[2] == opened.clock.now_ms() + 10_000


# time


def test_store_times_never_go_back_when_the_clock_does() -> None:
    opened = OpenStore.small()
    opened.send(b"one")
    opened.clock.step_ms(-HOUR_MS)
    opened.send(b"two")
    opened.clock.advance_ms(1000)
    opened.send(b"three")

    assert [opened.store.store_ms("T", 0, offset) for offset in range(3)] == [START_MS] * 3
    again = opened.reopen()
    again.send(b"four")
    again.clock.advance_ms(2 * HOUR_MS)
    again.send(b"five")
    assert [again.store.store_ms("T", 0, offset) for offset in (3, 4)] == [START_MS, START_MS + HOUR_MS + 1000]


def test_offsets_by_time() -> None:
    opened = OpenStore.small()
    for _ in range(3):
        opened.send(b"a", b"b")
        opened.clock.advance_ms(1000)
    at = opened.store.offset_at_time

    assert [at("T", 0, START_MS + ms) for ms in (-1, 0, 1, 1000, 2000, 2001)] == [0, 0, 2, 2, 4, 6]
    assert [at("T", 0, START_MS + ms, BoundaryType.UPPER) for ms in (-1, 0, 999, 1000, 9999)] == [0, 1, 1, 3, 5]
    assert at("unknown", 0, START_MS) == 0
    assert opened.store.store_ms("T", 0, 2) == START_MS + 1000
    assert opened.store.store_ms("T", 0, 6) is None
    assert opened.store.store_ms("unknown", 0, 0) is None


# looking up


def test_messages_are_found_by_their_keys_the_newest_first() -> None:
    opened = OpenStore.small()
    for number in range(3):
        opened.send(b"%d" % number, properties=f"KEYS\x01red k{number}\x02UNIQ_KEY\x01id{number}\x02")
        opened.clock.advance_ms(5000)
    opened.send(b"other", topic="U", properties="KEYS\x01red\x02")
    find = opened.store.find_by_key

    assert [message.body for message in find("T", "red", 10)] == [b"2", b"1", b"0"]
    assert [message.body for message in find("T", "red", 2)] == [b"2", b"1"]
    assert [message.body for message in find("T", "red", 10, START_MS + 1, START_MS + 5000)] == [b"1"]
    assert [message.body for message in find("T", "k1", 10)] == [b"1"]
    assert [message.body for message in find("T", "id1", 10, unique=True)] == [b"1"]
    assert find("T", "id1", 10) == []
    assert find("T", "k1", 10, unique=True) == []
    assert find("T", "nothing", 10) == []
    assert opened.store.index_backlog_bytes == 0


def test_messages_are_found_by_where_they_lie() -> None:
    opened = OpenStore.small()
    one, two = opened.send(b"one", b"two")

    message = opened.store.message(two)

    assert message is not None
    assert (message.body, message.log_offset, message.queue_offset) == (b"two", two, 1)
    record = opened.store.record(one)
    assert record is not None
    assert len(record) == two
    assert [opened.store.message(offset) for offset in (-1, 1, opened.store.end, 2**60)] == [None] * 4


def test_a_damaged_message_is_refused_by_name_and_hides_no_other(caplog: pytest.LogCaptureFixture) -> None:
    opened = OpenStore.small()
    one, two = opened.send(b"one body", b"two body", properties="KEYS\x01k\x02")
    log = opened.disk.open(ROOT / "commitlog" / f"{0:020d}")
    log.write_at(one + 90, b"?")

    with pytest.raises(StoreDamaged, match=f"the log is damaged at offset {one}: .*checksum"):
        opened.store.message(one)

    with caplog.at_level(logging.ERROR):
        assert [message.body for message in opened.store.find_by_key("T", "k", 10)] == [b"two body"]
    assert f"damaged at offset {one}" in caplog.text
    assert opened.store.message(two) is not None
    assert opened.store.read("T", 0, 0, 32).count == 2, "a reader gets the bytes as they are, and checks them"


# safety


def test_waiting_sends_are_told_together_once_one_sync_covers_them() -> None:
    opened = OpenStore.small(flush=FlushMode.SYNC)
    told: list[bool] = []

    for _ in range(3):
        opened.send()
        opened.store.when_synced(opened.store.end, told.append)
    assert told == []
    opened.run_workers("sync")

    assert told == [True] * 3
    assert opened.store._flusher.syncs <= 2
    assert opened.crash("nothing").bodies() == [b"body"] * 3


def test_a_send_whose_sync_takes_too_long_is_told_so_and_stored_all_the_same() -> None:
    opened = OpenStore.small(flush=FlushMode.SYNC, sync_timeout_ms=5000)
    told: list[bool] = []
    opened.send()
    opened.store.when_synced(opened.store.end, told.append)

    opened.clock.advance_ms(4999)
    opened.store.tick()
    assert told == []
    opened.clock.advance_ms(1)
    opened.store.tick()

    assert told == [False]
    assert opened.bodies() == [b"body"]


def test_a_failed_sync_stops_writing_until_the_store_is_opened_again() -> None:
    opened = OpenStore.small(flush=FlushMode.SYNC)
    opened.send(b"safe")
    opened.store.when_synced(opened.store.end, lambda _: None)
    opened.run_workers()
    told: list[bool] = []
    opened.disk.fail("sync", errno.EIO, "*/commitlog/*")
    opened.send(b"in doubt")
    opened.store.when_synced(opened.store.end, told.append)
    opened.run_workers()

    assert told == [False]
    for _ in range(2):
        with pytest.raises(SyncFailed, match="restart"):
            opened.send(b"refused")
        opened.tick(1000)
    assert opened.bodies() == [b"safe", b"in doubt"]
    with pytest.raises(SyncFailed):
        opened.store.close()
    assert "abort" in opened.names(".")

    again = OpenStore(opened.settings, opened.clock, opened.disk)
    again.send(b"more")
    again.store.when_synced(again.store.end, told.append)
    again.run_workers()
    assert told == [False, True]
    assert not again.report.clean
    assert again.crash("nothing").bodies() == [b"safe", b"in doubt", b"more"], "what was in doubt was written again"


def test_too_much_that_is_not_safe_makes_the_store_busy() -> None:
    opened = OpenStore.small(max_unsynced_bytes=1000)
    opened.send(bytes(1000))

    with pytest.raises(StoreBusy, match="max_unsynced_bytes"):
        opened.send(b"refused")
    opened.tick(10_000)

    opened.send(b"accepted")
    assert opened.bodies() == [bytes(1000), b"accepted"]


def test_no_ready_file_makes_the_store_busy() -> None:
    opened = OpenStore.small(prepared_files=1)
    opened.send(bytes(3500))

    with pytest.raises(StoreBusy, match="still being made"):
        opened.send(bytes(3500))
    opened.run_workers("files")

    opened.send(bytes(3500))
    assert len(opened.bodies()) == 2


@pytest.mark.parametrize(
    ("size", "settings", "why"),
    [(3000, {"max_unsynced_bytes": 2000}, "max_unsynced_bytes"), (3950, {"prepared_files": 1}, "still being made")],
)
def test_whether_there_is_room_can_be_asked_without_writing(size: int, settings: dict[str, Any], why: str) -> None:
    opened = OpenStore.small(**settings)
    opened.store.check_room()
    opened.send(bytes(size))
    end, position = opened.store.end, opened.disk.position

    for _ in range(2):
        with pytest.raises(StoreBusy, match=why):
            opened.store.check_room()

    assert (opened.store.end, opened.disk.position) == (end, position)
    opened.tick(10_000)
    opened.store.check_room()
    opened.send(b"next")
    assert opened.bodies() == [bytes(size), b"next"]


def test_room_is_not_asked_for_while_a_turn_is_under_way() -> None:
    opened = OpenStore.small()
    opened.stage(b"staged")

    with pytest.raises(WrongState, match="under way"):
        opened.store.check_room()

    opened.store.end_turn()
    assert opened.bodies() == [b"staged"]


# the transient pool


def test_with_a_pool_messages_are_readable_once_they_are_written() -> None:
    opened = OpenStore.small(transient_pool=True)

    opened.send(b"one")
    opened.send(b"two")

    assert opened.store.end > 0
    assert opened.store.read("T", 0, 0, 32).status is ReadStatus.NO_MESSAGE
    assert opened.stage(b"three")[0] == 2, "offsets are assigned at once"
    opened.store.end_turn()
    opened.run_workers("pool")

    assert opened.bodies() == [b"one", b"two", b"three"]
    assert len(opened.arrived) == 3


def test_an_empty_pool_refuses_until_something_was_written() -> None:
    opened = OpenStore.small(transient_pool=True)
    opened.send(bytes(3000))

    with pytest.raises(StoreBusy, match="pool"):
        opened.send(bytes(1000))
    opened.run_workers("pool")

    opened.send(bytes(900))
    opened.run_workers()
    assert len(opened.bodies()) == 2


def test_closing_writes_what_is_in_the_pool() -> None:
    opened = OpenStore.small(transient_pool=True)
    opened.send(b"one")

    again = opened.reopen()

    assert again.report.clean
    assert again.bodies() == [b"one"]


# disks that fill up or refuse


def test_a_disk_that_is_too_full_refuses_and_accepts_again_without_a_restart() -> None:
    opened = OpenStore.small(FaultyFiles(capacity=1024 * 1024))
    opened.send(b"one")
    with opened.disk.open(Path("/ballast"), create=True) as ballast:
        ballast.allocate(950 * 1024)

    opened.tick(10_000)
    with pytest.raises(StoreFull, match="disk_full_ratio"):
        opened.send(b"refused")
    assert opened.bodies() == [b"one"], "reading goes on"
    opened.disk.unlink(Path("/ballast"))
    opened.tick(10_000)

    opened.send(b"two")
    assert opened.bodies() == [b"one", b"two"]


@pytest.mark.parametrize("place", ["consumequeue", "index"])
def test_derived_files_that_cannot_be_written_refuse_messages_until_they_can(
    place: str, caplog: pytest.LogCaptureFixture
) -> None:
    opened = OpenStore.small()
    opened.send(*numbered(3), properties="KEYS\x01k\x02")
    fault = opened.disk.fail("write", errno.ENOSPC, f"*/{place}/*", times=None)

    opened.settle(40)
    with pytest.raises(StoreFull, match="cannot write its"):
        opened.send(b"refused")
    assert opened.bodies() == numbered(3)
    assert len(opened.store.find_by_key("T", "k", 10)) == 3
    assert caplog.text.count("the disk refuses") == 1, "told once"
    fault.heal()
    opened.tick(1000)

    opened.send(b"accepted")
    assert opened.crash("everything").bodies() == [*numbered(3), b"accepted"]


def test_a_resume_point_or_checkpoint_that_cannot_be_written_refuses_nothing() -> None:
    opened = OpenStore.small(resume_interval_ms=1000)
    opened.disk.fail("write", errno.ENOSPC, "*/config/*", times=None)
    opened.disk.fail("write", errno.ENOSPC, "*/checkpoint", times=None)
    opened.send(b"one")

    opened.settle(40)

    opened.send(b"two")
    assert opened.bodies() == [b"one", b"two"]


# opening and closing


def test_a_store_opens_once() -> None:
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


def test_a_second_owner_is_kept_out_and_harms_nothing(tmp_path: Path) -> None:
    settings = StoreSettings(folder=tmp_path, log_file_bytes=64 * 1024, index_slots=9, index_entries=9)
    with MessageStore(settings, store_host=HOST, post=lambda _: None) as store:
        with pytest.raises(StoreLocked, match="in use by process"):
            MessageStore(settings, store_host=HOST, post=lambda _: None).open()
        store.stage(store.queue(TopicName("T"), 0), b"body", b"", 0, 0, 0, HOST)
        store.end_turn()
        assert store.max_offset("T", 0) == 1
    assert not (tmp_path / "abort").exists()


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES])
def test_a_folder_that_may_not_be_written_is_an_error_that_says_so(code: int) -> None:
    disk = FaultyFiles()
    disk.make_dir(ROOT)
    disk.fail("create", code, times=None)

    with pytest.raises(StoreError, match=r"/store cannot be used: .*may write to"):
        OpenStore.small(disk)


def test_closing_on_a_disk_that_refuses_leaves_the_mark_of_a_crash() -> None:
    opened = OpenStore.small()
    opened.send(*numbered(3))
    opened.disk.fail("write", errno.ENOSPC, "*/consumequeue/*")

    with pytest.raises(StoreFull, match="cannot be closed cleanly"):
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


def test_a_store_that_could_not_be_opened_gives_the_folder_back() -> None:
    opened = OpenStore.small()
    opened.send(*numbered(3))
    opened.store.close()
    opened.disk.fail("sync", errno.EIO, "*/commitlog/*")

    with pytest.raises(StoreError, match="syncing the recovered log failed"):
        OpenStore(opened.settings, opened.clock, opened.disk)

    assert OpenStore(opened.settings, opened.clock, opened.disk).bodies() == numbered(3)


def test_clean_start_reads_no_queue_however_many_there_are(tmp_path: Path) -> None:
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
        (tmp_path / "consumequeue" / f"T{number}" / "0" / f"{0:020d}").touch()
        point.queues[f"T{number}", 0] = (0, 1)
    store._parts.resume.save(point)
    counting = CountingFiles()

    again = MessageStore(settings, store_host=HOST, post=lambda _: None, files=counting)
    report = again.open()

    assert report.clean
    assert report.seconds < 2
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


def test_topics_with_queues_are_told_each_once() -> None:
    opened = OpenStore.small()
    opened.send(topic="T", queue_id=0)
    opened.send(topic="T", queue_id=1)
    opened.send(topic="U")

    assert opened.store.topics() == ["T", "U"]
    opened.store.delete_topic("T")
    assert opened.store.topics() == ["U"]


def test_topics_with_messages_are_told_with_how_many_queues_they_need() -> None:
    opened = OpenStore.small()
    opened.send(topic="T", queue_id=2)
    opened.send(topic="T", queue_id=0)
    opened.send(topic="U")
    opened.queue("Empty", 7)

    assert opened.store.topic_queues() == {"T": 3, "U": 1}
    opened.store.delete_topic("T")
    assert opened.reopen().store.topic_queues() == {"U": 1}


def test_a_deleted_topic_is_gone_and_one_made_again_begins_anew() -> None:
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


def test_a_topic_is_not_deleted_in_the_middle_of_a_turn() -> None:
    opened = OpenStore.small()
    opened.stage(b"one")

    with pytest.raises(WrongState, match="while a turn is under way"):
        opened.store.delete_topic("T")
    opened.store.end_turn()
    opened.store.delete_topic("T")

    assert opened.bodies() == []


def test_a_topic_that_cannot_be_deleted_says_so_and_can_be_deleted_later() -> None:
    opened = OpenStore.small()
    opened.send(b"one")
    opened.settle()
    opened.disk.fail("unlink", errno.EIO, "*/consumequeue/*")

    with pytest.raises(StoreError, match="queues of topic T cannot be removed"):
        opened.store.delete_topic("T")
    opened.store.delete_topic("T")

    assert opened.names("consumequeue") == []


def test_tables_live_in_the_same_folder() -> None:
    opened = OpenStore.small()

    opened.store.tables.save("topics.json", b'{"a":1}')

    assert opened.disk.read(ROOT / "config" / "topics.json") == b'{"a":1}'
    assert opened.reopen().store.tables.load("topics.json") == {"a": 1}


def test_time_of_day_is_the_clocks() -> None:
    clock = FakeClock(start_ms=5_000)
    opened = OpenStore.small(clock=clock)

    opened.send()

    assert opened.store.store_ms("T", 0, 0) == 5_000
