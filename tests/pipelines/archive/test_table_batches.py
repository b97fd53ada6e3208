"""A batch is written on top of the newest record of a table, and without the offsets that the table holds."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from pocketmq.errors import PipelineFailed
from pocketmq.model import MessageQueue, QueueRange
from pocketmq.pipelines.archive.contents import Record
from pocketmq.pipelines.archive.form import Slot
from pocketmq.pipelines.archive.formats import State, is_conflict
from pocketmq.pipelines.archive.lake import Batch
from pocketmq.pipelines.archive.shape import Shape
from pocketmq.pipelines.archive.sinks import SinkSettings, TableSink
from pocketmq.pipelines.archive.table import ATTEMPTS, Target, add_batch
from pocketmq.spark.read.offsets import Cause, Lost

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUEUE = MessageQueue("orders", "broker-a", 0)


def part(start: int, end: int) -> QueueRange:
    return QueueRange(QUEUE, start, end)


class TableInMemory:
    """Commits of records. Before each of its first appends, another writer commits one of `others`."""

    def __init__(self, others: Sequence[Record] = ()) -> None:
        self.records: list[Record] = []
        self.rows: list[Any] = []
        self._others = list(others)

    def state(self) -> State:
        return State(self.records[-1] if self.records else Record(), len(self.records))

    def append(self, rows: Any, record: Record, at: int | None) -> bool:
        if self._others:
            self.records.append(self._others.pop(0))
        if at != len(self.records):
            return False
        self.rows.append(rows)
        self.records.append(record)
        return True


def target(table: TableInMemory) -> Target:
    class Opened(Target):
        def opened(self, spark: Any) -> Any:
            return table

    return Opened("delta", path="/lake")


def add(table: TableInMemory, *batches: Batch) -> list[list[QueueRange]]:
    @contextmanager
    def made(ranges: Sequence[QueueRange]) -> Iterator[Any]:
        yield list(ranges)

    spark: Any = None
    return [add_batch(spark, target(table), batch, made) for batch in batches]


def test_a_batch_is_written_once_whatever_its_checkpoint_says() -> None:
    table = TableInMemory()

    written = add(
        table,
        Batch("first", 0, (part(0, 10),)),
        Batch("first", 0, (part(0, 10),)),  # the driver ended between commit and checkpoint
        Batch("second", 0, (part(0, 15),)),  # a new checkpoint, with larger batches
    )

    assert written == [[part(0, 10)], [], [part(10, 15)]]
    assert table.rows == [[part(0, 10)], [part(10, 15)]]
    assert table.records[-1].ranges == [part(0, 15)]
    assert table.records[-1].batches == {"first": 0, "second": 0}


def test_a_batch_is_written_without_what_another_writer_committed_first() -> None:
    other = Record().next("x", "other", 0, [part(0, 4)], (), is_filtered=False)
    table = TableInMemory([other])

    written = add(table, Batch("own", 0, (part(0, 10),)))

    assert written == [[part(4, 10)]]
    assert table.records[-1].number == 2


def test_a_batch_fails_if_others_are_always_first() -> None:
    table = TableInMemory([Record(number=number) for number in range(1, ATTEMPTS + 1)])

    with pytest.raises(
        PipelineFailed, match=f"other writers committed first {ATTEMPTS} times; nothing of the batch was written"
    ):
        add(table, Batch("own", 0, (part(0, 10),)))

    assert table.rows == []


def test_a_batch_without_rows_records_its_losses_once() -> None:
    lost = (Lost(part(0, 4), Cause.RETENTION),)
    table = TableInMemory()

    add(table, Batch("own", 0, (), lost), Batch("own", 0, (), lost))

    assert [record.lost for record in table.records] == [lost]


@pytest.mark.parametrize(
    ("select", "columns"),
    [
        (["string(value) AS text"], ["text"]),
        (["value", "queueOffset + 100 AS queueOffset", "upper(topic) AS topic"], ["value", "queueOffset", "topic"]),
        (["queueOffset", "explode(array(1)) AS one"], ["queueOffset", "one"]),
        ([], ["topic", "brokerName", "queueId", "queueOffset", "value", "storeTimestamp", "day"]),
    ],
)
def test_a_part_of_a_batch_is_found_whatever_columns_are_selected(
    spark: "SparkSession", select: list[str], columns: list[str]
) -> None:
    messages = spark.range(10).selectExpr(
        "'orders' AS topic", "'broker-a' AS brokerName", "0 AS queueId", "id AS queueOffset", "string(id) AS value"
    )
    messages = messages.selectExpr("*", "timestamp_millis(queueOffset) AS storeTimestamp")
    table = TableInMemory()
    table.records.append(Record().next("x", "other", 0, [part(0, 6)], (), is_filtered=False))
    shape = Shape(Slot.DAY, select=select, has_offsets=True)
    sink = TableSink(target(table), SinkSettings(lake="/lake", format="delta", select=select), shape, "writer")

    sink.add(shape.prepared(messages), Batch("own", 0, (part(0, 10),)))

    (written,) = table.rows
    assert written.columns == columns
    assert written.count() == 4
    assert table.records[-1].added_ranges == [part(6, 10)]
    assert table.records[-1].is_filtered == any("explode" in text for text in select), "an array may be empty"


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("[DELTA_CONCURRENT_TRANSACTION] ConcurrentTransactionException: …", True),
        ("org.apache.iceberg.exceptions.ValidationException: Found conflicting files that can contain records", True),
        ("[DELTA_METADATA_CHANGED] …", True),
        ("No space left on device", False),
    ],
)
def test_a_conflict_is_recognised_among_other_failures(text: str, is_one: bool) -> None:
    assert is_conflict(Exception(text)) == is_one
