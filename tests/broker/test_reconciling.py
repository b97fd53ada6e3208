"""After a start the tables match the log: topics with messages are known, and no offset is beyond the end."""

import asyncio
import logging
from pathlib import Path

import pytest
from tests.broker.lives import Lives, bodies, in_virtual_time, lose_what_was_consumed, make_topic
from tests.store.open_store import OpenStore

from pocketmq.broker.delivery.timer_progress import Frontier, Step, TimerProgress
from pocketmq.broker.groups.offsets import OffsetTable
from pocketmq.broker.snapshots import adopt_topics, lower_offsets
from pocketmq.broker.topics import TopicTable
from pocketmq.protocol.bodies.topics import DelayOffsets

NOW = 1_700_000_000_000


def topics() -> TopicTable:
    return TopicTable("DefaultCluster", "broker-a", started_ms=NOW)


@pytest.mark.parametrize(
    ("topic", "queue_id", "queues"),
    [
        ("T", 0, 4),
        ("T", 3, 4),
        ("T", 4, 5),
        ("%RETRY%G", 0, 1),
        ("%DLQ%G", 0, 1),
        ("%RETRY%G", 1, 2),
        ("TRANS_CHECK_MAX_TIME_TOPIC", 0, 1),
    ],
)
def test_a_topic_with_messages_and_no_row_gets_a_row(topic: str, queue_id: int, queues: int) -> None:
    opened, table = OpenStore.small(), topics()
    opened.send(topic=topic, queue_id=queue_id)
    version = table.version

    adopted = adopt_topics(table, opened.store, NOW + 1)

    row = table.require(topic)
    assert adopted == [topic]
    assert (row.read_queue_nums, row.write_queue_nums, row.perm) == (queues, queues, 6)
    assert table.version != version, "it must be saved and registered"


def test_known_topics_light_topics_and_empty_queues_get_no_new_row() -> None:
    opened, table = OpenStore.small(), topics()
    opened.send(topic="SELF_TEST_TOPIC", queue_id=0)
    opened.send(topic="%LMQ%light", queue_id=0)
    opened.queue("Empty", 0)
    before = table.snapshot()

    adopted = adopt_topics(table, opened.store, NOW + 1)

    assert adopted == []
    assert table.snapshot() == before


def test_many_created_topics_are_logged_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    opened = OpenStore.small()
    for number in range(12):
        opened.send(topic=f"T{number}")

    with caplog.at_level(logging.WARNING, "pocketmq.broker"):
        adopt_topics(topics(), opened.store, NOW)

    (told,) = [record.message for record in caplog.records if record.name == "pocketmq.broker"]
    assert told.endswith("T9 and 2 more")


def test_an_offset_beyond_the_end_of_a_queue_is_lowered_to_the_end(caplog: pytest.LogCaptureFixture) -> None:
    opened, offsets = OpenStore.small(), OffsetTable()
    opened.send(b"one", b"two", b"three")
    for group, offset in (("behind", 1), ("level", 3), ("ahead", 4)):
        offsets.commit(group, "T", 0, offset)
    offsets.commit("ahead", "Gone", 2, 7)

    lowered = lower_offsets(offsets, opened.store, 0, clean=True)

    assert lowered == ["T@ahead", "Gone@ahead"]
    assert [offsets.stored(group, "T", 0) for group in ("behind", "level", "ahead")] == [1, 3, 3]
    assert offsets.stored("ahead", "Gone", 2) == 0
    assert "because they were beyond it: T@ahead, Gone@ahead" in caplog.text


def test_consistent_tables_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    opened, offsets = OpenStore.small(), OffsetTable()
    opened.send(topic="SELF_TEST_TOPIC")
    offsets.commit("G", "SELF_TEST_TOPIC", 0, 1)

    assert adopt_topics(topics(), opened.store, NOW) == []
    assert lower_offsets(offsets, opened.store, 0, clean=True) == []
    assert [record for record in caplog.records if record.name == "pocketmq.broker"] == []


# before the next crash


def test_a_lowered_offset_survives_an_immediate_kill() -> None:
    async def main(lives: Lives) -> None:
        await lose_what_was_consumed(lives)
        async with lives.broker():
            client = await lives.client()
            for number in range(20):
                await client.sent(b"new %d" % number)
            lives.crash()

        async with lives.broker() as broker:
            client = await lives.client()
            assert len(bodies(broker)) == 21
            assert (await client.offset()).ext == {"offset": "1"}

    in_virtual_time(main)


@pytest.mark.parametrize("wish", [{"DELAY": "3"}, {"TIMER_DELAY_SEC": "10"}], ids=["delayed", "timed"])
def test_progress_of_a_deleted_log_is_not_used_after_an_immediate_kill(wish: dict[str, str]) -> None:
    async def main(lives: Lives) -> None:
        done = TimerProgress.of(1_000, 1_000, Frontier((Step(0, 2**60, 0),)))
        with lives.disk.open(_table(lives, "delayOffset.json"), create=True) as file:
            file.write_at(0, DelayOffsets(offset_table={3: 1_000}).encode())
        with lives.disk.open(_table(lives, "timers.json"), create=True) as file:
            file.write_at(0, done.json())
        async with lives.broker() as broker:
            make_topic(broker)
            client = await lives.client()
            await client.sent(b"waits", properties=wish)
            for _ in range(20):
                await client.sent(b"other", queue_id=1)
            lives.crash()

        async with lives.broker() as broker:
            await asyncio.sleep(12)
            assert bodies(broker) == [b"waits"]

    in_virtual_time(main)


def _table(lives: Lives, name: str) -> Path:
    folder = lives.settings.store.folder / "config"
    lives.disk.make_dir(folder)
    return folder / name
