"""The progress of Spark's queries, and restarts of failed ones."""

from types import SimpleNamespace
from typing import Any

import pytest

from pocketmq.demo.pipeline import MAX_FAILURES, Queries
from pocketmq.errors import PipelineFailed
from pocketmq.pipelines.core.progress import Progress


def nobody(text: str) -> None:
    """Records its messages."""


def heard(messages: int, behind: int | None, watermark: str | None = None) -> Queries:
    queries = Queries(nobody)
    queries.record(
        Progress(
            query="lake",
            batch=3,
            messages=messages,
            per_s=50.0,
            behind=behind,
            eta_s=None,
            took_ms=10,
            watermark=watermark,
        )
    )
    return queries


def test_processed_rows_are_stored_rows_minus_waiting_ones() -> None:
    assert heard(100, behind=30).done("lake", total=1_000) == 970
    assert heard(100, behind=None).done("lake", total=1_000) == 100
    assert Queries(nobody).done("lake", total=1_000) == 0


def test_a_query_is_a_line_with_its_watermark_once_it_has_one() -> None:
    (line,) = heard(100, 30, "2026-01-01T13:05:00.000Z").lines()
    (new,) = heard(100, 30, "1970-01-01T00:00:00.000Z").lines()

    assert (line.who, line.done, line.behind, line.detail) == ("Spark: lake", 100, 30, "batch 3, watermark 13:05")
    assert new.detail == "batch 3"


class FakeQuery:
    """A query that has failed, or runs."""

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error
        self.isActive = error is None
        self.lastProgress: Any = None
        self.recentProgress: list[Any] = []
        self.status: dict[str, Any] = {"isDataAvailable": False, "isTriggerActive": False}

    def exception(self) -> Exception | None:
        return self._error

    def stop(self) -> None:
        self.isActive = False


def test_a_failed_query_is_restarted_and_this_is_reported() -> None:
    said: list[str] = []
    made: Any = iter([FakeQuery(ValueError("no luck")), FakeQuery()])
    queries = Queries(said.append)
    queries.begin(["lake"], lambda name: next(made))

    queries.update()

    assert queries.are_active
    assert said == ["Query lake failed: no luck; starting it again"]


def test_a_query_that_cannot_start_is_tried_again() -> None:
    attempts: list[str] = []

    def start(name: str) -> Any:
        attempts.append(name)
        if len(attempts) < 3:
            raise OSError("busy")
        return FakeQuery()

    Queries(nobody).begin(["lake"], start)

    assert attempts == ["lake"] * 3


def test_too_many_failures_end_the_demo() -> None:
    said: list[str] = []
    queries = Queries(said.append)

    def start(name: str) -> Any:
        raise OSError("for ever")

    with pytest.raises(PipelineFailed, match="lake: for ever"):
        queries.begin(["lake"], start)

    assert len(said) == MAX_FAILURES


def test_queries_that_are_stopped_are_not_active() -> None:
    queries = Queries(nobody)
    queries.begin(["lake", "dead"], lambda name: FakeQuery())  # type: ignore[arg-type, return-value]

    queries.stop()

    assert not queries.are_active


def test_queries_have_caught_up_when_all_are_idle_without_new_data() -> None:
    idle, busy = FakeQuery(), FakeQuery()
    for query in (idle, busy):
        query.lastProgress = SimpleNamespace(json="{}")  # nothing of ours is behind
    busy.status = {"isDataAvailable": False, "isTriggerActive": True}
    queries = Queries(nobody)

    def start(name: str) -> Any:
        return {"lake": idle, "dead": busy}[name]

    queries.begin(["lake", "dead"], start)

    assert queries.have_caught_up("lake")
    assert not queries.have_caught_up("lake", "dead")
