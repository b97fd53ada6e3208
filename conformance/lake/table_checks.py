"""Archives into tables of Delta and Iceberg: each message once, whatever happens to the checkpoint, the driver and other writers.

LAKE_FORMAT=delta python -m pytest conformance/lake/table_checks.py

Spark gets the library of the format from Maven Central, once, by the settings that `pocketmq pipeline archive` makes.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.pipelines.sent_kit import FailsOnce, bodies, rows_in
from tests.spark.broker_kit import Broker, fill, new_topic

from pocketmq import Server
from pocketmq.clock import SystemClock
from pocketmq.errors import InvalidSetting, NotFound, PipelineFailed
from pocketmq.model import MessageQueue, QueueRange
from pocketmq.pipelines.archive import sinks
from pocketmq.pipelines.archive.contents import ABSENT, NOT_READ, Missing
from pocketmq.pipelines.archive.job import run_archive
from pocketmq.pipelines.archive.reading import ReadTable
from pocketmq.pipelines.archive.settings import ArchiveSettings, check_archive
from pocketmq.pipelines.archive.table import Target, add_batch, compact_table, expire_table
from pocketmq.pipelines.core.running import Run
from pocketmq.pipelines.core.sessions import session
from pocketmq.pipelines.jobs import replay
from pocketmq.pipelines.jobs.backfill import BackfillSettings, run_backfill
from pocketmq.pipelines.jobs.replay import ReplaySettings, run_replay
from pocketmq.pipelines.jobs.resending import send_piece

FORMAT = os.environ.get("LAKE_FORMAT", "delta")
ROOT = Path(__file__).parents[2]
PATIENCE_S = 600.0
PATIENT = {"spark.python.authenticate.socketTimeout": "300s"}
"""Spark gives a Python worker 15 s to start, which is short on a machine with other work."""
SMALL = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.databricks.delta.snapshotPartitions": "1",
}
"""For tables of a few rows."""
DAY_MS = 24 * 3_600_000


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all tables: a session has one catalog."""
    return tmp_path_factory.mktemp("lakes")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Server() as server:
        yield Broker.of(server)


@pytest.fixture(scope="module")
def spark(lakes: Path) -> Iterator[SparkSession]:
    told = ArchiveSettings(topics=["any"], lake=str(lakes / "any"), format=FORMAT)
    with session("checks", "local[2]", settings={**told.session, **PATIENT}, is_quiet=True) as spark:
        yield spark


@pytest.fixture
def told(broker: Broker, lakes: Path) -> ArchiveSettings:
    """An archive of a new topic with twelve messages into a new table."""
    topic = new_topic(broker)
    fill(broker, topic, bodies(0, 12)[::2])
    fill(broker, topic, bodies(0, 12)[1::2], number=1)
    return settings(broker.name_server, topic, lakes / topic.replace("-", "_"))


def settings(name_server: str, topic: str, lake: Path, **more: Any) -> ArchiveSettings:
    return ArchiveSettings(namesrv=name_server, topics=[topic], lake=str(lake), format=FORMAT, max_messages=4, **more)


def target(told: ArchiveSettings) -> Target:
    return told.sink.target(["topic", "day"])


def values(spark: SparkSession, told: ArchiveSettings) -> Counter[str]:
    table = target(told)
    name = table.name or f"delta.`{table.path}`"
    spark.sql(f"REFRESH TABLE {name}")
    return Counter(row[0] for row in spark.table(name).selectExpr("CAST(value AS string)").collect())


def once(start: int, end: int) -> Counter[str]:
    return Counter(bodies(start, end))


def test_an_archive_writes_each_message_once_and_continues(
    spark: SparkSession, broker: Broker, told: ArchiveSettings
) -> None:
    check_archive(told)

    run_archive(spark, told, Run())
    fill(broker, told.topics[0], bodies(12, 15))
    run_archive(spark, told, Run())

    assert values(spark, told) == once(0, 15)
    table = target(told).opened(spark)
    assert table is not None
    record = table.state().record
    assert record.ranges == [
        QueueRange(MessageQueue(told.topics[0], broker.name, number), 0, end) for number, end in ((0, 9), (1, 6))
    ]
    assert sum(len(one) for commit in table.commits() if commit.record for one in commit.record.added_ranges) == 15


def test_a_deleted_checkpoint_adds_no_row_twice(spark: SparkSession, broker: Broker, told: ArchiveSettings) -> None:
    run_archive(spark, told, Run())
    fill(broker, told.topics[0], bodies(12, 15))
    shutil.rmtree(told.checkpoint_folder)

    summary = run_archive(spark, told, Run())

    assert values(spark, told) == once(0, 15)
    assert summary.messages == 3, "what the table has is not read again"


