"""Rows to messages with their ids, as a task of a sink makes them before it sends any."""

from typing import Any, Final

from bench.method import Candidate, Subject
from bench.samples import TOPIC
from pocketmq.model.message import Message
from pocketmq.spark.libraries import pa
from pocketmq.spark.sink_ids import Replay, RowIds
from pocketmq.spark.sink_rows import SinkRows

ROWS: Final = 2000


def made_batch(rows: int = ROWS) -> Any:
    return pa.RecordBatch.from_pydict(
        {
            "value": [b"%04d" % number * 25 for number in range(rows)],
            "keys": [f"order{number}" for number in range(rows)],
            "tags": [f"Tag{number % 5}" for number in range(rows)],
        }
    )


def by_columns(batch: Any) -> list[Message]:
    return SinkRows(batch.schema, topic=TOPIC).messages(batch)


def by_columns_with_ids(batch: Any) -> list[Message]:
    replay = Replay(RowIds("query", 1, 0), [])
    return [message for message in by_columns(batch) if replay.admit(message)]


def by_rows(batch: Any) -> list[Message]:
    return [Message(TOPIC, row["value"], keys=row["keys"], tags=row["tags"]) for row in batch.to_pylist()]


def subjects(rows: int = ROWS) -> list[Subject]:
    batch = made_batch(rows)
    candidates = [
        Candidate("by columns", lambda: by_columns(batch), ours=True),
        Candidate("by columns, with ids", lambda: by_columns_with_ids(batch), ours=True),
        Candidate("row by row, unchecked", lambda: by_rows(batch)),
    ]
    return [Subject("sink, 100 B", rows, candidates)]
