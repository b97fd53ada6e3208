"""Snapshots: saved tables are loaded, failed saves are repeated, and no caller waits for the disk without need."""

import asyncio
import errno
import logging
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest
from tests.golden import GOLDEN, needs_golden

from pocketmq.broker.groups.groups import GroupTable
from pocketmq.broker.groups.offsets import OffsetTable
from pocketmq.broker.snapshots import Snapshots
from pocketmq.broker.topics import TopicTable
from pocketmq.errors import StoreDamaged, StoreError, StoreFull, WrongState
from pocketmq.files import DiskFiles, Files
from pocketmq.protocol.bodies.clients import SubscriptionGroupConfig
from pocketmq.protocol.bodies.topics import TopicConfig
from pocketmq.store.tables import Tables, read_table
from pocketmq.testing import FakeClock, FaultyFiles, VirtualLoop, run

NOW = 1_700_000_000_000
CONFIG = Path("/store/config")


class Progress:
    """A table of one number, as other parts of a broker have them."""

    def __init__(self) -> None:
        self.number = 0
        self.is_changed = False

    def snapshot_json(self, now_ms: int) -> bytes:
        self.is_changed = False
        return b'{"number":%d,"saved":%d}' % (self.number, now_ms)


class Broker:
    """The tables of a broker, and the disk that they are on."""

    def __init__(self, disk: Files | None = None, folder: Path = CONFIG, stop_s: float = 10.0) -> None:
        self.disk = disk or FaultyFiles()
        self.topics = TopicTable("DefaultCluster", "broker-a", started_ms=NOW)
        self.groups = GroupTable(started_ms=NOW)
        self.offsets = OffsetTable(started_ms=NOW)
        self.tables = Tables(self.disk, folder)
        self.snapshots = Snapshots(self.tables, FakeClock(), self.topics, self.groups, self.offsets, stop_s=stop_s)

    @property
    def faulty(self) -> FaultyFiles:
        assert isinstance(self.disk, FaultyFiles)
        return self.disk

    def create(self, *topics: str) -> None:
        self.topics.put([TopicConfig(topic, 2, 2) for topic in topics], NOW + 1)

    def again(self, disk: Files | None = None) -> "Broker":
        """The next run of the broker, on the same disk or on another."""
        broker = Broker(disk or self.disk)
        broker.snapshots.load()
        return broker

    def saves(self, file_name: str) -> int:
        """How often a file was replaced."""
        target = str(CONFIG / file_name)
        return sum(one.target == target for one in self.faulty.operations if one.kind == "replace")


def virtual_loop() -> VirtualLoop:
    return cast("VirtualLoop", asyncio.get_running_loop())


def test_saved_tables_are_restored_after_a_restart() -> None:
    async def main() -> None:
        broker = Broker()
        broker.create("T")
        broker.groups.put([SubscriptionGroupConfig("g", retry_max_times=3)], NOW + 2)
        broker.groups.set_readable("g", "T", False, NOW + 3)
        broker.offsets.commit("g", "T", 1, 42)

        await broker.snapshots.save_changed()

        again = broker.again(broker.faulty.crash(Random(1), survives="nothing"))
        assert again.topics.snapshot() == broker.topics.snapshot()
        assert again.groups.snapshot() == broker.groups.snapshot()
        assert again.offsets.snapshot() == broker.offsets.snapshot()

    run(main())


def test_a_new_broker_saves_its_tables_and_a_loaded_one_has_no_changes() -> None:
    async def main() -> None:
        broker = Broker()
        broker.snapshots.load()

        await broker.snapshots.save_changed()
        again = broker.again()
        await again.snapshots.save_changed()

        assert broker.saves("topics.json") == 1
        assert broker.saves("subscriptionGroup.json") == 1
        assert broker.saves("consumerOffset.json") == 0

    run(main())


def test_the_cached_file_of_groups_equals_a_new_encoding_after_any_change() -> None:
    async def main() -> None:
        broker = Broker()
        groups = broker.groups
        groups.put([SubscriptionGroupConfig(name) for name in ("b", "a", "c")], NOW + 1)
        changes = (
            lambda: groups.put([SubscriptionGroupConfig("b", retry_max_times=3)], NOW + 2),
            lambda: groups.set_readable("a", "T", False, NOW + 3),
            lambda: groups.delete("c", NOW + 4),
            lambda: groups.put([SubscriptionGroupConfig("c", retry_queue_nums=2)], NOW + 5),
        )

        for change in (lambda: None, *changes):
            change()
            await broker.snapshots.save_changed()
            assert broker.disk.read(CONFIG / "subscriptionGroup.json") == groups.snapshot().encode()

    run(main())


