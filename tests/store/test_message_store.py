"""The store as a broker sees it: turns, refusals, syncs, and disks that fill up."""

import errno
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.store.kit import HOST
from tests.store.open_store import OpenStore, numbered

from pocketmq.codes import SysFlag
from pocketmq.errors import (
    InvalidMessage,
    InvalidName,
    StoreBusy,
    StoreError,
    StoreFull,
    SyncFailed,
    WrongState,
)
from pocketmq.model.names import SCHEDULE_TOPIC, TopicName
from pocketmq.store.reading import ReadStatus
from pocketmq.store.settings import FlushMode
from pocketmq.testing import FaultyFiles
from pocketmq.testing.fake_clock import START_MS

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


def test_a_turn_is_one_write_for_any_number_of_messages_and_queues() -> None:
    opened = OpenStore.small()
    before = opened.disk.position

    for number in range(9):
        opened.stage(topic=f"T{number % 3}", queue_id=number)
    opened.store.end_turn()

    assert [operation.kind for operation in opened.disk.operations[before:]] == ["write"]


def test_a_turn_continues_in_the_next_file() -> None:
    opened = OpenStore.small()

    opened.send(*numbered(30, size=200))

    assert opened.store.end > 4096
    assert opened.bodies() == numbered(30, size=200)


def test_an_empty_turn_changes_nothing() -> None:
    opened = OpenStore.small()
    before = opened.disk.position

    opened.store.end_turn()
    with pytest.raises(InvalidMessage):
        opened.stage(bytes(5 * 1024 * 1024))
    opened.store.end_turn()

    assert opened.disk.position == before
    assert opened.arrived == []