def test_a_batch_that_failed_behind_its_commit_is_not_written_again(
    spark: SparkSession, told: ArchiveSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sinks, "add_batch", FailsOnce(add_batch, 1))
    with pytest.raises(Exception, match="the machine is gone"):
        run_archive(spark, told, Run())
    found = values(spark, told)
    assert set(found.values()) == {1}

    run_archive(spark, told, Run())

    assert values(spark, told) == once(0, 12)


def test_a_driver_that_was_killed_behind_a_commit_is_continued(
    spark: SparkSession, broker: Broker, told: ArchiveSettings
) -> None:
    place = (broker.name_server, told.topics[0], told.lake)
    killed = subprocess.run(
        [sys.executable, "-m", "conformance.lake.killed_archive", *place],
        cwd=ROOT,
        env={**os.environ, "LAKE_FORMAT": FORMAT},
        capture_output=True,
        start_new_session=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()[-2000:]
    found = values(spark, told)
    assert set(found.values()) == {1}

    run_archive(spark, told, Run())

    assert values(spark, told) == once(0, 12)


def test_two_archives_into_one_table_write_each_message_once(
    spark: SparkSession, broker: Broker, told: ArchiveSettings
) -> None:
    failed: list[BaseException] = []

    def archive(number: int) -> None:
        try:
            checkpoint = f"{told.lake}_checkpoint_{number}"
            run_archive(
                spark.newSession(),
                settings(broker.name_server, told.topics[0], Path(told.lake), checkpoint=checkpoint),
                Run(),
            )
        except BaseException as error:
            failed.append(error)

    run_archive(spark, told, Run())
    fill(broker, told.topics[0], bodies(12, 20))
    writers = [Thread(target=archive, args=(number,)) for number in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(PATIENCE_S)

    assert not failed
    assert values(spark, told) == once(0, 20)


def test_files_and_commits_are_found_by_offset_key_and_time(
    spark: SparkSession, broker: Broker, told: ArchiveSettings
) -> None:
    topic = told.topics[0]
    run_archive(spark, told, Run())
    fill(broker, topic, bodies(12, 15))
    run_archive(spark, told, Run())
    table = ReadTable(spark, target(told))
    newest, oldest = table.commits()

    (last,) = table.at_offset(topic, 7, broker=broker.name, queue_id=0)
    (first,) = table.with_key(topic, "3")
    at_once = table.at_time(topic, last["first_store_ms"])

    assert (last["start"], last["end"], last["commit"]) == (7, 8, str(newest.id))
    assert (first["queue"], first["start"], first["commit"]) == (1, 1, str(oldest.id))
    assert last["file"] in [row["file"] for row in at_once]
    assert table.with_key(topic, "no such key") == table.at_offset(topic, 99) == []


def test_what_is_missing_is_found(spark: SparkSession, broker: Broker, told: ArchiveSettings) -> None:
    run_archive(spark, told, Run())
    place = MessageQueue(told.topics[0], broker.name, 0)
    assert ReadTable(spark, target(told)).missing([QueueRange(place, 0, 6)]) == []

    spark.sql(f"DELETE FROM {target(told).sql_name} WHERE queueId = 0 AND queueOffset BETWEEN 2 AND 3")

    found = ReadTable(spark, target(told)).missing([QueueRange(place, 1, 9)])
    assert found == [Missing(QueueRange(place, 2, 4), ABSENT), Missing(QueueRange(place, 6, 9), NOT_READ)]


def test_compaction_and_expiry_keep_rows_and_record(spark: SparkSession, broker: Broker, told: ArchiveSettings) -> None:
    run_archive(spark, told, Run())
    for start in (12, 15, 18, 21, 24):
        fill(broker, told.topics[0], bodies(start, start + 3))
        run_archive(spark, told, Run())
    now_ms = SystemClock().now_ms()

    merged = compact_table(spark, target(told))
    expire_table(spark, target(told), now_ms - 7 * DAY_MS if FORMAT == "delta" else now_ms, now_ms)
    if FORMAT == "iceberg":
        assert ReadTable(spark, target(told)).commits() == [], "only the snapshot of the compaction is left"
    fill(broker, told.topics[0], bodies(27, 30))
    shutil.rmtree(told.checkpoint_folder)
    summary = run_archive(spark, told, Run())

    assert merged["files_written"] < merged["files_removed"]
    assert summary.messages == 3
    assert values(spark, told) == once(0, 30)


def test_a_table_is_replayed_as_it_was_with_keys_tags_properties_and_order(
    spark: SparkSession, broker: Broker, told: ArchiveSettings, tmp_path: Path
) -> None:
    source = told.topics[0]
    run_archive(spark, told, Run())
    before = ReadTable(spark, target(told)).commits()[0].id
    fill(broker, source, ["later"], tags="red")
    run_archive(spark, told, Run())
    spark.sql(f"DELETE FROM {target(told).sql_name} WHERE queueOffset = 0")

    def replayed(name: str, as_of: str = "") -> list[dict[str, Any]]:
        again = new_topic(broker, queues=1)
        place = told.lake if FORMAT == "delta" else target(told).name
        told_again = ReplaySettings(
            namesrv=broker.name_server,
            checkpoint=str(tmp_path / name),
            lake=place,
            format=FORMAT,
            to=again,
            as_of=as_of,
        )
        run_replay(spark, told_again, Run())
        return rows_in(broker, again)

    old, new = replayed("old", as_of=str(before)), replayed("new")

    assert Counter(row["keys"] for row in old) == once(0, 12)
    assert Counter(row["keys"] for row in new) == once(2, 12) + Counter(["later"])
    assert [row["tags"] for row in new if row["keys"] == "later"] == ["red"]
    for row in (*old, *new):
        assert row["value"].decode() == row["keys"] == dict(row["properties"])["said"]
    for rows in (old, new):
        evens = [int(row["keys"]) for row in rows if row["keys"] != "later" and int(row["keys"]) % 2 == 0]
        assert evens == sorted(evens), "each queue in its order"


def test_a_replay_that_is_continued_reads_the_commit_of_its_first_run(
    spark: SparkSession, broker: Broker, told: ArchiveSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_archive(spark, told, Run())
    again = new_topic(broker, queues=1)
    told_again = ReplaySettings(
        namesrv=broker.name_server,
        checkpoint=str(tmp_path / "replay"),
        lake=told.lake if FORMAT == "delta" else target(told).name,
        format=FORMAT,
        to=again,
        as_of="0s",
        max_messages=6,
    )
    with monkeypatch.context() as patch:
        patch.setattr(replay, "send_piece", FailsOnce(send_piece, 1))
        with pytest.raises(Exception, match="the machine is gone"):
            run_replay(spark, told_again, Run())
    spark.sql(f"DELETE FROM {target(told).sql_name} WHERE queueOffset >= 0")

    run_replay(spark, told_again, Run())

    assert Counter(row["keys"] for row in rows_in(broker, again)) == once(0, 12)


def test_a_part_of_a_batch_is_written_with_few_columns(
    spark: SparkSession, broker: Broker, told: ArchiveSettings
) -> None:
    topic, select = told.topics[0], ["value"]
    run_archive(spark, settings(broker.name_server, topic, Path(told.lake), select=select), Run())
    fill(broker, topic, bodies(12, 15))
    again = BackfillSettings(
        namesrv=broker.name_server,
        topics=[topic],
        lake=told.lake,
        format=FORMAT,
        checkpoint=f"{told.lake}_backfill",
        select=select,
    )

    run_backfill(spark, again, Run())

    assert values(spark, told) == once(0, 15)
    assert ReadTable(spark, target(told)).columns == select


def test_another_schema_is_refused_and_nothing_is_written(
    spark: SparkSession, broker: Broker, told: ArchiveSettings
) -> None:
    run_archive(spark, told, Run())
    other = settings(
        broker.name_server,
        told.topics[0],
        Path(told.lake),
        checkpoint=f"{told.lake}_other",
        select=["string(queueId) AS queueId"],
    )

    with pytest.raises((InvalidSetting, PipelineFailed)):
        run_archive(spark, other, Run())

    assert values(spark, told) == once(0, 12)


def test_a_table_that_is_not_there_is_reported(spark: SparkSession, lakes: Path) -> None:
    nowhere = ArchiveSettings(topics=["any"], lake=str(lakes / "nowhere"), format=FORMAT)

    with pytest.raises(NotFound, match="does not exist; `pocketmq pipeline archive` creates one"):
        ReadTable(spark, target(nowhere))


def test_a_table_that_was_restored_gets_its_later_messages_again(
    spark: SparkSession, broker: Broker, told: ArchiveSettings
) -> None:
    run_archive(spark, told, Run())
    first = ReadTable(spark, target(told)).commits()[0].id
    fill(broker, told.topics[0], bodies(12, 15))
    run_archive(spark, told, Run())
    name = target(told).sql_name
    if FORMAT == "delta":
        spark.sql(f"RESTORE TABLE {name} TO VERSION AS OF {first}").collect()
    else:
        catalog, _, table = name.partition(".")
        spark.sql(f"CALL {catalog}.system.rollback_to_snapshot('{table}', {first})").collect()
    assert values(spark, told) == once(0, 12)
    shutil.rmtree(told.checkpoint_folder)

    run_archive(spark, told, Run())

    assert values(spark, told) == once(0, 15)
