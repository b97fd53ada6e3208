"""Trace messages as rows, including unreadable ones."""

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from pocketmq.pipelines.jobs.trace import event_rows
from pocketmq.protocol.trace_text import (
    Decision,
    EndTransaction,
    Outcome,
    Pub,
    Recall,
    SubAfter,
    SubBefore,
    TracedType,
    encode_trace,
)


def test_every_kind_of_record_is_an_event() -> None:
    body = encode_trace(
        [
            Pub(1000, "r", "p", "orders", "m1", "tag", "k", "1.2.3.4:1", 9, 3, TracedType.NORMAL, "o", True),
            SubBefore(2000, "r", "c", "q1", "m1", 1, "k"),
            SubAfter("q1", "m1", 7, False, "k", Outcome.RAISED, 0, "c"),
            EndTransaction(
                3000, "r", "p", "orders", "m2", None, None, None, TracedType.HALF, "t", Decision.COMMIT, False
            ),
            Recall(4000, "r", "p", "orders", "m3", True),
        ]
    )

    rows = event_rows(body)

    assert [row["event"] for row in rows] == ["sent", "consuming", "consumed", "decided", "recalled"]
    assert [row["atMs"] for row in rows] == [1000, 2000, None, 3000, 4000]
    assert rows[0] | {"costMs": 3, "ok": True, "messageType": "normal"} == rows[0]
    assert rows[2] | {"outcome": "raised", "ok": False, "group": "c"} == rows[2]
    assert rows[3]["outcome"] == "commit"


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"\xff", "trace text"),
        (b"Pub\x01x\x02", "trace record 0 (Pub)"),
        (b"Neu\x01x\x02", "unknown kind of record 'Neu'"),
    ],
)
def test_an_unreadable_record_is_an_event_with_its_problem(body: bytes, told: str) -> None:
    [row] = event_rows(body)

    assert row["event"] == "unreadable"
    assert told in row["problem"]