def test_an_abandoned_turn_has_no_effect() -> None:
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


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, MemoryError])
def test_a_stored_turn_stays_stored_if_a_later_step_is_interrupted(interruption: type[BaseException]) -> None:
    opened = OpenStore.small()

    def interrupted(_: object) -> None:
        raise interruption

    opened.store._on_arrivals = interrupted
    opened.stage(b"stored")
    with suppress(KeyboardInterrupt):
        opened.store.end_turn()
    opened.store._on_arrivals = opened.arrived.extend

    assert opened.stage(b"next")[0] == 1
    opened.store.end_turn()
    assert opened.bodies() == [b"stored", b"next"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_turn_that_cannot_be_written_has_no_effect_and_the_next_one_can(code: int) -> None:
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


def test_remains_of_a_failed_turn_are_removed() -> None:
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


def test_too_large_messages_are_refused_with_the_limit() -> None:
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
def test_an_invalid_topic_name_never_becomes_a_folder(name: str) -> None:
    opened = OpenStore.small()

    with pytest.raises(InvalidName):
        opened.store.queue(TopicName(name), 0)

    opened.settle()
    assert opened.names("consumequeue") == []


@pytest.mark.parametrize("queue_id", [-1, 2**31])
def test_a_queue_id_that_no_folder_can_have_is_refused(queue_id: int) -> None:
    with pytest.raises(InvalidMessage, match="ids go from 0 to"):
        OpenStore.small().store.queue(TopicName("T"), queue_id)


def test_a_number_out_of_range_fails_only_its_message() -> None:
    opened = OpenStore.small()
    opened.stage(b"one")

    with pytest.raises(InvalidMessage, match="does not fit"):
        opened.store.stage(opened.queue(), b"two", b"", 2**40, 0, 0, HOST)

    assert opened.stage(b"three")[0] == 1
    opened.store.end_turn()
    assert opened.bodies() == [b"one", b"three"]


def test_properties_that_look_like_crash_damage_are_refused() -> None:
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


def test_prepared_and_rolled_back_messages_are_only_in_the_log() -> None:
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


def test_the_entry_of_a_delayed_message_has_its_due_time() -> None:
    opened = OpenStore.small()

    opened.send(topic=SCHEDULE_TOPIC, queue_id=2, properties="DELAY\x013\x02")

    entry = opened.queue(SCHEDULE_TOPIC, 2).entry(0)
    assert entry is not None
    assert entry[2] == opened.clock.now_ms() + 10_000


# safety


def test_waiting_sends_are_notified_together_after_the_sync_that_covers_them() -> None:
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


def test_a_send_with_a_late_sync_is_reported_and_stored() -> None:
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


def test_too_many_unsynced_bytes_make_the_store_busy() -> None:
    opened = OpenStore.small(max_unsynced_bytes=1000)
    opened.send(bytes(1000))

    with pytest.raises(StoreBusy, match="max_unsynced_bytes"):
        opened.send(b"refused")
    opened.tick(10_000)

    opened.send(b"accepted")
    assert opened.bodies() == [bytes(1000), b"accepted"]


def test_a_missing_prepared_file_makes_the_store_busy() -> None:
    opened = OpenStore.small(prepared_files=1)
    opened.send(bytes(3500))

    with pytest.raises(StoreBusy, match="still being created"):
        opened.send(bytes(3500))
    opened.run_workers("files")

    opened.send(bytes(3500))
    assert len(opened.bodies()) == 2


@pytest.mark.parametrize(
    ("size", "settings", "why"),
    [(3000, {"max_unsynced_bytes": 2000}, "max_unsynced_bytes"), (3950, {"prepared_files": 1}, "still being created")],
)
def test_the_capacity_can_be_queried_without_writing(size: int, settings: dict[str, Any], why: str) -> None:
    opened = OpenStore.small(**settings)
    opened.store.check_space()
    opened.send(bytes(size))
    end, position = opened.store.end, opened.disk.position

    for _ in range(2):
        with pytest.raises(StoreBusy, match=why):
            opened.store.check_space()

    assert (opened.store.end, opened.disk.position) == (end, position)
    opened.tick(10_000)
    opened.store.check_space()
    opened.send(b"next")
    assert opened.bodies() == [bytes(size), b"next"]


def test_the_capacity_is_not_queried_during_a_turn() -> None:
    opened = OpenStore.small()
    opened.stage(b"staged")

    with pytest.raises(WrongState, match="in progress"):
        opened.store.check_space()

    opened.store.end_turn()
    assert opened.bodies() == [b"staged"]


# the transient pool


def test_with_a_pool_messages_are_readable_after_their_write() -> None:
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


def test_an_empty_pool_refuses_until_bytes_are_written() -> None:
    opened = OpenStore.small(transient_pool=True)
    opened.send(bytes(3000))

    with pytest.raises(StoreBusy, match="pool"):
        opened.send(bytes(1000))
    opened.run_workers("pool")

    opened.send(bytes(900))
    opened.run_workers()
    assert len(opened.bodies()) == 2


def test_closing_writes_the_bytes_of_the_pool() -> None:
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
    assert opened.bodies() == [b"one"], "reads still work"
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
    assert caplog.text.count("disk error, retrying") == 1, "told once"
    fault.heal()
    opened.tick(1000)

    opened.send(b"accepted")
    assert opened.crash("everything").bodies() == [*numbered(3), b"accepted"]


def test_a_resume_point_or_checkpoint_that_cannot_be_written_refuses_no_message() -> None:
    opened = OpenStore.small(resume_interval_ms=1000)
    opened.disk.fail("write", errno.ENOSPC, "*/config/*", times=None)
    opened.disk.fail("write", errno.ENOSPC, "*/checkpoint", times=None)
    opened.send(b"one")

    opened.settle(40)

    opened.send(b"two")
    assert opened.bodies() == [b"one", b"two"]


def test_a_turn_with_records_outside_queues_is_synced_like_others() -> None:
    opened = OpenStore.small()
    opened.send(b"half", sys_flag=SysFlag.TRANSACTION_PREPARED)

    opened.settle(20)

    assert opened.store.synced == opened.store.end > 0
