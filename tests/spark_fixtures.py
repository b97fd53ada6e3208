"""One Spark session and one broker for all tests that need them: both take seconds to start."""

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from tests.spark.broker_kit import Broker

from pocketmq import Server
from pocketmq.errors import MissingLibrary
from pocketmq.spark.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def use_java() -> None:
    """Make Spark find a Java, the one of pip if there is no other; skip the test without one."""
    try:
        os.environ["JAVA_HOME"] = str(find_java())
    except MissingLibrary as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module", autouse=True)
def kept_connections_end() -> Iterator[None]:
    """Clients of the connector stay open for minutes, query servers of finished tests, and log in the middle of
    others.
    """
    yield
    for module, name in (("shared_clients", "READING"), ("write.sink_task", "SENDING")):
        if (loaded := sys.modules.get(f"pocketmq.spark.{module}")) is not None:
            getattr(loaded, name).close_idle()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    sql = pytest.importorskip("pyspark.sql", reason="the extra `spark` is not installed")
    use_java()
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
