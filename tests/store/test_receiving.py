"""The store of a slave: the bytes of a master's log in pieces of any size become the same log, and the same queues."""

from random import Random

import pytest
from tests.store.kit import ROOT, messages_in
from tests.store.open_store import OpenStore

from pocketmq.codes import SysFlag
from pocketmq.errors import ProtocolError, StoreError, SystemBusy
from pocketmq.model.names import parse_topic
from pocketmq.store.layout import KnownSizes, find_layout
from pocketmq.store.receiving import SlaveStore
from pocketmq.store.tools.findings import Finding
from pocketmq.store.tools.verify import Verification
from pocketmq.testing import FaultyFiles

FILE = 4096
KNOWN = KnownSizes(log_file_bytes=FILE, queue_file_entries=10, index_slots=20, index_entries=50)
HOST = bytes((10, 0, 0, 1, 0, 0, 1, 2))


class OpenSlave(OpenStore):
    make_store = SlaveStore
    store: SlaveStore


def put(master: OpenStore, body: bytes = b"body", topic: str = "T", queue_id: int = 0, sys_flag: int = 0) -> None:
    store = master.store
    store.stage(store.queue(parse_topic(topic), queue_id), body, b"KEYS\x01k\x02TAGS\x01a", 0, sys_flag, 1, HOST)
    store.end_turn()
    master.run_workers()


def log_of(opened: OpenStore, start: int = 0) -> bytes:
    found = bytearray()
    while part := opened.store.log_bytes(start + len(found), 1 << 20):
        found += part
    return bytes(found)


def follow(slave: OpenSlave, data: bytes, rng: Random | None = None) -> None:
    """Receive these bytes in pieces."""
    rng = rng or Random(1)
    while data:
        size = rng.choice((1, 7, 100, 4096))
        piece, data = data[:size], data[size:]
        received = slave.store.receive(piece)
        while not received:
            slave.tick(10)
            received = slave.store.receive(b"")
        slave.run_workers()


def again_of(opened: OpenStore) -> OpenSlave:
    assert isinstance(opened, OpenSlave)
    return opened


def filled(count: int = 60) -> OpenStore:
    master = OpenStore.small()
    for number in range(count):
        put(master, bytes(number * 7 % 400), queue_id=number % 3)
        if number % 5 == 0:
            put(master, b"half", "Half", sys_flag=SysFlag.TRANSACTION_PREPARED)
    return master


def queues_of(opened: OpenStore) -> dict[int, list[tuple[bytes, bytes]]]:
    return {
        queue_id: [(one.head, one.body) for one in messages_in(opened.store, "T", queue_id)] for queue_id in range(3)
    }


@pytest.mark.parametrize("seed", range(5))
def test_a_slave_has_the_same_log_and_queues_across_files(seed: int) -> None:
    master, slave = filled(), OpenSlave.small()

    follow(slave, log_of(master), Random(seed))

    assert log_of(slave) == log_of(master)
    assert len(log_of(slave)) > 4 * FILE
    assert queues_of(slave) == queues_of(master)
    assert slave.store.received_to == master.store.end


@pytest.mark.parametrize("clean", [True, False])
def test_a_slave_continues_after_a_restart_in_the_middle_of_a_record(clean: bool) -> None:
    master, slave = filled(), OpenSlave.small()
    data = log_of(master)
    follow(slave, data[:9_999])
    assert slave.store.received_to == 9_999
    slave.settle()

    again = again_of(slave.reopen() if clean else slave.crash("nothing"))

    end = again.store.received_to
    assert 0 < end <= 9_999
    assert log_of(again) == data[:end]
    follow(again, data[end:])
    assert log_of(again) == data
    assert queues_of(again) == queues_of(master)


@pytest.mark.parametrize("crashed", [False, True])
def test_an_empty_slave_begins_with_the_newest_file(crashed: bool) -> None:
    master, slave = filled(), OpenSlave.small()
    start = master.store.end - master.store.end % FILE

    slave.store.begin_at(start)
    slave.run_workers()
    assert slave.store.received_to == start
    if crashed:
        slave = again_of(slave.crash())
        if slave.store.begins:
            slave.store.begin_at(start)
            slave.run_workers()
    follow(slave, log_of(master, start))

    assert log_of(slave, start) == log_of(master, start)
    assert slave.store.facts.log_start == start
    kept = {
        key: [one for one in rows if int.from_bytes(one[0][28:36], "big") >= start]
        for key, rows in queues_of(master).items()
    }
    assert queues_of(slave) == kept
    again = again_of(slave.reopen())
    assert queues_of(again) == kept
    put(master, b"later")
    follow(again, log_of(master, again.store.received_to))
    assert messages_in(again.store, "T", 0)[-1].body == b"later"


def test_the_first_file_must_begin_where_files_begin() -> None:
    slave = OpenSlave.small()
    with pytest.raises(ProtocolError, match="mappedFileSizeCommitLog must be the same on both"):
        slave.store.begin_at(FILE + 1)


def test_a_topic_that_was_deleted_and_created_again_begins_at_0() -> None:
    master, slave = OpenStore.small(), OpenSlave.small()
    for number in range(12):
        put(master, bytes(number))
    master.store.delete_topic("T")
    put(master, b"new")
    put(master, b"newer")

    follow(slave, log_of(master))

    assert slave.bodies() == [b"new", b"newer"]
    assert slave.reopen().bodies() == [b"new", b"newer"]


def test_the_store_time_is_that_of_the_master() -> None:
    master, slave = OpenStore.small(), OpenSlave.small()
    slave.clock.advance_ms(3_600_000)
    put(master)
    follow(slave, log_of(master))
    slave.settle()

    assert slave.store._parts.last_store_ms == master.store._parts.last_store_ms
    assert slave.store._parts.checkpoint.physic_ms == master.store._parts.last_store_ms


@pytest.mark.parametrize("at", [0, 4, 30, 95])
def test_bytes_that_are_no_log_are_rejected_and_nothing_of_them_is_stored(at: int) -> None:
    master, slave = OpenStore.small(), OpenSlave.small()
    put(master)
    put(master)
    data = bytearray(log_of(master))
    size = len(data) // 2
    follow(slave, bytes(data[:size]))
    data[size + at] ^= 0x55

    with pytest.raises(ProtocolError):
        slave.store.receive(bytes(data[size:]))

    assert slave.store.received_to == size
    assert log_of(slave) == bytes(data[:size])


def test_a_slave_accepts_no_messages_of_its_own() -> None:
    slave = OpenSlave.small()
    with pytest.raises(SystemBusy, match=r"\[REJECTREQUEST\]system busy, start flow control for a while"):
        slave.send(b"mine")
    assert slave.store.end == 0


def test_a_write_that_fails_is_received_again() -> None:
    master = OpenStore.small()
    put(master)
    data = log_of(master)
    disk = FaultyFiles()
    slave = OpenSlave.small(disk)
    disk.fail("write", path="*commitlog*", times=1)

    with pytest.raises(StoreError):
        slave.store.receive(data)
    assert slave.store.received_to == 0
    slave.tick(10)
    follow(slave, data)

    assert log_of(slave) == data
    assert slave.bodies() == [b"body"]


def test_the_copied_store_has_no_damage() -> None:
    master, slave = filled(), OpenSlave.small()
    follow(slave, log_of(master))
    slave.store.close()

    events = Verification(slave.disk, find_layout(slave.disk, ROOT, KNOWN)).run()
    assert [event for event in events if isinstance(event, Finding)] == []
