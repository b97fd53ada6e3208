"""Messages of a lake and dead letters, sent once more."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.pipelines.sent_kit import FailsOnce, bodies, rows_in, values_in
from tests.spark.broker_kit import Broker, fill, new_topic

from pocketmq import Admin, Message, Producer
from pocketmq.errors import InvalidSetting, PipelineFailed
from pocketmq.files import DiskFiles
from pocketmq.pipelines.archive.form import Form, keep_form
from pocketmq.pipelines.archive.job import run_archive
from pocketmq.pipelines.archive.settings import ArchiveSettings
from pocketmq.pipelines.core.running import Run
from pocketmq.pipelines.core.settings import Time
from pocketmq.pipelines.jobs import replay
from pocketmq.pipelines.jobs.replay import ReplaySettings, check_replay, plan_replay, run_replay
from pocketmq.pipelines.jobs.resending import send_piece

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def settings(broker: Broker, folder: Path, **given: object) -> ReplaySettings:
    told = {"checkpoint": str(folder / "notes"), **given}
    return ReplaySettings(namesrv=broker.name_server, **told)  # type: ignore[arg-type]


def test_a_compacted_lake_is_replayed_once(
    spark: "SparkSession", broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target, lake = new_topic(broker), new_topic(broker), str(tmp_path / "lake")
    fill(broker, source, bodies(0, 6))
    fill(broker, source, bodies(6, 12), number=1)
    archived = ArchiveSettings(namesrv=broker.name_server, topics=[source], lake=lake, max_messages=6, compact=False)
    run_archive(spark, archived, Run())
    shout = ["concat(string(value), '!') AS value", "keys"]
    told = settings(broker, tmp_path, lake=lake, to=target, max_messages=5, where="value <> X'37'", select=shout)

    planned = plan_replay(told)
    with monkeypatch.context() as patch:
        patch.setattr(replay, "send_piece", FailsOnce(send_piece, 2))
        with pytest.raises(PipelineFailed, match="the machine is gone"):
            run_replay(spark, told, Run())
    fill(broker, source, ["later"])
    run_archive(spark, ArchiveSettings(namesrv=broker.name_server, topics=[source], lake=lake, compact_files=2), Run())
    summary = run_replay(spark, told, Run())

    assert planned.messages == 12
    assert summary.messages == 8
    assert values_in(broker, target) == Counter(f"{text}!" for text in bodies(0, 12) if text != "7")


def test_a_replay_of_a_lake_can_be_limited_by_time(spark: "SparkSession", broker: Broker, tmp_path: Path) -> None:
    source, target, lake = new_topic(broker, queues=1), new_topic(broker), str(tmp_path / "lake")
    fill(broker, source, bodies(0, 6))
    run_archive(spark, ArchiveSettings(namesrv=broker.name_server, topics=[source], lake=lake), Run())
    stored = [Time(row["storeTimestamp"].timestamp() * 1000) for row in rows_in(broker, source)]
    told = settings(broker, tmp_path, lake=lake, to=target, since=stored[0], until=Time(stored[-1] + 1))
    later = settings(broker, tmp_path / "later", lake=lake, to=target, since=Time(stored[-1] + 1))

    assert run_replay(spark, told, Run()).facts["rows_written"] == 6
    assert run_replay(spark, later, Run()).facts["rows_written"] == 0
    assert values_in(broker, target) == Counter(bodies(0, 6))


def test_dead_letters_return_to_their_original_topic(spark: "SparkSession", broker: Broker, tmp_path: Path) -> None:
    target, group = new_topic(broker, queues=1), "gives-up"
    with Admin(broker.name_server) as admin:
        admin.topics.create(f"%DLQ%{group}", queues=1)
    with Producer(broker.name_server, group="brokers") as producer:
        for text in bodies(0, 3):
            letter = Message(f"%DLQ%{group}", text.encode(), keys=text)
            letter.properties["RETRY_TOPIC"] = target
            producer.send(letter)

    summary = run_replay(spark, settings(broker, tmp_path, dlq=group, rate=1_000), Run())

    assert summary.messages == 3
    assert values_in(broker, target) == Counter(bodies(0, 3))
    assert sorted(row["keys"] for row in rows_in(broker, target)) == bodies(0, 3)


def test_impossible_replays_are_reported(broker: Broker, tmp_path: Path) -> None:
    def message_of(**given: object) -> str:
        with pytest.raises(Exception, match=r".") as caught:
            plan_replay(settings(broker, tmp_path, **given))
        assert isinstance(caught.value, InvalidSetting) or "is not a lake" in str(caught.value)
        return str(caught.value)

    keep_form(tmp_path / "chosen", Form(columns={"topic": "string", "text": "string"}), DiskFiles())

    assert "the lake has no column value" in message_of(lake=str(tmp_path / "chosen"), since=Time(5))
    assert "no source is set" in message_of(to="t")
    assert "exclude one another" in message_of(lake="l", dlq="g")
    assert "remove --topic" in message_of(dlq="g", topics=["t"])
    assert "cannot be both source and target" in message_of(topics=["t"], to="t")
    assert "is not a lake" in message_of(lake=str(tmp_path), since=Time(5))


def test_settings_of_tables_are_checked_before_spark_starts(broker: Broker, tmp_path: Path) -> None:
    def message_of(**given: object) -> str:
        with pytest.raises(InvalidSetting) as caught:
            check_replay(settings(broker, tmp_path, to=new_topic(broker), **given))
        return str(caught.value)

    lake = tmp_path / "lake"
    keep_form(lake, Form(), DiskFiles())

    assert "--as-of needs a table of Delta or Iceberg" in message_of(lake=str(lake), as_of="7")
    assert "--format and --as-of are for tables" in message_of(topics=["orders"], as_of="7")
    assert "set --format to delta or iceberg" in message_of(lake="lake.db.orders")
    assert "only tables of delta and iceberg" in message_of(lake="lake.db.orders", format="orc")


@pytest.mark.parametrize(
    ("text", "sql"),
    [
        ("", ""),
        ("17", " VERSION AS OF 17"),
        ("2026-03-01T12:00:00+00:00", " TIMESTAMP AS OF '2026-03-01 12:00:00.000000 UTC'"),
    ],
)
def test_a_table_is_read_as_of_a_commit_or_a_time(text: str, sql: str) -> None:
    moment = ReplaySettings(checkpoint="notes", lake="lake.db.orders", format="iceberg", as_of=text).moment

    assert (moment.sql if moment else "") == sql
