"""The ways through the rows that are measured: ours, Parquet's and Kafka's, as a batch and as a stream, to nowhere and to Parquet."""

from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession

from bench.spark.stage import FEW, Kafka, Rows, address_of
from pocketmq.pipelines import Progress, Run
from pocketmq.pipelines.archive.job import run_archive
from pocketmq.pipelines.archive.settings import ArchiveSettings

VALUE: Final = "value binary"
OURS: Final = "PocketMQ"
PARQUET: Final = "Parquet"
KAFKA: Final = "Kafka"
NOOP: Final = "to noop"

NOOP_ROWS_AIM: Final = 1_000_000.0
"""Rows of 100 bytes a second into noop."""
NOOP_BYTES_AIM: Final = 500e6
"""Bytes of bodies of 1 KB a second into noop."""
SINK_AIM: Final = 150_000.0
PARQUET_SHARE_AIM: Final = 0.6


class Case(NamedTuple):
    """One way. `run` goes through `rows` rows, and may tell how many seconds count.

    `what` is what it has in common with the cases of others that it is compared with.
    """

    who: str
    what: str
    rows: int
    run: Callable[[], float | None]
    rate_aim: float | None = None
    has_share_aim: bool = False
    """At least `PARQUET_SHARE_AIM` of Parquet's rate, where Parquet has such a case, and less CPU than Kafka's."""

    @property
    def comparison(self) -> str:
        """Cases with the same take turns. Those that write somewhere are one: most of their time is the writing."""
        return self.what if self.what.endswith(NOOP) else "writes"


