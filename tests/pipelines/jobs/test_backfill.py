"""An offset range of a topic is read again, into a topic and into a lake."""

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.pipelines.sent_kit import FailsOnce, bodies, rows_in, values_in
from tests.spark.broker_kit import Broker, fill, new_topic

from pocketmq.errors import InvalidSetting, PipelineFailed, TopicNotFound
from pocketmq.pipelines.archive.manifest import read_manifest
from pocketmq.pipelines.core.running import Run
from pocketmq.pipelines.core.settings import Time
from pocketmq.pipelines.jobs import backfill
from pocketmq.pipelines.jobs.backfill import BackfillSettings, examination, plan_backfill, run_backfill
from pocketmq.pipelines.jobs.resending import send_piece

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def settings(broker: Broker, folder: Path, topic: str, **given: object) -> BackfillSettings:
    told = {"checkpoint": str(folder / "notes"), **given}
    return BackfillSettings(namesrv=broker.name_server, topics=[topic], **told)  # type: ignore[arg-type]


def test_a_backfill_interrupted_after_a_piece_sends_nothing_twice(
    spark: "SparkSession", broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = new_topic(broker, queues=1), new_topic(broker)
    fill(broker, source, bodies(0, 12), tags="paid")
    offsets = json.dumps({source: {broker.name: {"0": 2}}})
    told = settings(
        broker, tmp_path, source, to=target, starting_offsets=offsets, max_messages=5, where="value <> X'33'"
    )

    planned = plan_backfill(told)
    with monkeypatch.context() as patch:
        patch.setattr(backfill, "send_piece", FailsOnce(send_piece, 1))
        with pytest.raises(PipelineFailed, match="the machine is gone"):
            run_backfill(spark, told, Run())
    fill(broker, source, bodies(12, 14))
    summary = run_backfill(spark, told, Run())

    assert planned.messages == 10
    assert summary.messages == 10
    assert values_in(broker, target) == Counter([*bodies(2, 3), *bodies(4, 12)])
    assert {(row["tags"], dict(row["properties"])["said"]) for row in rows_in(broker, target)} == {
        ("paid", text) for text in [*bodies(2, 3), *bodies(4, 12)]
    }


def test_an_end_before_the_start_is_reported_with_its_flags(broker: Broker, tmp_path: Path) -> None:
    told = settings(broker, tmp_path, new_topic(broker), to="other", since=Time(2_000), until=Time(1_000))

    with pytest.raises(InvalidSetting, match=r"--until 1970-.* is not after --since 1970-"):
        plan_backfill(told)


def test_a_backfill_into_a_lake_archives_the_range(spark: "SparkSession", broker: Broker, tmp_path: Path) -> None:
    source = new_topic(broker)
    fill(broker, source, bodies(0, 4))
    now = max(row["storeTimestamp"] for row in rows_in(broker, source)).timestamp()
    told = settings(
        broker, tmp_path, source, lake=str(tmp_path / "lake"), since=Time(1), until=Time(now * 1000 + 60_000)
    )

    run_backfill(spark, told, Run())

    assert read_manifest(tmp_path / "lake").rows == 4


def test_a_backfill_into_a_table_or_lake_selects_rows(spark: "SparkSession", broker: Broker, tmp_path: Path) -> None:
    source, dead = new_topic(broker, queues=1), new_topic(broker)
    table = f"backfill_{source.replace('-', '_')}"
    fill(broker, source, ['{"id": 1}', '{"id": 2}', "none"])
    chosen = {
        "schema": "id int NOT NULL",
        "dead_letters": dead,
        "select": ["body.id AS id", "topic"],
        "where": "body.id > 1",
    }

    for sink in ({"table": table, "format": "orc"}, {"lake": str(tmp_path / "lake")}):
        told = settings(broker, tmp_path / f"of-{next(iter(sink))}", source, **chosen, **sink)
        assert examination(told) is not None
        run_backfill(spark, told, Run())

    assert [(row.id, row.topic) for row in spark.table(table).collect()] == [(2, source)]
    assert [row.id for row in spark.read.parquet(str(tmp_path / "lake")).collect()] == [2]
    assert read_manifest(tmp_path / "lake").lost == []
    assert values_in(broker, dead) == Counter(["none", "none"])


@pytest.mark.parametrize("chosen", [{"filterTags": "paid"}, {"filterSql": "said = 'b'"}, {"Filter": "queueOffset > 0"}])
def test_filtered_messages_are_not_recorded_as_lost(
    spark: "SparkSession", broker: Broker, tmp_path: Path, chosen: dict[str, str]
) -> None:
    source = new_topic(broker, queues=1)
    fill(broker, source, ["a"], tags="open")
    fill(broker, source, ["b"], tags="paid")
    told = settings(broker, tmp_path, source, lake=str(tmp_path / "lake"), options=chosen)

    run_backfill(spark, told, Run())

    manifest = read_manifest(tmp_path / "lake")
    assert manifest.rows == 1
    assert list(manifest.lost) == []


def test_mistakes_are_reported_before_anything_is_sent(spark: "SparkSession", broker: Broker, tmp_path: Path) -> None:
    source, target = new_topic(broker), new_topic(broker)
    fill(broker, source, ["a"])

    def message_of(**given: object) -> str:
        with pytest.raises((InvalidSetting, TopicNotFound, PipelineFailed)) as caught:
            run_backfill(spark, settings(broker, tmp_path, source, **given), Run())
        return str(caught.value)

    assert "set one target: --to TOPIC, --lake FOLDER or --table" in message_of()
    assert "set one target" in message_of(to=target, table="t")
    assert "only apply to --lake and --table" in message_of(to=target, schema="id int")
    assert "cannot be both source and target" in message_of(to=source)
    assert "colour" in message_of(lake=str(tmp_path / "lake"), where="colour = 'red'")
    assert "the catalog no is not configured" in message_of(table="no.such.table")
    assert "pocketmq topic create nowhere" in message_of(to="nowhere")
    assert "did you mean keys?" in message_of(to=target, select=["value", "keys AS key"])
    assert "lacks the column value" in message_of(to=target, select=["keys"])
    assert "colour" in message_of(to=target, where="colour = 'red'")
    assert values_in(broker, target) == Counter()
