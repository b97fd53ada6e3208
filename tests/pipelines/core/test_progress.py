"""Progress: Spark's reports, counted by offsets, and the derived values."""

from io import StringIO
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from rich.console import Console

from pocketmq.model.queue import MessageQueue, QueueRange
from pocketmq.pipelines.core.progress import Tally, batch_of, eta_text, progress_table
from pocketmq.spark.read.offsets import Cause, Lost, QueryOffset

QUEUE = MessageQueue("orders", "broker-a", 0)


def offset(place: int, first: int | None = None, lost: tuple[Lost, ...] = ()) -> dict[str, Any]:
    return QueryOffset({QUEUE: place}, {} if first is None else {QUEUE: first}, 1, lost).to_json()


def report(batch: int, start: Any, end: Any, latest: Any = None, **more: Any) -> dict[str, Any]:
    source = {"startOffset": start, "endOffset": end, "latestOffset": latest, "numInputRows": 7}
    return {
        "batchId": batch,
        "timestamp": f"t{batch}-{end}",
        "sources": [source],
        "durationMs": {"triggerExecution": 500},
        **more,
    }


def test_messages_are_counted_by_offsets_from_the_start_of_the_first_batch() -> None:
    first = batch_of(report(0, None, offset(30, first=10)))
    second = batch_of(report(1, offset(30, first=10), offset(45), offset(100)))

    assert (first.messages, first.behind) == (20, None)
    assert (second.messages, second.behind) == (15, 55)


def test_without_a_time_the_ends_of_queues_are_planned() -> None:
    latest = offset(100)
    del latest["seenMs"]

    assert batch_of(report(1, offset(30), offset(45), {**latest, "groupId": "g"})).behind == 55


def test_an_empty_poll_is_not_a_batch_and_a_repeated_report_counts_once() -> None:
    tally = Tally("q")
    idle = report(1, offset(30), offset(30))
    rows = tally.add([report(0, None, offset(30, first=0)), idle])
    rows += tally.add([idle, report(1, offset(30), offset(40), offset(60))])

    assert [(row.batch, row.messages) for row in rows] == [(0, 30), (1, 30), (1, 40)]
    assert (tally.messages, tally.batches) == (40, 2)
    assert rows[-1].behind == 20
    assert rows[-1].eta_s == pytest.approx(20 / (40 / 1.5), abs=0.1)


def test_rates_lost_ranges_late_rows_and_duplicates_are_summed() -> None:
    lost = Lost(QueueRange(QUEUE, 3, 9), Cause.RETENTION)
    states = [{"numRowsDroppedByWatermark": 2, "numRowsTotal": 5, "customMetrics": {"numDroppedDuplicateRows": 4}}]
    tally = Tally("q")

    [row, last] = tally.add(
        [
            report(0, None, offset(100, first=0, lost=(lost,)), stateOperators=states),
            report(1, offset(100), offset(200), stateOperators=states, eventTime={"watermark": "then"}),
        ]
    )

    assert tally.lost == [lost]
    assert (last.late, last.duplicates, last.kept, last.watermark) == (4, 8, 5, "then")
    assert row.per_s == last.per_s == 200.0


def test_other_sources_are_counted_by_rows() -> None:
    batch = batch_of(
        {"batchId": 3, "sources": [{"endOffset": "17", "numInputRows": 9}], "sink": {"numOutputRows": 4}}, "q"
    )

    assert (batch.messages, batch.behind, batch.rows_written, batch.query) == (9, None, 4, "q")
    assert batch_of({"batchId": 0, "name": "named", "sources": []}).query == "named"


def test_an_unreadable_offset_counts_as_that_of_another_source() -> None:
    batch = batch_of(report(0, None, {"version": 9, "queues": {}, "seenMs": 1}))

    assert batch.messages == 7


def test_the_table_has_a_row_for_each_query() -> None:
    [row] = Tally("archive of orders").add([report(0, None, offset(1000, first=0), offset(4000))])

    console = Console(file=StringIO(), width=120)
    console.print(progress_table([row]))

    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "archive of orders" in text
    assert "1,000" in text
    assert "3,000" in text


@pytest.mark.parametrize(
    ("eta_s", "words"), [(None, "unknown"), (0.2, "now"), (12, "12 s"), (300, "5 min"), (9000, "2 h 30 min")]
)
def test_the_remaining_time_is_estimated(eta_s: float | None, words: str) -> None:
    assert eta_text(eta_s) == words


def test_silent_brokers_are_reported_and_the_backlog_is_unknown() -> None:
    latest = {**offset(100), "outage": {"error": "ConnectFailed: refused", "lastedMs": 9_000}}

    [row] = Tally("q").add([report(1, offset(30), offset(30), latest)])

    assert (row.state, row.outage, row.behind) == ("waiting", "ConnectFailed: refused", None)
