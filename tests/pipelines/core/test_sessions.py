"""The session of a pipeline: the one that is there, or one that suits topics."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from pocketmq.errors import InvalidSetting, MissingLibrary, PocketMQError
from pocketmq.pipelines.core import sessions
from pocketmq.pipelines.core.sessions import PACKAGES, session, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Builder:
    """Replaces Spark's builder: records its settings, and returns a session or an error."""

    def __init__(self, error: Exception | None = None) -> None:
        self.told: dict[str, str] = {}
        self._error = error

    def master(self, text: str) -> "Builder":
        self.told["master"] = text
        return self

    remote = master
    appName = master  # noqa: N815

    def config(self, key: str, value: str) -> "Builder":
        self.told[key] = value
        return self

    def getOrCreate(self) -> object:
        if self._error is not None:
            raise self._error
        return self


def with_builder(monkeypatch: pytest.MonkeyPatch, builder: Builder) -> Builder:
    class Session:
        @staticmethod
        def getActiveSession() -> None:
            return None

    Session.builder = builder  # type: ignore[attr-defined]
    monkeypatch.setattr(sessions, "SparkSession", Session)
    monkeypatch.setattr(sessions, "find_java", lambda: Path("/java"))
    monkeypatch.setattr(sessions, "check_master", lambda *where: None)
    monkeypatch.setattr(os, "environ", {})
    return builder


def test_an_existing_session_is_used_and_not_stopped(spark: "SparkSession") -> None:
    with session("x", settings={"spark.sql.shuffle.partitions": "77"}) as found:
        assert found.sparkContext is spark.sparkContext

    assert spark_session("y").sparkContext is spark.sparkContext
    assert spark.range(1).count() == 1


def test_a_new_session_has_useful_settings_that_the_user_can_override(monkeypatch: pytest.MonkeyPatch) -> None:
    told: Any = with_builder(monkeypatch, Builder())

    spark_session("x", settings={"spark.ui.enabled": "true"})

    assert told.told["spark.sql.session.timeZone"] == "UTC"
    assert told.told["spark.python.unix.domain.socket.enabled"] == "true"
    assert told.told["spark.ui.enabled"] == "true"
    assert Path(told.told["spark.driver.defaultJavaOptions"].partition("file://")[2]).is_file()
    assert os.environ["JAVA_HOME"] == "/java"


def test_on_a_cluster_no_settings_of_this_machine_are_set(monkeypatch: pytest.MonkeyPatch) -> None:
    told = with_builder(monkeypatch, Builder()).told

    spark_session("x", master="spark://host:7077")

    assert "spark.driver.host" not in told
    assert "spark.sql.shuffle.partitions" not in told


def test_a_master_and_a_connect_server_exclude_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pocketmq.pipelines.core.sessions.SparkSession.getActiveSession", lambda: None)

    with pytest.raises(InvalidSetting, match="exclude one another"):
        spark_session("x", master="local[2]", remote="sc://host")


def test_a_failed_start_of_spark_is_reported_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with_builder(monkeypatch, Builder(RuntimeError("An error\n: java.net.ConnectException: refused\n\tat x")))

    with pytest.raises(PocketMQError, match="Spark does not start on spark://nowhere: ConnectException: refused"):
        spark_session("x", master="spark://nowhere")


def test_a_quiet_session_prints_nothing_unless_it_does_not_start(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    class Saying(Builder):
        def getOrCreate(self) -> object:
            os.write(2, b"no such heap\n")
            return super().getOrCreate()

    with_builder(monkeypatch, Saying())
    spark_session("x", is_quiet=True)
    assert capfd.readouterr().err == ""

    spark_session("x", settings={"spark.log.level": "WARN"}, is_quiet=True)
    assert capfd.readouterr().err == "no such heap\n"

    with_builder(monkeypatch, Saying(RuntimeError("Java ended")))
    with pytest.raises(PocketMQError, match=r"Spark does not start on local\[\*\]: Java ended\nno such heap"):
        spark_session("x", is_quiet=True)


def test_packages_that_cannot_be_downloaded_are_reported_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    ivy = b"\t\t::          UNRESOLVED DEPENDENCIES         ::\n\t\t:: io.delta#delta-spark_4.1_2.13;4.4.0: not found\n"

    class Downloading(Builder):
        def getOrCreate(self) -> object:
            os.write(2, ivy)
            return super().getOrCreate()

    with_builder(monkeypatch, Downloading(RuntimeError("Java gateway process exited")))

    with pytest.raises(
        MissingLibrary,
        match=r"cannot get the packages io\.delta:delta-spark_4\.1_2\.13:4\.4\.0: connect this machine to Maven Central once, or "
        r"name their files .*spark\.jars=….*Missing: io\.delta#delta-spark_4\.1_2\.13;4\.4\.0: not found",
    ):
        spark_session("x", settings={PACKAGES: "io.delta:delta-spark_4.1_2.13:4.4.0"}, is_quiet=True)


def test_a_missing_library_of_spark_connect_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    with_builder(monkeypatch, Builder(ImportError("grpcio must be installed")))

    with pytest.raises(PocketMQError, match=r"pip install 'pyspark\[connect\]'"):
        spark_session("x", remote="sc://host")
