"""The ways through the rows that are measured: ours, Parquet's and Kafka's, as a batch and as a stream, to nowhere and to Parquet."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, sleep
from typing import Any, Final, NamedTuple
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession

from bench.broker.shots import NotMeasured
from bench.spark.stage import FEW, Kafka, Rows, address_of
from pocketmq.pipelines import Progress, Run
from pocketmq.pipelines.archive.job import run_archive
from pocketmq.pipelines.archive.manifest import read_manifest
from pocketmq.pipelines.archive.settings import ArchiveSettings
from pocketmq.spark import read_topic

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
ARCHIVE_CPU_AIM: Final = 1.4
"""CPU of an archive for a row, beside Spark's copy of the same rows from Parquet to Parquet."""
ARCHIVE_SHARE_AIM: Final = 0.6
"""Of the rate of `--engine direct`."""
ARCHIVED: Final = "archive, all columns"
DIRECT: Final = f"{ARCHIVED}, --engine direct"
IN_LAKE: Final = ("topic", "brokerName", "queueId", "queueOffset", "value", "storeTimestamp")
"""The columns of a lake for `--select value`: the manifest needs the others."""
PER_BATCH: Final = 1_000_000
KAFKA_COLUMNS: Final = {
    "topic": "topic",
    "brokerName": "'broker-a'",
    "queueId": "partition",
    "queueOffset": "offset",
    "msgId": "properties['UNIQ_KEY']",
    "keys": "string(key)",
    "tags": "properties['TAGS']",
    "value": "value",
    "properties": "properties",
    "bornTimestamp": "timestamp",
    "storeTimestamp": "timestamp",
    "reconsumeTimes": "0",
}
"""The columns of a lake, made of Kafka's. Headers have the properties."""
_PROPERTIES: Final = "map_from_entries(transform(headers, h -> struct(h.key, string(h.value)))) AS properties"
STREAM_PER_CORE_AIM: Final = 1.2
"""Times Kafka's rows for a second of CPU, in streams of 1 KB with all columns."""
STREAM_TO_PARQUET_AIM: Final = 1.1
"""Times Kafka's rate, in streams into Parquet with equal columns."""
EQUAL_COLUMNS: Final = {
    "keys": "key",
    "value": "value",
    "topic": "topic",
    "queueId": "partition",
    "queueOffset": "offset",
    "storeTimestamp": "timestamp",
}
"""Columns that both connectors have, by our name and by Kafka's."""
FIRST_ROW: Final = "first row of a batch"
FIRST_TRIGGER: Final = "first trigger of a stream"
FIRST_S: Final = 120.0
LOOK_S: Final = 0.002


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
    has_archive_aims: bool = False
    """At most `ARCHIVE_CPU_AIM` times the CPU of Parquet's copy, faster than Kafka, and `ARCHIVE_SHARE_AIM` of `DIRECT`."""
    per_core_aim: float = 1.0
    """With `has_share_aim`: times Kafka's rows for a second of CPU."""
    kafka_aim: float | None = None
    """Times Kafka's rate."""

    @property
    def comparison(self) -> str:
        """Cases with the same take turns. Those that write somewhere are one: most of their time is the writing."""
        if self.is_archive:
            return "archives"
        return self.what if self.what.endswith(NOOP) else "writes"

    @property
    def is_archive(self) -> bool:
        return self.what.startswith("archive")


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
        per_core = STREAM_PER_CORE_AIM if rows.body_bytes >= 1000 and not only else 1.0
        drained = lambda: self._drained(self._stream(long, only), "noop", total)  # noqa: E731
        yield Case(OURS, nowhere, total, drained, aim, True, per_core_aim=per_core)
        if self._kafka is not None:
            yield Case(KAFKA, nowhere, total, lambda: self._drained(self._kafka_stream(long, only), "noop", total))
        whole = rows.total
        yield Case(OURS, parquet, whole, lambda: self._drained(self._stream(rows.topic, only), "parquet", whole))
        if not only and self._kafka is not None:
            equal, times = "stream, equal columns, to Parquet", STREAM_TO_PARQUET_AIM
            ours, theirs = self._equal_stream, self._kafka_equal_stream
            yield Case(OURS, equal, whole, lambda: self._drained(ours(), "parquet", whole), kafka_aim=times)
            yield Case(KAFKA, equal, whole, lambda: self._drained(theirs(), "parquet", whole))

    def firsts(self) -> Iterator[Case]:
        """What a program waits for after its session is up; each in a Java of its own."""
        few = self._rows.few_topic
        yield Case(OURS, FIRST_ROW, FEW, lambda: _first_row(self._batch(few, False)))
        if self._kafka is not None:
            yield Case(KAFKA, FIRST_ROW, FEW, lambda: _first_row(self._kafka_batch(few, False)))
        yield Case(OURS, FIRST_TRIGGER, FEW, lambda: self._first_trigger(self._stream(few, False)))
        if self._kafka is not None:
            yield Case(KAFKA, FIRST_TRIGGER, FEW, lambda: self._first_trigger(self._kafka_stream(few, False)))

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
        """The pipeline `archive`, with its manifest, beside Spark's copies of equal columns: from Parquet, and from Kafka."""
        total = self._rows.long_total
        for what, only in ((ARCHIVED, False), ("archive, value only", True)):
            yield Case(PARQUET, what, total, partial(self._copied, only))
            chosen = {"select": ["value"]} if only else {}
            yield Case(OURS, what, total, partial(self._archived, **chosen), has_archive_aims=True)
            if self._kafka is not None:
                yield Case(KAFKA, what, total, partial(self._kafka_archived, only))
        yield Case(OURS, DIRECT, total, partial(self._archived, engine="direct"))

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

    def _equal_stream(self) -> DataFrame:
        options = {**self._address, "startingOffsets": "earliest"}
        return read_topic(self._spark, self._rows.topic, columns=list(EQUAL_COLUMNS), stream=True, options=options)

    def _kafka_equal_stream(self) -> DataFrame:
        options = self._kafka_options(self._rows.topic, only_value=True)
        return self._spark.readStream.format("kafka").options(**options).load().select(*EQUAL_COLUMNS.values())

    def _parquet(self, folder: str, only_value: bool) -> DataFrame:
        frame = self._spark.read.parquet(folder)
        return frame.select("value") if only_value else frame

    def _kafka_lake(self, only_value: bool) -> DataFrame:
        reader = self._spark.readStream.format("kafka").options(
            **self._kafka_options(self._rows.long_topic, only_value)
        )
        frame = reader.option("maxOffsetsPerTrigger", str(PER_BATCH)).load()
        names = IN_LAKE if only_value else tuple(KAFKA_COLUMNS)
        if not only_value:
            frame = frame.selectExpr("*", _PROPERTIES)
        return frame.selectExpr(*(f"{KAFKA_COLUMNS[name]} AS {name}" for name in names))

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

    def _copied(self, only_value: bool) -> None:
        frame = self._spark.read.parquet(self._rows.long_parquet)
        self._to_parquet(frame.select(*IN_LAKE) if only_value else frame)

    def _kafka_archived(self, only_value: bool) -> float:
        return self._drained(self._kafka_lake(only_value), "parquet", self._rows.long_total)

    def _to_parquet(self, frame: DataFrame) -> None:
        with TemporaryDirectory(dir=self._folder) as place:
            frame.write.mode("overwrite").parquet(place)

    def _archived(self, **more: Any) -> float:
        """Seconds of the triggers of a run: the start of a query is no throughput."""
        with TemporaryDirectory(dir=self._folder) as folder:
            took_ms: dict[int, int] = {}

            def tell(progress: Progress) -> None:
                took_ms[progress.batch] = progress.took_ms

            told = {"topics": [self._rows.long_topic], "max_messages": PER_BATCH, "compact": False, **more}
            settings = ArchiveSettings(namesrv=self._name_server, lake=folder, **told)
            run_archive(self._spark, settings, Run(report=tell))
            found, total = read_manifest(Path(folder)).rows, self._rows.long_total
        assert found == total, f"the lake has {found} messages of {total}"
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

    def _first_trigger(self, frame: DataFrame) -> float:
        """Seconds until the first trigger is over. Stopping the query is not counted."""
        with TemporaryDirectory(dir=self._folder, ignore_cleanup_errors=True) as place:
            began = perf_counter()
            query = frame.writeStream.format("noop").option("checkpointLocation", place).start()
            try:
                while (progress := query.lastProgress) is None:
                    if perf_counter() > began + FIRST_S:
                        raise NotMeasured(f"there is no trigger in {FIRST_S:.0f} s")
                    sleep(LOOK_S)
                seconds = perf_counter() - began
            finally:
                query.stop()
        assert progress["numInputRows"] == FEW, f"the first trigger gave {progress['numInputRows']} rows of {FEW}"
        return seconds

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


def _first_row(frame: DataFrame) -> float:
    began = perf_counter()
    assert frame.first() is not None
    return perf_counter() - began


def to_noop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()
