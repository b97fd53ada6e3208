"""Pulled records to Arrow batches: by columns, beside record by record as one would write it first.

A buffer is 2 MB of messages as a Java producer sends them: random bodies that differ in length, four properties. Sent in a
batch, RocketMQ 5 gives them two more, whose names repeat.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from bench.method import Candidate, Subject
from bench.samples import BORN_HOST, NOW_MS, STORE_HOST, TOPIC
from pocketmq.model.queue import MessageQueue, QueueRange
from pocketmq.protocol.record import decode_records, encode_record
from pocketmq.spark.arrow import arrow_schema, pa
from pocketmq.spark.decode.decoding import Decoder, Pulled
from pocketmq.spark.schema import Name

BUFFER_BYTES: Final = 2 * 1024 * 1024
ALL: Final = tuple(Name)
WITHOUT_MAP: Final = tuple(name for name in Name if name is not Name.PROPERTIES)
QUEUE: Final = MessageQueue(TOPIC, "broker-a", 3)


class Choice(NamedTuple):
    """Columns that a query asks for, and how long a row may take at 100 bytes."""

    name: str
    columns: tuple[Name, ...]
    aim_us: float | None = None


CHOICES: Final = (
    Choice("value only", (Name.VALUE,), aim_us=0.5),
    Choice("queueOffset and tags", (Name.QUEUE_OFFSET, Name.TAGS)),
    Choice("all but the map", WITHOUT_MAP),
    Choice("all columns", ALL, aim_us=1.43),
)


def made_buffer(body_bytes: int, total_bytes: int = BUFFER_BYTES, *, batched: bool = False) -> bytes:
    """Records of about this size, until the buffer is full."""
    dice = random.Random(7)
    records: list[bytes] = []
    size = 0
    while size < total_bytes:
        records.append(_record(len(records), dice.randbytes(max(1, body_bytes - 10 + dice.randrange(21))), batched))
        size += len(records[-1])
    return b"".join(records)


def _record(number: int, body: bytes, batched: bool) -> bytes:
    unique_id = f"7F000001129C4E0E2F2A49F747F3{number:04X}"
    text = f"KEYS\x01order{number}\x02UNIQ_KEY\x01{unique_id}\x02WAIT\x01true\x02TAGS\x01Tag{number % 5}\x02"
    if batched:
        text += "UNIQ_KEY\x017F000001129C4E0E2F2A49F747F3FFFF\x02WAIT\x01true\x02"
    return encode_record(
        TOPIC.encode(), 3, number, number * 300, body, text.encode(), 0, 0, NOW_MS, BORN_HOST, NOW_MS + 1, STORE_HOST
    )


def by_columns(buffer: bytes, columns: Sequence[Name]) -> list[Any]:
    decoder = Decoder(columns)
    return list(decoder.batches([Pulled(QueueRange(QUEUE, 0, 2**62), buffer)]))


_CELLS: Final[dict[Name, Callable[[Any], Any]]] = {
    Name.TOPIC: lambda message: message.topic,
    Name.BROKER_NAME: lambda _message: QUEUE.broker_name,
    Name.QUEUE_ID: lambda message: message.queue_id,
    Name.QUEUE_OFFSET: lambda message: message.queue_offset,
    Name.MSG_ID: lambda message: message.message_id,
    Name.KEYS: lambda message: message.properties.get("KEYS"),
    Name.TAGS: lambda message: message.tags,
    Name.VALUE: lambda message: message.body,
    Name.PROPERTIES: lambda message: list(message.properties.items()),
    Name.BORN_TIMESTAMP: lambda message: message.born_ms * 1000,
    Name.STORE_TIMESTAMP: lambda message: message.store_ms * 1000,
    Name.RECONSUME_TIMES: lambda message: message.reconsume_times,
}


def by_rows(buffer: bytes, columns: Sequence[Name]) -> list[Any]:
    messages = decode_records(buffer, check_crc=False)
    schema = arrow_schema(columns)
    lists = [list(map(_CELLS[name], messages)) for name in columns]
    return [
        pa.RecordBatch.from_arrays(
            [pa.array(cells, field.type) for cells, field in zip(lists, schema, strict=True)], schema=schema
        )
    ]


def subjects(total_bytes: int = BUFFER_BYTES) -> list[Subject]:
    buffers = {
        "100 B": made_buffer(100, total_bytes),
        "1 KB": made_buffer(1024, total_bytes),
        "100 B in batches": made_buffer(100, total_bytes, batched=True),
    }
    return [
        _subject(f"{label}, {choice.name}", buffer, choice, with_aim=label == "100 B")
        for label, buffer in buffers.items()
        for choice in CHOICES
    ]


def _subject(name: str, buffer: bytes, choice: Choice, *, with_aim: bool) -> Subject:
    ours, theirs = by_columns(buffer, choice.columns), by_rows(buffer, choice.columns)
    assert ours[0].equals(theirs[0]), "both decode the same"
    candidates = [
        Candidate("by columns", lambda: by_columns(buffer, choice.columns), ours=True),
        Candidate("record by record", lambda: by_rows(buffer, choice.columns)),
    ]
    return Subject(name, ours[0].num_rows, candidates, choice.aim_us if with_aim else None)