class Ways:
    """Makes the cases for rows of one size. They run in the session of Spark that is there by then."""

    def __init__(self, name_server: str, beside: Kafka | None, rows: Rows, folder: Path) -> None:
        self._name_server = name_server
        self._address = address_of(name_server)
        self._kafka = beside
        self._rows = rows
        self._folder = folder

    def all(self) -> Iterator[Case]:
        yield from self._reads()
        yield from self._sinks()
        yield from self._archives()

    def _reads(self) -> Iterator[Case]:
        for only_value in (False, True):
            yield from self._batches(only_value)
            yield from self._streams(only_value)

    def _batches(self, only: bool) -> Iterator[Case]:
        rows, columns = self._rows, _columns(only)
        nowhere, parquet = f"batch, {columns}, {NOOP}", f"batch, {columns}, to Parquet"
        long, total = rows.long_topic, rows.long_total
        yield Case(PARQUET, nowhere, total, lambda: to_noop(self._parquet(rows.long_parquet, only)))
        yield Case(OURS, nowhere, total, lambda: to_noop(self._batch(long, only)), self._noop_aim, True)
        if self._kafka is not None:
            yield Case(KAFKA, nowhere, total, lambda: to_noop(self._kafka_batch(long, only)))
        yield Case(PARQUET, parquet, rows.total, lambda: self._to_parquet(self._parquet(rows.parquet, only)))
        yield Case(OURS, parquet, rows.total, lambda: self._to_parquet(self._batch(rows.topic, only)))

    def _streams(self, only: bool) -> Iterator[Case]:
        rows, columns = self._rows, _columns(only)
        nowhere, parquet = f"stream, {columns}, {NOOP}", f"stream, {columns}, to Parquet"
        long, total = rows.long_topic, rows.long_total
        aim = self._noop_aim
        yield Case(OURS, nowhere, total, lambda: self._drained(self._stream(long, only), "noop", total), aim, True)
        if self._kafka is not None:
            yield Case(KAFKA, nowhere, total, lambda: self._drained(self._kafka_stream(long, only), "noop", total))
        whole = rows.total
        yield Case(OURS, parquet, whole, lambda: self._drained(self._stream(rows.topic, only), "parquet", whole))

    def starts(self, only: bool) -> Iterator[Case]:
        """Streams of few rows: what they cost is the start of a query."""
        few, what = self._rows.few_topic, f"stream, {_columns(only)}, {NOOP}"
        yield Case(OURS, what, FEW, lambda: self._drained(self._stream(few, only), "noop", FEW))
        if self._kafka is not None:
            yield Case(KAFKA, what, FEW, lambda: self._drained(self._kafka_stream(few, only), "noop", FEW))

    @property
    def _noop_aim(self) -> float:
        size = self._rows.body_bytes
        return NOOP_ROWS_AIM if size < 1000 else NOOP_BYTES_AIM / size

    def _sinks(self) -> Iterator[Case]:
        rows = self._rows.sink_total
        yield Case(OURS, "sink, at-least-once", rows, lambda: self._write({}), SINK_AIM)
        yield Case(OURS, "sink, effectively-once", rows, lambda: self._write({"writeId": uuid4().hex}), SINK_AIM)
        if self._kafka is not None:
            yield Case(KAFKA, "sink, at-least-once", rows, self._kafka_write)

    def _archives(self) -> Iterator[Case]:
        """The pipeline `archive`, with its manifest, beside Parquet's own copy of the same rows."""
        rows = self._rows
        yield Case(OURS, "archive, all columns", rows.total, lambda: self._archived())
        yield Case(OURS, "archive, value only", rows.total, lambda: self._archived(select=["value"]))
        yield Case(OURS, "archive, all columns, --engine direct", rows.total, lambda: self._archived(engine="direct"))

    # frames

    @property
    def _spark(self) -> SparkSession:
        return SparkSession.active()

    def _batch(self, topic: str, only_value: bool) -> DataFrame:
        reader = self._spark.read.format("rocketmq").options(**self._address, subscribe=topic)
        return (reader.schema(VALUE) if only_value else reader).load()

    def _stream(self, topic: str, only_value: bool) -> DataFrame:
        reader = self._spark.readStream.format("rocketmq").options(**self._address, subscribe=topic)
        return (reader.schema(VALUE) if only_value else reader).option("startingOffsets", "earliest").load()

    def _parquet(self, folder: str, only_value: bool) -> DataFrame:
        frame = self._spark.read.parquet(folder)
        return frame.select("value") if only_value else frame

    def _kafka_batch(self, topic: str, only_value: bool) -> DataFrame:
        frame = self._spark.read.format("kafka").options(**self._kafka_options(topic, only_value)).load()
        return frame.select("value") if only_value else frame

    def _kafka_stream(self, topic: str, only_value: bool) -> DataFrame:
        frame = self._spark.readStream.format("kafka").options(**self._kafka_options(topic, only_value)).load()
        return frame.select("value") if only_value else frame

    def _kafka_options(self, topic: str, only_value: bool) -> dict[str, str]:
        assert self._kafka is not None
        options = {"kafka.bootstrap.servers": self._kafka.address, "subscribe": topic}
        return {**options, "startingOffsets": "earliest", "includeHeaders": str(not only_value).lower()}

    # runs

    def _to_parquet(self, frame: DataFrame) -> None:
        with TemporaryDirectory(dir=self._folder) as place:
            frame.write.mode("overwrite").parquet(place)

    def _archived(self, **more: Any) -> float:
        """Seconds of the triggers of a run: the start of a query is no throughput."""
        with TemporaryDirectory(dir=self._folder) as folder:
            took_ms: dict[int, int] = {}

            def tell(progress: Progress) -> None:
                took_ms[progress.batch] = progress.took_ms

            settings = ArchiveSettings(
                namesrv=self._name_server, topics=[self._rows.topic], lake=folder, compact=False, **more
            )
            summary = run_archive(self._spark, settings, Run(report=tell))
        assert summary.messages == self._rows.total, f"the lake has {summary.messages} messages of {self._rows.total}"
        return sum(took_ms.values()) / 1000

    def _drained(self, frame: DataFrame, sink: str, total: int) -> float:
        """Seconds of the triggers that brought rows: the start of a query is no throughput."""
        with TemporaryDirectory(dir=self._folder) as place:
            writer = frame.writeStream.format(sink).option("checkpointLocation", f"{place}/checkpoint")
            if sink == "parquet":
                writer = writer.option("path", f"{place}/rows")
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination()
            told = [one for one in query.recentProgress if one["numInputRows"]]
        seen = sum(one["numInputRows"] for one in told)
        assert seen == total, f"the stream gave {seen} rows of {total}"
        return float(sum(one["durationMs"]["triggerExecution"] for one in told)) / 1000

    def _write(self, more: dict[str, str]) -> None:
        frame = self._spark.read.parquet(self._rows.sink_parquet)
        options = {**self._address, "topic": self._rows.sink_topic, **more}
        frame.write.format("rocketmq").options(**options).mode("append").save()

    def _kafka_write(self) -> None:
        assert self._kafka is not None
        frame = self._spark.read.parquet(self._rows.sink_parquet)
        options = {"kafka.bootstrap.servers": self._kafka.address, "topic": self._rows.sink_topic}
        frame.write.format("kafka").options(**options).save()


def _columns(only_value: bool) -> str:
    return "value only" if only_value else "all columns"


def to_noop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()
