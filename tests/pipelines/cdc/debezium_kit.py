"""Messages as Debezium sends them, and the rows of a batch of them."""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = (
    "topic string, brokerName string, queueId int, queueOffset bigint, msgId string, keys string, tags string, value binary, "
    "properties map<string,string>, bornTimestamp timestamp, storeTimestamp timestamp, reconsumeTimes int"
)
ORDERS: Sequence[dict[str, Any]] = (
    {"type": "int32", "optional": False, "field": "id"},
    {"type": "string", "optional": True, "field": "city"},
)
"""The columns of a table, as Debezium describes them."""


def source(lsn: int, *, commit: int | None = None, connector: str = "postgresql", **more: Any) -> dict[str, Any]:
    """Where a change is in the log of PostgreSQL: `commit` is the last one before its transaction."""
    sequence = json.dumps([None if commit is None else str(commit), str(lsn)])
    return {"connector": connector, "ts_ms": 1_767_225_600_000 + lsn, "lsn": lsn, "sequence": sequence, **more}


def payload(op: str, lsn: int, row: Mapping[str, Any] | None, **more: Any) -> dict[str, Any]:
    images = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
    return {
        "op": op,
        **images,
        "source": source(lsn, commit=None if op == "r" else lsn - 1),
        "ts_ms": 1_767_225_600_999,
        **more,
    }


def envelope(columns: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The schema of a message for a table with these columns."""
    row = {"type": "struct", "optional": True, "fields": list(columns)}
    fields = [{**row, "field": "before"}, {**row, "field": "after"}, {"type": "string", "field": "op"}]
    return {"type": "struct", "fields": fields, "name": "shop.public.orders.Envelope"}


def body(change: Mapping[str, Any], columns: Sequence[Mapping[str, Any]] = ()) -> str:
    """A body, with the schema of these columns or without one."""
    return json.dumps({"schema": envelope(columns), "payload": change} if columns else change)


def change(
    op: str, lsn: int, row: Mapping[str, Any] | None, columns: Sequence[Mapping[str, Any]] = ORDERS, **more: Any
) -> str:
    return body(payload(op, lsn, row, **more), columns)


def messages(
    spark: "SparkSession",
    bodies: Sequence[str],
    keys: Sequence[str | None] | None = None,
    *,
    queue: int = 0,
    start: int = 0,
) -> "DataFrame":
    """Messages of one queue. Without `keys`, each has `{"id": …}` of its row."""
    found = keys or [_key_of(text) for text in bodies]
    rows: list[Any] = [
        ("shop-orders", "broker-a", queue, offset, "", key, None, bytearray(text.encode()), {}, None, None, 0)
        for offset, (text, key) in enumerate(zip(bodies, found, strict=True), start)
    ]
    return spark.createDataFrame(rows, COLUMNS)


def _key_of(text: str) -> str:
    try:
        whole = json.loads(text)
        change = whole.get("payload", whole)
        return json.dumps({"id": (change["after"] or change["before"])["id"]})
    except (ValueError, KeyError, TypeError, AttributeError):
        return '{"id": 0}'
