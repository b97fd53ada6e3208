"""The pipeline `quality`: good rows pass, bad ones are dead letters with a reason, and nothing is written twice."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from tests.spark.broker_kit import Broker, fill, new_topic, options

from pocketmq.errors import InvalidSetting, TopicNotFound, WrongState
from pocketmq.files import DiskFiles
from pocketmq.pipelines.core.job_file import read_job
from pocketmq.pipelines.core.running import Run, Summary
from pocketmq.pipelines.jobs import quality
from pocketmq.pipelines.jobs.quality import QUALITY, QualitySettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def settings(broker: Broker, topic: str, folder: Path, **more: Any) -> QualitySettings:
    flags = {
        "namesrv": broker.name_server,
        "topics": [topic],
        "checkpoint": str(folder / "checkpoint"),
        "schema": "id string NOT NULL, amount double",
        "dead_letters": f"{topic}-dead",
        "rules": [{"column": "amount", "min": 0}, {"column": "id", "unique": True}],
        **more,
    }
    return read_job("quality", QualitySettings, path=None, flags=flags, files=DiskFiles(), now_ms=0)


def run(spark: "SparkSession", told: QualitySettings) -> Summary:
    return QUALITY.run(spark, told, Run())


def bodies(spark: "SparkSession", broker: Broker, topic: str) -> dict[str, str]:
    """Bodies in a topic, and why they are there."""
    found = spark.read.format("rocketmq").options(**options(broker, subscribe=topic)).load()
    return {bytes(row["value"]).decode(): row["properties"].get("DEAD_LETTER_REASON", "") for row in found.collect()}


def test_rows_are_split_by_their_contract_and_a_restart_continues(
    spark: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    topic = new_topic(broker)
    good, negative, twice = ('{"id": "a", "amount": 1}', '{"id": "b", "amount": -1}', '{"id": "a", "amount": 2}')
    fill(broker, topic, [good, negative, twice, "oh"])
    told = settings(broker, topic, tmp_path, good=f"{topic}-good", report=str(tmp_path / "report"))

    first = run(spark, told)
    fill(broker, topic, ['{"id": "c", "amount": 5}', "no"])
    second = run(spark, told)
    third = run(spark, told)

    assert (first.messages, first.facts["good_rows"], first.facts["dead_letters"]) == (4, 1, 3)
    assert {row["rule"]: row["broken"] for row in first.tables["rules that rows broke"]} == {
        "amount is below 0": 1,
        "id is not unique": 1,
        "does not fit the schema": 1,
    }
    assert (second.messages, second.facts["good_rows"], second.facts["dead_letters"]) == (2, 1, 1)
    assert third.messages == 0
    assert bodies(spark, broker, f"{topic}-dead") == {
        negative: "amount is below 0",
        twice: "id is not unique",
        "oh": "the body is not a JSON object",
        "no": "the body is not a JSON object",
    }
    assert {json.loads(body)["id"] for body in bodies(spark, broker, f"{topic}-good")} == {"a", "c"}
    report = spark.read.parquet(told.report or "").groupBy("rule").sum("broken").collect()
    assert {row[0]: row[1] for row in report}["does not fit the schema"] == 2


def test_a_batch_interrupted_after_its_writes_is_repeated_without_duplicates(
    spark: "SparkSession", broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(broker)
    fill(broker, topic, ['{"id": "a"}', "oh"])
    told = settings(broker, topic, tmp_path, good=f"{topic}-good", report=str(tmp_path / "report"))
    report = quality._report

    def break_off(*given: Any) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(quality, "_report", break_off)
    with pytest.raises(Exception, match="the disk is full"):
        run(spark, told)
    monkeypatch.setattr(quality, "_report", report)
    summary = run(spark, told)

    assert summary.messages == 2
    for where in ("dead", "good"):
        found = spark.read.format("rocketmq").options(**options(broker, subscribe=f"{topic}-{where}")).load()
        assert found.count() == 1


def test_impossible_settings_are_reported_before_anything_is_created(
    spark: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    topic = new_topic(broker)

    with pytest.raises(TopicNotFound, match="topic 'none-such' does not exist"):
        run(spark, settings(broker, "none-such", tmp_path))
    with pytest.raises(InvalidSetting, match="invalid schema 'id strng'"):
        run(spark, settings(broker, topic, tmp_path, schema="id strng"))
    with pytest.raises(InvalidSetting, match="is both read and written"):
        run(spark, settings(broker, topic, tmp_path, dead_letters=topic))
    with pytest.raises(InvalidSetting, match="has no check for the column"):
        run(spark, settings(broker, topic, tmp_path, rules=[{"column": "id"}]))
    assert not (tmp_path / "checkpoint").exists()


def test_a_checkpoint_of_another_query_is_refused(spark: "SparkSession", broker: Broker, tmp_path: Path) -> None:
    topic = new_topic(broker)
    (tmp_path / "checkpoint" / "offsets").mkdir(parents=True)

    with pytest.raises(WrongState, match="is not a pipeline"):
        run(spark, settings(broker, topic, tmp_path))


def test_a_rule_about_a_missing_column_fails_with_a_sentence_and_can_be_fixed(
    spark: "SparkSession", broker: Broker, tmp_path: Path
) -> None:
    topic = new_topic(broker)
    fill(broker, topic, ['{"id": "a", "amount": 1}'])

    with pytest.raises(Exception, match="did you mean 'amount'"):
        run(spark, settings(broker, topic, tmp_path, rules=[{"column": "amuont", "min": 0}]))

    assert run(spark, settings(broker, topic, tmp_path)).facts["good_rows"] == 1


def test_a_plan_shows_the_range_to_read_and_changes_nothing(broker: Broker, tmp_path: Path) -> None:
    topic = new_topic(broker)
    fill(broker, topic, ["a", "b"])

    plan = QUALITY.plan(settings(broker, topic, tmp_path, expect=["amount < 5, 3 or 2"]))

    assert (plan.messages, len(plan.queues), plan.begins) == (2, 2, "earliest: the checkpoint is new")
    assert plan.bytes > 0
    assert "not amount < 5, 3 or 2" in plan.remarks[0]
    assert plan.to_json()["messages"] == 2
    assert list(tmp_path.iterdir()) == []
