"""Rows to what is sent of them, with their ids, as a task of a sink makes it before it sends any."""

from typing import Any, Final

from bench.method import Candidate, Subject
from bench.samples import TOPIC
from pocketmq.client.producer.outgoing import Outgoing
from pocketmq.client.settings import ProducerSettings
from pocketmq.clock import SystemClock
from pocketmq.model.message import Message
from pocketmq.model.message_id import UniqueIds
from pocketmq.spark.arrow import pa
from pocketmq.spark.write.sink_batches import BatchPacker, PlainRows
from pocketmq.spark.write.sink_replays import Replay, RowIds, row_head
from pocketmq.spark.write.sink_rows import SinkRows

ROWS: Final = 2000
BATCH_BYTES: Final = 512 * 1024
_SETTINGS: Final = ProducerSettings(name_servers=("127.0.0.1:9876",), group="bench")


def made_batch(rows: int = ROWS) -> Any:
    return pa.RecordBatch.from_pydict(
        {
            "value": [b"%04d" % number * 25 for number in range(rows)],
            "keys": [f"order{number}" for number in range(rows)],
            "tags": [f"Tag{number % 5}" for number in range(rows)],
        }
    )


def plain_rows(batch: Any) -> PlainRows:
    found = SinkRows(batch.schema, topic=TOPIC).plain(batch, _SETTINGS.compress_over_bytes)
    assert found is not None, "these rows can share batches"
    return found


def encoded(rows: PlainRows) -> list[Outgoing]:
    return list(BatchPacker(_SETTINGS, UniqueIds(b"\x7f\x00\x00\x01", 1, 1), SystemClock(), BATCH_BYTES).packed(rows))


def encoded_with_ids(rows: PlainRows) -> list[Outgoing]:
    heads = [row_head(rows.topic, each) for each in rows.own or [{}] * len(rows)]
    ids = Replay(RowIds("query", 1, 0), []).new_ids(heads, rows.bodies)
    return encoded(PlainRows(rows.topic, rows.bodies, rows.own, [row_id for row_id in ids if row_id is not None]))


def as_messages(batch: Any) -> list[Message]:
    return SinkRows(batch.schema, topic=TOPIC).messages(batch)


def by_rows(batch: Any) -> list[Message]:
    return [Message(TOPIC, row["value"], keys=row["keys"], tags=row["tags"]) for row in batch.to_pylist()]


def subjects(rows: int = ROWS) -> list[Subject]:
    batch = made_batch(rows)
    candidates = [
        Candidate("encoded by columns", lambda: encoded(plain_rows(batch)), ours=True),
        Candidate("encoded, with row ids", lambda: encoded_with_ids(plain_rows(batch)), ours=True),
        Candidate("messages, not encoded", lambda: as_messages(batch), ours=True),
        Candidate("row by row, unchecked", lambda: by_rows(batch)),
    ]
    return [Subject("sink, 100 B", rows, candidates)]
