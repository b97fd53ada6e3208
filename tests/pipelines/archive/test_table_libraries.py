"""The library of a table format matches the version of Spark, or an error says what to install."""

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from pocketmq.errors import InvalidSetting
from pocketmq.pipelines.archive.settings import ArchiveSettings
from pocketmq.pipelines.archive.table import catalog_of, table_in
from pocketmq.pipelines.core.sessions import LIBRARIES, PACKAGES, with_library

DELTA = "io.delta.sql.DeltaSparkSessionExtension"


@pytest.mark.parametrize(
    ("name", "spark", "package"),
    [
        ("delta", "4.0.5", "io.delta:delta-spark_4.0_2.13:4.4.0"),
        ("Delta", "4.1.4", "io.delta:delta-spark_4.1_2.13:4.4.0"),
        ("delta", "4.2.1", "io.delta:delta-spark_4.2_2.13:4.4.0"),
        ("iceberg", "4.0.1", "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0"),
        ("iceberg", "4.1.0", "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"),
    ],
)
def test_the_library_is_that_of_the_spark(name: str, spark: str, package: str) -> None:
    settings = with_library(name, {}, spark, (), {})

    assert settings[PACKAGES] == package
    assert settings["spark.sql.extensions"] == LIBRARIES[name.lower()].extension


def test_settings_of_the_user_are_kept() -> None:
    given = {
        PACKAGES: "a:b:1",
        "spark.sql.extensions": "own.Extension",
        "spark.sql.catalog.spark_catalog": "own.Catalog",
    }

    settings = with_library("delta", given, "4.1.4", (), {})

    assert settings[PACKAGES] == "a:b:1,io.delta:delta-spark_4.1_2.13:4.4.0"
    assert settings["spark.sql.extensions"] == f"own.Extension,{DELTA}"
    assert settings["spark.sql.catalog.spark_catalog"] == "own.Catalog"
    assert with_library("parquet", given, "9.9", (), {}) == given


@pytest.mark.parametrize(
    ("given", "installed", "environ"),
    [
        ({"spark.jars": "/jars/delta-spark_4.3_2.13-5.0.jar"}, (), {}),
        ({PACKAGES: "io.delta:delta-spark_4.3_2.13:5.0"}, (), {}),
        ({"spark.driver.extraClassPath": "/jars/*"}, (), {}),
        ({"spark.jars": "/jars/unknown.jar"}, (), {}),
        ({}, ("delta-spark_4.3_2.13-5.0.jar",), {}),
        ({}, (), {"SPARK_HOME": "/opt/spark"}),
    ],
)
def test_a_library_that_is_there_is_used(
    given: dict[str, str], installed: tuple[str, ...], environ: dict[str, str]
) -> None:
    settings = with_library("delta", given, "4.3.0", installed, environ)

    assert settings.get(PACKAGES) == given.get(PACKAGES)
    assert settings["spark.sql.extensions"] == DELTA


def test_a_spark_without_a_library_is_refused_with_what_to_install() -> None:
    with pytest.raises(
        InvalidSetting,
        match=r"no library of Iceberg for Spark 4\.3\.0, only for 4\.0, 4\.1; install .*'pyspark==4\.1\.\*'.*spark\.jars\.packages",
    ):
        with_library("iceberg", {}, "4.3.0", (), {})


def test_a_folder_is_a_table_of_a_catalog_beside_it() -> None:
    assert table_in("/data/lakes/orders/") == "pocketmq.`orders`"
    assert catalog_of("/data/lakes/orders")["spark.sql.catalog.pocketmq.warehouse"] == "file:///data/lakes"
    assert (
        catalog_of("hdfs://name:8020/lakes/orders/")["spark.sql.catalog.pocketmq.warehouse"] == "hdfs://name:8020/lakes"
    )


def test_a_session_behind_connect_has_its_own_libraries() -> None:
    told = ArchiveSettings(
        topics=["orders"], lake="/data/orders", format="iceberg", remote="sc://host", spark={"a": "b"}
    )

    assert told.session == {"a": "b"}