def test_only_changed_tables_are_saved() -> None:
    async def main() -> None:
        broker = Broker()
        await broker.snapshots.save_changed()

        broker.offsets.commit("g", "T", 0, 1)
        await broker.snapshots.save_changed()
        await broker.snapshots.save_changed()

        saves = [broker.saves(name) for name in ("consumerOffset.json", "topics.json", "subscriptionGroup.json")]
        assert saves == [1, 1, 1]

    run(main())


@pytest.mark.parametrize("kind", ["topics", "groups", "offsets"])
def test_changes_acknowledged_to_an_administrator_survive_a_power_loss(kind: str) -> None:
    async def main() -> None:
        broker = Broker()
        broker.create("T")
        broker.groups.put([SubscriptionGroupConfig("g")], NOW + 1)
        broker.offsets.commit("g", "T", 0, 7)

        await getattr(broker.snapshots, f"save_{kind}")()

        again = broker.again(broker.faulty.crash(Random(1), survives="nothing"))
        found = {
            "topics": "T" in again.topics,
            "groups": "g" in again.groups,
            "offsets": bool(again.offsets.groups_of("T")),
        }
        assert found == {name: name == kind for name in found}

    run(main())


def test_waiting_changes_share_one_write() -> None:
    async def main() -> None:
        broker = Broker()
        virtual_loop().count_stalled(broker.faulty.stalled)
        with broker.faulty.stall("sync", "*topics.json.tmp") as stall:
            first = asyncio.create_task(broker.snapshots.save_topics())
            await asyncio.sleep(0.1)
            assert stall.waiting == 1
            later = []
            for number in range(100):
                broker.create(f"T{number}")
                later.append(asyncio.create_task(broker.snapshots.save_topics()))
            await asyncio.sleep(0.1)
            assert not any(task.done() for task in (first, *later))

        await asyncio.gather(first, *later)

        assert broker.saves("topics.json") == 2
        assert "T99" in broker.again().topics

    run(main())


def test_the_event_loop_continues_while_the_disk_is_stalled() -> None:
    async def main() -> None:
        broker = Broker()
        virtual_loop().count_stalled(broker.faulty.stalled)
        with broker.faulty.stall("sync", "*.tmp"):
            saving = asyncio.create_task(broker.snapshots.save_changed())
            await asyncio.sleep(60)
            assert not saving.done()
        await saving

    run(main())


def test_a_disk_error_is_returned_to_the_administrator_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        broker = Broker()
        broker.create("T")
        with caplog.at_level(logging.INFO, "pocketmq.broker"), broker.faulty.fail("sync", errno.ENOSPC, times=None):
            outcomes = await asyncio.gather(
                broker.snapshots.save_topics(), broker.snapshots.save_topics(), return_exceptions=True
            )
            await broker.snapshots.save_changed()
            assert [type(outcome) for outcome in outcomes] == [StoreFull, StoreFull]
            assert outcomes[0] is not outcomes[1]
            assert "T" in broker.topics

        told = [record.message for record in caplog.records if "topics.json" in record.message]
        assert len(told) == 1
        assert "No space left" in told[0]

        caplog.clear()
        with caplog.at_level(logging.INFO, "pocketmq.broker"):
            await broker.snapshots.save_changed()
        assert "Saved topics.json again" in caplog.text
        assert "T" in broker.again().topics

    run(main())


def test_offsets_after_a_failed_save_are_saved_the_next_time() -> None:
    async def main() -> None:
        broker = Broker()
        broker.offsets.commit("g", "T", 0, 5)
        with broker.faulty.fail("write", path="*consumerOffset*"):
            await broker.snapshots.save_changed()
        assert not broker.offsets.is_changed

        await broker.snapshots.save_changed()

        assert broker.again().offsets.stored("g", "T", 0) == 5

    run(main())


def test_offsets_changed_after_a_failed_save_are_saved_with_the_failed_ones() -> None:
    async def main() -> None:
        broker = Broker()
        broker.offsets.commit("g", "T", 0, 5)
        with broker.faulty.fail("write", path="*consumerOffset*"), pytest.raises(StoreError):
            await broker.snapshots.save_offsets()
        broker.offsets.commit("g", "T", 1, 6)

        await broker.snapshots.save_offsets()

        again = broker.again().offsets
        assert (again.stored("g", "T", 0), again.stored("g", "T", 1)) == (5, 6)

    run(main())


