"""Mistakes of users in Spark: the first line of the error names the problem, without a stack trace."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from tests.spark.broker_kit import Broker, new_topic, options
from tests.spark.stream_kit import ran

from pocketmq.errors import InvalidSetting, PocketMQError
from pocketmq.spark import python_processes as short_errors
from pocketmq.spark.python_processes import HIDE_TRACEBACK, STREAM_RUNNER

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def sentence(do: Callable[[], Any]) -> str:
    """The line of the error that names its kind; a stack trace fails the test."""
    with pytest.raises(Exception, match=r"pocketmq\.errors\.") as caught:
        do()
    assert "Traceback" not in str(caught.value)
    lines = str(caught.value).splitlines()
    told = next(line for line in lines if "pocketmq.errors." in line)
    assert lines.index(told) <= 2, "behind Spark's own first lines at the latest"
    return told.partition("pocketmq.errors.")[2]


def test_mistakes_of_a_user_are_reported_in_one_sentence(spark: "SparkSession", broker: Broker, tmp_path: Path) -> None:
    topic = new_topic(broker)

    def batch(**given: str) -> Any:
        return spark.read.format("rocketmq").options(**options(broker, **given)).load().count()

    def stream(**given: str) -> Any:
        def start() -> Any:
            rows = spark.readStream.format("rocketmq").options(**options(broker, **given)).load()
            folder = str(tmp_path / "checkpoint")
            return (
                rows.writeStream.option("checkpointLocation", folder).trigger(availableNow=True).format("noop").start()
            )

        return ran(start)

    def write() -> None:
        rows = spark.createDataFrame([("",)], "value string")
        rows.write.format("rocketmq").options(**options(broker, topic=topic)).mode("append").save()

    assert f"topic '{topic}x' does not exist; did you mean '{topic}'?" in sentence(lambda: batch(subscribe=f"{topic}x"))
    assert "no name server answered: 127.0.0.1:1" in sentence(
        lambda: batch(subscribe=topic, rocketmq_namesrv_addr="127.0.0.1:1", fetchOffset_numRetries="0")
    )
    assert "endingOffsets is for a batch read, not for a streaming read; trigger(availableNow=True)" in sentence(
        lambda: stream(subscribe=topic, endingOffsets="latest")
    )
    assert "row 0, column value: it is empty" in sentence(write)


@pytest.mark.parametrize(
    ("program", "hidden"), [(STREAM_RUNNER, "1"), ("pyspark.daemon", "1"), ("", None), ("pytest.x", None)]
)
def test_only_processes_of_spark_hide_tracebacks_of_expected_errors(
    monkeypatch: pytest.MonkeyPatch, program: str, hidden: str | None
) -> None:
    environ: dict[str, str] = {}
    monkeypatch.setattr("os.environ", environ)
    monkeypatch.setattr(short_errors, "spark_program", lambda: program)

    @short_errors.short_errors()
    def fail(error: Exception) -> None:
        raise error

    with pytest.raises(ZeroDivisionError):
        fail(ZeroDivisionError())
    assert environ == {}
    with pytest.raises(PocketMQError):
        fail(InvalidSetting("odd"))
    assert environ.get(HIDE_TRACEBACK) == hidden
