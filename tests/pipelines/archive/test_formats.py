"""A format that Spark does not have is refused before it starts."""

import zipfile
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from pocketmq.errors import InvalidSetting
from pocketmq.pipelines.archive.form import check_columns, check_format


@pytest.fixture
def jars(tmp_path: Path) -> Path:
    """Libraries of which one has a table format."""
    with zipfile.ZipFile(tmp_path / "a.jar", "w") as jar:
        jar.writestr("a/B.class", b"")
    with zipfile.ZipFile(tmp_path / "delta.jar", "w") as jar:
        service = "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"
        jar.writestr(
            service,
            "# Licensed to you\norg.apache.spark.sql.delta.sources.DeltaDataSource # 1\norg.apache.hudi.DefaultSource\n",
        )
    (tmp_path / "README").write_text("no library", "utf-8")
    return tmp_path


def test_formats_of_spark_and_of_its_libraries_are_accepted(jars: Path) -> None:
    for name in ("parquet", "orc", "json", "delta", "Delta", "hudi", "com.example.OwnFormat"):
        check_format(name, {}, {}, jars)


@pytest.mark.parametrize("name", ["xyz", "avro", "parket", "licensed", "spark", "e", "del"])
def test_a_format_without_a_library_is_refused_with_advice(jars: Path, name: str) -> None:
    with pytest.raises(
        InvalidSetting, match=rf"--format {name}: Spark does not have this format.*spark\.jars\.packages"
    ):
        check_format(name, {}, {}, jars)


def test_a_format_that_cannot_store_the_columns_is_refused() -> None:
    check_columns("csv", properties=False)
    check_columns("json", properties=True)
    with pytest.raises(InvalidSetting, match=r"--format csv cannot contain the map.*--no-properties"):
        check_columns("csv", properties=True)
    with pytest.raises(InvalidSetting, match="--format text has one column"):
        check_columns("Text", properties=False)


def test_formats_of_configured_libraries_and_of_a_remote_spark_are_not_checked(jars: Path) -> None:
    check_format("avro", {"spark.jars.packages": "org.apache.spark:spark-avro_2.13:4.3.0"}, {}, jars)
    check_format("iceberg", {}, {"SPARK_HOME": "/opt/spark"}, jars)


def test_the_installed_spark_has_the_listed_formats() -> None:
    check_format("parquet", {}, {})
    check_format("kafka.", {}, {})
    with pytest.raises(InvalidSetting, match="--format xyz"):
        check_format("xyz", {}, {})