def test_a_failing_table_does_not_prevent_the_others() -> None:
    async def main() -> None:
        broker = Broker()
        broker.create("T")
        broker.groups.put([SubscriptionGroupConfig("g")], NOW + 1)
        with broker.faulty.fail("open", path="*topics.json.tmp", times=None):
            refused, saved = await asyncio.gather(
                broker.snapshots.save_topics(), broker.snapshots.save_groups(), return_exceptions=True
            )

        assert isinstance(refused, StoreError)
        assert saved is None
        assert "g" in broker.again().groups

    run(main())


def test_offsets_of_a_deleted_topic_are_removed_before_the_topic() -> None:
    async def main() -> None:
        broker = Broker()
        broker.create("T")
        broker.offsets.commit("g", "T", 0, 5)
        await broker.snapshots.save_changed()
        before = broker.faulty.position
        broker.topics.delete("T", NOW + 2)
        broker.offsets.delete_topic("T")

        await asyncio.gather(broker.snapshots.save_topics(), broker.snapshots.save_offsets())

        for point in broker.faulty.crash_points(seed=7, states=3):
            if point.position > before:
                again = broker.again(point.files)
                assert "T" in again.topics or not again.offsets.groups_of("T")

    run(main())


def test_a_caller_that_disconnects_does_not_stop_the_save() -> None:
    async def main() -> None:
        broker = Broker()
        virtual_loop().count_stalled(broker.faulty.stalled)
        broker.create("T")
        with broker.faulty.stall("sync", "*.tmp"):
            impatient = asyncio.create_task(broker.snapshots.save_topics())
            patient = asyncio.create_task(broker.snapshots.save_topics())
            await asyncio.sleep(0.1)
            impatient.cancel()
            await asyncio.sleep(0.1)
            assert impatient.cancelled()
        await patient

        assert "T" in broker.again().topics

    run(main())


def test_topics_and_groups_created_by_use_are_saved_soon() -> None:
    async def main() -> None:
        broker = Broker()
        for number in range(1000):
            broker.create(f"T{number}")
            broker.snapshots.save_soon()
        broker.groups.ensure("g", NOW + 1)
        broker.snapshots.save_soon()

        await asyncio.sleep(0.1)

        again = broker.again()
        assert "T999" in again.topics
        assert "g" in again.groups
        assert broker.saves("topics.json") <= 2

    run(main())


def test_large_tables_are_saved_less_often() -> None:
    async def main() -> None:
        broker = Broker()
        broker.create(*(f"T{number}" for number in range(10_000)))
        for number in range(100):
            broker.create(f"U{number}")
            broker.snapshots.save_soon()
            await asyncio.sleep(0.01)
        assert broker.saves("topics.json") <= 4

        await asyncio.sleep(1)
        assert "U99" in broker.again().topics
        await broker.snapshots.stop()

    run(main())


def test_a_requested_save_of_a_large_table_is_not_delayed() -> None:
    async def main() -> None:
        broker = Broker()
        broker.create(*(f"T{number}" for number in range(10_000)))
        await broker.snapshots.save_topics()
        broker.create("U")
        broker.snapshots.save_soon()
        before = asyncio.get_running_loop().time()

        await broker.snapshots.save_topics()

        assert asyncio.get_running_loop().time() - before < 0.1
        assert "U" in broker.again().topics
        await broker.snapshots.stop()

    run(main())


def test_additional_tables_are_saved_as_well() -> None:
    async def main() -> None:
        broker, progress = Broker(), Progress()
        broker.snapshots.add("progress.json", progress)
        progress.number, progress.is_changed = 3, True

        await broker.snapshots.save_changed()
        assert broker.saves("progress.json") == 0
        await broker.snapshots.save_parts()
        await broker.snapshots.save_parts()

        assert broker.saves("progress.json") == 1
        assert broker.tables.load("progress.json", read_table) == {"number": 3, "saved": FakeClock().now_ms()}

    run(main())


def test_stopping_saves_all_tables() -> None:
    async def main() -> None:
        broker, progress = Broker(), Progress()
        broker.snapshots.add("progress.json", progress)
        broker.create("T")
        broker.offsets.commit("g", "T", 0, 9)
        progress.is_changed = True

        await broker.snapshots.stop()
        await broker.snapshots.stop()

        again = broker.again()
        assert "T" in again.topics
        assert again.offsets.stored("g", "T", 0) == 9
        assert broker.saves("progress.json") == 1
        broker.snapshots.save_soon()
        with pytest.raises(WrongState):
            await broker.snapshots.save_topics()

    run(main())


