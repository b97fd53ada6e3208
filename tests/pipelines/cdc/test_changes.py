"""Messages of Debezium become changes with a position; what is no change has a reason."""

import json
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from tests.pipelines.cdc.debezium_kit import ORDERS, body, change, messages, payload, source

from pocketmq.pipelines.cdc.changes import (
    AT,
    CONNECTOR,
    OP,
    POSITION,
    REASON,
    ROW,
    SCHEMA,
    Envelope,
    counted,
    with_positions,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROME = {"id": 1, "city": "Rome"}
TIMED: dict[str, Any] = {"connector": "vitess", "ts_ms": 5}


def test_changes_are_read_with_a_schema_and_without(spark: "SparkSession") -> None:
    bodies = [
        change("r", 100, ROME),
        change("u", 110, {"id": 1, "city": "Oslo"}, ()),
        change("d", 120, ROME, ()),
        "null",
        '{"schema":null,"payload":null}',
    ]

    rows = Envelope(["id"]).changes(messages(spark, bodies)).orderBy(POSITION).collect()

    assert [row[REASON] for row in rows] == [None, None, None], "tombstones are no changes"
    assert [row[OP] for row in rows] == ["r", "u", "d"]
    assert [json.loads(row[ROW])["city"] for row in rows] == ["Rome", "Oslo", "Rome"]
    assert [bool(row[SCHEMA]) for row in rows] == [True, False, False]
    assert {row[CONNECTOR] for row in rows} == {"postgresql"}
    assert f"{rows[0][AT]:%Y-%m-%d %H:%M:%S.%f}".endswith("00:00:00.100000")


LOG: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a change follows its snapshot, also if its transaction was open then": (
        {"op": "r", "source": source(100)},
        {"op": "u", "source": source(90)},
    ),
    "changes behind the first commit follow that transaction": (
        {"op": "u", "source": source(90)},
        {"op": "u", "source": source(85, commit=110)},
    ),
    "of one transaction": ({"source": source(90, commit=80)}, {"source": source(95, commit=80)}),
    "of two transactions": ({"source": source(95, commit=80)}, {"source": source(93, commit=96)}),
    "an LSN of more digits": ({"source": source(99)}, {"source": source(100)}),
    "the next file of a binlog": (
        {"source": {"connector": "mysql", "file": "mysql-bin.000009", "pos": 500, "row": 0}},
        {"source": {"connector": "mysql", "file": "mysql-bin.000010", "pos": 4, "row": 0}},
    ),
    "the next row of an event": (
        {"source": {"connector": "mariadb", "file": "bin.1", "pos": 500, "row": 9}},
        {"source": {"connector": "mariadb", "file": "bin.1", "pos": 500, "row": 10}},
    ),
    "SQL Server, behind a snapshot": (
        {"op": "r", "source": {"connector": "sqlserver", "commit_lsn": "0000002A:00:01"}},
        {
            "source": {
                "connector": "sqlserver",
                "commit_lsn": "0000002a:00:01",
                "change_lsn": "00000001:00:01",
                "event_serial_no": 1,
            }
        },
    ),
    "Oracle": (
        {"op": "r", "source": {"connector": "oracle", "scn": "200"}},
        {"source": {"connector": "oracle", "scn": "190", "commit_scn": "201"}},
    ),
    "only times": ({"source": TIMED}, {"source": {**TIMED, "ts_ms": 6}}),
    "equal times, in the order of their queue": ({"source": TIMED}, {"source": TIMED}),
}


def test_positions_have_the_order_of_the_log(spark: "SparkSession") -> None:
    bodies = [body({**payload("u", 0, ROME), **one}) for pair in LOG.values() for one in pair]

    changes = Envelope(["id"]).changes(messages(spark, bodies))
    rows = with_positions(changes, counted(changes).snapshot_at).collect()

    positions = [row[POSITION] for row in rows]
    assert [row[REASON] for row in rows] == [None] * len(bodies)
    wrong = [name for name, early, late in zip(LOG, positions[::2], positions[1::2], strict=True) if not early < late]
    assert wrong == []


BAD: dict[str, tuple[str, str | None, str]] = {
    "text": ("this is no JSON", '{"id":1}', "it has no `op`"),
    "flat": (json.dumps(ROME), '{"id":1}', "ExtractNewRecordState"),
    "without key": (change("u", 1, ROME), None, "the message has no key"),
    "another key": (change("u", 1, ROME), '{"schema":{},"payload":{"region":1}}', "has region, and --keys is id"),
    "truncated": (change("t", 1, None), '{"id":1}', "the operation t cannot be merged"),
    "no row": (change("u", 1, None), '{"id":1}', "`after` or, of a deletion, `before` is missing"),
    "no position": (
        body({**payload("u", 1, ROME), "source": {"connector": "db2"}}),
        '{"id":1}',
        "no position in the log",
    ),
    "documents": (
        body({**payload("u", 1, ROME), "source": {"connector": "mongodb", "ts_ms": 1}}),
        '{"id":1}',
        "changes of MongoDB are documents",
    ),
}


def test_a_message_that_is_no_change_has_a_reason(spark: "SparkSession") -> None:
    bodies = [text for text, _, _ in BAD.values()]
    keys = [key for _, key, _ in BAD.values()]

    changes = Envelope(["id"]).changes(messages(spark, bodies, keys))

    reasons = [str(row[REASON]) for row in changes.collect()]
    wrong = [name for (name, (_, _, part)), text in zip(BAD.items(), reasons, strict=True) if part not in text]
    assert wrong == [], reasons
    assert counted(changes).bad == len(BAD)


def test_a_deletion_without_its_row_has_that_of_the_key(spark: "SparkSession") -> None:
    deletion: Any = body({**payload("d", 5, None), "before": None})

    [row] = Envelope(["id"]).changes(messages(spark, [deletion], ['{"id":7}'])).collect()

    assert (row[REASON], json.loads(row[ROW])) == (None, {"id": 7})


def test_a_batch_is_counted_by_schema(spark: "SparkSession") -> None:
    more = [*ORDERS, {"type": "string", "optional": True, "field": "note"}]
    bodies = [
        change("c", 1, ROME),
        change("u", 2, {**ROME, "note": "__debezium_unavailable_value"}, more),
        "no change",
    ]

    found = counted(Envelope(["id"]).changes(messages(spark, bodies)))

    assert ["note" in schema for schema in found.schemas] == [True, False], "the newest first"
    assert (found.connectors, found.has_unchanged, found.bad) == (["postgresql"], True, 1)
