"""One Spark session and one broker for all tests that need them: both take seconds to start."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.spark.broker_kit import Broker

from pocketmq import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WHY_NOT = "Spark needs Java 17 or newer on the path or in JAVA_HOME"


def has_java() -> bool:
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java") is not None or (home is not None and Path(home, "bin", "java").exists())


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    sql = pytest.importorskip("pyspark.sql", reason="the extra `spark` is not installed")
    if not has_java():
        pytest.skip(WHY_NOT)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    session = (
        sql.SparkSession.builder.master("local[2]")
        .appName("pocketmq tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "OFF")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One of PocketMQ, unless `SPARK_TEST_BROKER=127.0.0.1:9876/broker-a` names another, which must filter by properties."""
    if other := os.environ.get("SPARK_TEST_BROKER"):
        name_server, _, name = other.partition("/")
        yield Broker(name_server, name)
        return
    with Server(data=tmp_path_factory.mktemp("broker"), settings={"enablePropertyFilter": True}) as server:
        yield Broker.of(server)