def test_stopping_waits_for_a_hanging_disk_up_to_a_limit(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        broker = Broker(stop_s=10)
        virtual_loop().count_stalled(broker.faulty.stalled)
        await broker.snapshots.save_changed()
        broker.create("T")
        broker.offsets.commit("g", "T", 0, 9)
        started = asyncio.get_running_loop().time()
        with broker.faulty.stall("sync", "*.tmp"):
            await broker.snapshots.stop()
            assert asyncio.get_running_loop().time() - started == 10

        assert "without saving the last changes of consumerOffset.json, topics.json" in caplog.text

    run(main())


def test_stopping_on_a_broken_disk_logs_the_lost_tables(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        broker = Broker()
        await broker.snapshots.save_changed()
        broker.create("T")
        with broker.faulty.fail("sync", times=None):
            await broker.snapshots.stop()

        assert "without saving the last changes of topics.json" in caplog.text

    run(main())


def test_an_invalid_own_table_is_logged_as_an_internal_error(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Progress):
        def snapshot_json(self, now_ms: int) -> bytes:
            raise ZeroDivisionError

    async def main() -> None:
        broker, broken = Broker(), Broken()
        broken.is_changed = True
        broker.snapshots.add("broken.json", broken)

        with pytest.raises(ZeroDivisionError):
            await broker.snapshots.save_parts()
        await broker.snapshots.save_changed()

        assert "Cannot save tables" in caplog.text
        assert broker.saves("topics.json") == 1

    run(main())


def test_a_damaged_table_without_a_valid_copy_stops_the_start() -> None:
    disk = FaultyFiles()
    disk.make_dir(CONFIG)
    with disk.open(CONFIG / "topics.json", create=True) as file:
        file.write_at(0, b'{"topicConfigTable":{"T":{"perm":6')

    with pytest.raises(StoreDamaged, match=r"topics\.json is damaged"):
        Broker(disk).snapshots.load()


def test_invalid_keys_are_logged_and_ignored(caplog: pytest.LogCaptureFixture) -> None:
    disk = FaultyFiles()
    disk.make_dir(CONFIG)
    with disk.open(CONFIG / "consumerOffset.json", create=True) as file:
        file.write_at(0, b'{"offsetTable":{"T@g":{0:4},"strange":{0:1}}}')
    broker = Broker(disk)

    broker.snapshots.load()

    assert broker.offsets.stored("g", "T", 0) == 4
    assert "strange" in caplog.text


@needs_golden
@pytest.mark.parametrize("version", ["5.3.3", "4.9.7"])
@pytest.mark.parametrize("state", ["clean", "live"])
def test_tables_of_an_apache_broker_are_read_and_kept(version: str, state: str, tmp_path: Path) -> None:
    async def main() -> None:
        captured = Path(GOLDEN, "store", version, state, "config")
        broker = Broker(DiskFiles(), captured)
        broker.snapshots.load()
        ours = Broker(DiskFiles(), tmp_path)
        ours.topics.restore(broker.topics.snapshot())
        ours.groups.restore(broker.groups.snapshot())
        for key, queues in broker.offsets.snapshot().offset_table.items():
            topic, group = key.split("@")
            for queue_id, offset in queues.items():
                ours.offsets.commit(group, topic, queue_id, offset)

        await ours.snapshots.stop()

        for name, table in (
            ("topics.json", "topicConfigTable"),
            ("subscriptionGroup.json", "subscriptionGroupTable"),
            ("consumerOffset.json", "offsetTable"),
        ):
            theirs = _without_dropped(_rows(captured / name, table))
            assert theirs.items() <= _without_dropped(_rows(tmp_path / name, table)).items()
            assert theirs

    run(main())


def _rows(path: Path, table: str) -> dict[str, Any]:
    rows: dict[str, Any] = read_table(path.read_bytes())[table]
    return rows


def _without_dropped(rows: dict[str, Any]) -> dict[str, Any]:
    """Queue ids as texts; and only the settings that release 4.9 also has: newer ones have their defaults."""
    return {
        key: {str(name): value for name, value in row.items() if str(name) not in _NEW_IN_5}
        for key, row in rows.items()
    }


_NEW_IN_5 = {"attributes", "consumeMessageOrderly", "consumeTimeoutMinute", "groupRetryPolicy", "groupSysFlag"}
