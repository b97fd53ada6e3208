"""Options of the connector for a pipeline: which are for reads or writes, and which the pipeline sets itself."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from tests.spark.broker_kit import Broker, new_topic

from pocketmq.errors import InvalidSetting
from pocketmq.pipelines import JOBS
from pocketmq.pipelines.core.settings import of_connection, of_reads, of_writes
from pocketmq.pipelines.jobs.lag_report import LAG_REPORT, LagSettings

ADDRESS = {"rocketmq.namesrv.addr": "127.0.0.1:9876"}


def test_each_option_is_passed_to_reads_or_writes() -> None:
    given = {"rocketmq.tls.enable": "true", "filterTags": "paid", "sendRetries": "2", "groupId": "etl"}

    assert of_connection(given, ADDRESS) == {**ADDRESS, "rocketmq.tls.enable": "true"}
    assert of_reads(given, ADDRESS) == {
        **ADDRESS,
        "rocketmq.tls.enable": "true",
        "filterTags": "paid",
        "groupId": "etl",
    }
    assert of_writes(given, ADDRESS) == {
        **ADDRESS,
        "rocketmq.tls.enable": "true",
        "sendRetries": "2",
        "groupId": "etl",
    }


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("subscribe", "the option subscribe cannot be set: use --topic"),
        ("SubscribePattern", "the option subscribePattern cannot be set: use --topic"),
        ("maxoffsetspertrigger", "the option maxOffsetsPerTrigger cannot be set: use --max-messages"),
        ("failOnDataLoss", "use --on-data-loss"),
        ("rocketmq.namesrv.addr", "use --namesrv, or --target for the other cluster,"),
        ("filterTag", "there is no option 'filterTag' for a batch read; did you mean filterTags?"),
        ("sendRetry", "there is no option 'sendRetry' for a batch write; did you mean sendRetries?"),
        ("rocketmq.secretKey", "the option rocketmq.secretKey cannot be set"),
    ],
)
def test_options_of_the_pipeline_and_unknown_ones_are_refused_for_reads(name: str, told: str) -> None:
    own = {**ADDRESS, "subscribe": "orders", "onDataLoss": "fail", "maxOffsetsPerTrigger": "1"}

    with pytest.raises(InvalidSetting) as refused:
        of_reads({name: "1"}, own)

    assert told in str(refused.value)


@pytest.mark.parametrize("name", ["topic", "writeId", "writeBatch", "deliveryGuarantee", "reservedProperties"])
def test_options_of_effectively_once_writes_cannot_be_set(name: str) -> None:
    with pytest.raises(InvalidSetting, match=f"the option {name} cannot be set: the pipeline sets it itself"):
        of_writes({name: "1"}, ADDRESS)


@pytest.mark.parametrize("pipeline", ["archive", "backfill", "mirror", "quality", "replay", "trace"])
@pytest.mark.parametrize(
    "given",
    [{"subscribe": "other"}, {"assign": "{}"}, {"onDataLoss": "skip"}, {"minPartition": "3"}, {"minPartitions": "x"}],
)
def test_a_pipeline_refuses_wrong_options_before_spark_starts(
    broker: Broker, tmp_path: Path, pipeline: str, given: dict[str, str]
) -> None:
    with pytest.raises(InvalidSetting):
        checked(pipeline, broker, tmp_path, given)


@pytest.mark.parametrize("pipeline", ["backfill", "quality", "replay"])
def test_options_of_reads_and_of_writes_can_be_combined(broker: Broker, tmp_path: Path, pipeline: str) -> None:
    checked(pipeline, broker, tmp_path, {"pullBatchSize": "3", "sendRetries": "2", "rocketmq.callTimeoutMs": "5000"})


@pytest.mark.parametrize(
    ("pipeline", "given", "what"),
    [
        ("archive", {"options": {"sendRetries": "2"}}, "sendRetries has no effect: it applies to writes"),
        ("trace", {"options": {"sendRetries": "2"}}, "it applies to writes"),
        ("mirror", {"options": {"sendRetries": "2"}}, "it applies to writes"),
        ("mirror", {"target_options": {"filterTags": "paid"}}, "filterTags has no effect: it applies to reads"),
        ("backfill", {"options": {"sendRetries": "2"}, "to": None, "lake": "lake"}, "it applies to writes"),
    ],
)
def test_an_option_without_effect_is_refused(
    broker: Broker, tmp_path: Path, pipeline: str, given: dict[str, Any], what: str
) -> None:
    with pytest.raises(InvalidSetting, match=what):
        checked(pipeline, broker, tmp_path, **{"options": {}, **given})


def test_a_report_of_lag_reads_and_writes_no_topics(broker: Broker) -> None:
    with pytest.raises(InvalidSetting, match="filterTags has no effect"):
        LAG_REPORT.check(LagSettings(namesrv=broker.name_server, options={"filterTags": "paid"}))


@pytest.mark.parametrize("pipeline", ["backfill", "replay"])
@pytest.mark.parametrize("name", ["maxPartitions", "minPartitions", "maxRecordsPerPartition"])
def test_the_partitions_of_pieces_cannot_be_set(broker: Broker, tmp_path: Path, pipeline: str, name: str) -> None:
    with pytest.raises(InvalidSetting, match=f"{name} cannot be set: the pipeline sets it itself"):
        checked(pipeline, broker, tmp_path, {name: "3"})


def checked(pipeline: str, broker: Broker, folder: Path, options: dict[str, str], **more: Any) -> None:
    """What the command does before it starts Spark."""
    topic, other = new_topic(broker), new_topic(broker)
    own = {
        "archive": {"lake": str(folder / "lake")},
        "backfill": {"to": other},
        "mirror": {"target": "127.0.0.1:1"},
        "quality": {"schema": "id string", "dead_letters": other},
        "replay": {"to": other},
        "trace": {"lake": str(folder / "lake")},
    }
    job = JOBS[pipeline]
    job.check(
        job.settings(
            namesrv=broker.name_server,
            topics=[topic],
            checkpoint=str(folder / "notes"),
            options=options,
            **{**own[pipeline], **more},
        )
    )
