"""Delta and Iceberg for real: tables are created and evolve, and a batch that is written again changes nothing.

python -m tests.pipelines.archive.table_formats iceberg --jars iceberg-spark-runtime-4.1_2.13-1.11.0.jar
python -m tests.pipelines.archive.table_formats delta --jars delta-spark_4.1_2.13-4.3.1.jar,delta-storage-4.3.1.jar

The libraries must match the PySpark that runs this; `--packages` gets them from Maven.
"""

import argparse
import os
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from pocketmq.errors import InvalidSetting
from pocketmq.pipelines.archive.table import Append, Target, append, examined, prepare_table
from pocketmq.pipelines.core.rows import parse_schema
from pocketmq.spark.java import find_java

COLUMNS = "topic string, number int, properties map<string,string>"
MORE = f"{COLUMNS}, more double, at timestamp"
EXTENSIONS = {
    "delta": "io.delta.sql.DeltaSparkSessionExtension",
    "iceberg": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m tests.pipelines.archive.table_formats")
    parser.add_argument("format", choices=EXTENSIONS)
    parser.add_argument("--jars", default="")
    parser.add_argument("--packages", default="")
    given = parser.parse_args(arguments)
    say = Console(highlight=False).print
    with TemporaryDirectory() as folder:
        spark = session(given.format, given.jars, given.packages, folder)
        try:
            if given.format == "delta":
                check(spark, Target("delta", "orders", partitions=["topic"]))
                check_path(spark, Target("delta", path=f"{folder}/orders", partitions=["topic"]))
            else:
                spark.sql("CREATE NAMESPACE lake.sales")
                check(spark, Target("", "lake.sales.orders", partitions=["topic"]))
        finally:
            spark.stop()
    say(f"{given.format}: created, evolved, and each row once")


def session(name: str, jars: str, packages: str, folder: str) -> SparkSession:
    os.environ["JAVA_HOME"] = str(find_java())
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.sql.extensions": EXTENSIONS[name],
        **({"spark.jars": jars} if jars else {}),
        **({"spark.jars.packages": packages} if packages else {}),
    }
    if name == "delta":
        settings["spark.sql.catalog.spark_catalog"] = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    else:
        settings["spark.sql.catalog.lake"] = "org.apache.iceberg.spark.SparkCatalog"
        settings["spark.sql.catalog.lake.type"] = "hadoop"
        settings["spark.sql.catalog.lake.warehouse"] = f"{folder}/lake"
    builder: Any = SparkSession.builder.master("local[2]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()  # type: ignore[no-any-return]


def check(spark: SparkSession, target: Target) -> None:
    schema, more = parse_schema(COLUMNS), parse_schema(MORE)
    assert examined(spark, target, schema).known is None
    table = prepare_table(spark, target, schema)
    assert "each row once" in table.guarantee, table.guarantee
    write_again_and_again(spark, table)
    found = spark.table(target.name)
    assert Counter(row.number for row in found.collect()) == Counter([1, 2] * 3), found.collect()
    assert [field.name for field in examined(spark, target, more).missing] == ["more", "at"]
    evolved = prepare_table(spark, target, more)
    row = ("a", 3, None, 2.5, datetime(2026, 11, 19, tzinfo=UTC))
    for _ in range(2):
        append(spark.createDataFrame([row], more), evolved, Append("first", 2, "{}"))
    append(rows(spark), evolved, Append("first", 3))  # without the new columns, as an older run
    found = spark.table(target.name)
    assert Counter((row.number, row.more) for row in found.collect()) == Counter(
        {(1, None): 4, (2, None): 4, (3, 2.5): 1}
    )
    with pytest.raises(InvalidSetting, match="has the column number as int, and the rows have string"):
        examined(spark, target, parse_schema("number string"))


def check_path(spark: SparkSession, target: Target) -> None:
    write_again_and_again(spark, target)
    found = spark.read.format(target.format).load(target.path)
    assert Counter(row.number for row in found.collect()) == Counter([1, 2] * 3)
    assert list(Path(target.path).glob("topic=a"))


def write_again_and_again(spark: SparkSession, table: Target) -> None:
    """Three batches of two rows, of two writers, some of them repeated."""
    for writer, number in (("first", 0), ("first", 0), ("second", 0), ("first", 1), ("first", 0), ("second", 0)):
        append(rows(spark), table, Append(writer, number, '{"orders":{"broker-a":{"0":7}}}'))


def rows(spark: SparkSession) -> Any:
    return spark.createDataFrame([("a", 1, {"x": "y"}), ("b", 2, None)], COLUMNS)


if __name__ == "__main__":
    main()
