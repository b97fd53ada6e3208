"""Mistakes in the settings of `cdc` are found before a run, by `--dry-run` as well."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from tests.spark.broker_kit import Broker, new_topic

from pocketmq.errors import InvalidSetting, PocketMQError, TopicNotFound
from pocketmq.pipelines.cdc.job import CdcSettings, check_cdc, examine_cdc, plan_cdc

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LIBRARY = {"spark.jars": "delta-spark.jar"}
"""As if the user knew a library of Delta for this Spark."""


def settings(broker: Broker, tmp_path: Path, **more: Any) -> CdcSettings:
    told: dict[str, Any] = {
        "topics": [new_topic(broker)],
        "keys": ["id"],
        "lake": str(tmp_path / "orders"),
        "format": "delta",
        "checkpoint": str(tmp_path / "checkpoint"),
        "spark": LIBRARY,
    }
    return CdcSettings(namesrv=broker.name_server, **{**told, **more})


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "two topics": ({"topics": ["a", "b"]}, "a table has the rows of one topic"),
    "a folder without a format": ({"format": ""}, "--lake needs --format delta or iceberg"),
    "a format without MERGE": ({"lake": "", "table": "a.b.c", "format": "parquet"}, "--format parquet has no MERGE"),
    "neither table nor folder": ({"lake": ""}, "set either --lake FOLDER or --table"),
    "Spark Connect": ({"remote": "sc://localhost"}, "cdc runs with --master, not with --remote"),
    "dead letters into the topic that is read": ({"topics": ["a"], "dead_letters": "a"}, "is both read and written"),
    "a schema that is none": ({"schema": "id what"}, "invalid schema 'id what'"),
    "a package that does not match": ({"format": "iceberg", "spark": {}}, "there is no library of Iceberg for Spark"),
    "a scheme without atomic renames": (
        {"lake": "s3a://bucket/orders", "format": "iceberg"},
        "a rename on s3a: is not atomic",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_is_found_before_a_run(
    broker: Broker, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    more, text = WRONG[name]

    with pytest.raises(InvalidSetting, match=text):
        check_cdc(settings(broker, tmp_path, **more))


def test_a_missing_topic_is_found_before_a_run(broker: Broker, tmp_path: Path) -> None:
    with pytest.raises(TopicNotFound):
        check_cdc(settings(broker, tmp_path, topics=["no-such-topic"]))


def test_a_store_that_denies_writes_is_found_before_a_run(broker: Broker, tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(PocketMQError, match="not writable"):
        check_cdc(settings(broker, tmp_path, lake=str(tmp_path / "file" / "orders")))


def test_a_plan_says_what_happens_to_bad_messages(broker: Broker, tmp_path: Path) -> None:
    told = settings(broker, tmp_path, scd=2)
    check_cdc(told)

    plan = plan_cdc(told)

    assert plan.sink == f"a delta table at {tmp_path}/orders, versions of rows by id"
    assert plan.remarks == ("messages that are no change of Debezium fail the run",)
    assert plan_cdc(msgspec.structs.replace(told, dead_letters="bad")).remarks[0].endswith("go to the topic bad")


def test_the_table_is_examined_before_a_run(spark: "SparkSession", broker: Broker, tmp_path: Path) -> None:
    spark.sql("CREATE TABLE IF NOT EXISTS plain_orders (number int) USING parquet")
    table = {"lake": "", "format": ""}

    for name, text in (
        ("no_such_catalog.db.orders", "the catalog no_such_catalog is not configured"),
        ("no_such_database.orders", "no_such_database does not exist; CREATE NAMESPACE"),
        ("default.new_orders", "choose its --format, delta or iceberg"),
        ("default.plain_orders", "has the format parquet, which has no MERGE"),
    ):
        with pytest.raises(InvalidSetting, match=text):
            examine_cdc(spark, settings(broker, tmp_path, **table, table=name))
