"""An offset range is processed piece by piece."""

from collections.abc import Sequence

import pytest

from pocketmq.errors import PipelineFailed, WrongState
from pocketmq.model.queue import MessageQueue, QueueRange
from pocketmq.pipelines.core.progress import Progress
from pocketmq.pipelines.core.running import Run, Summary
from pocketmq.pipelines.jobs.resending import STATE_FILE, Piece, Pieces, cut, pause_s, run_pieces

A, B = MessageQueue("orders", "a", 0), MessageQueue("orders", "a", 1)


class MadeState(dict[str, str]):
    """State files in memory."""

    def read(self, name: str) -> str | None:
        return self.get(name)

    def write(self, name: str, text: str) -> None:
        self[name] = text

    def has(self, *names: str) -> bool:
        return any(name in self for name in names)


class Doing:
    """Processes pieces, and fails on request."""

    def __init__(self, fail_at: int | None = None) -> None:
        self.done: list[QueueRange] = []
        self._fail_at = fail_at

    def __call__(self, piece: Piece) -> int:
        if piece.number == self._fail_at:
            raise RuntimeError("the disk of the executor is gone")
        self.done += piece.ranges
        return sum(map(len, piece.ranges))


def ten() -> Pieces:
    return cut([QueueRange(A, 0, 7), QueueRange(B, 10, 13)], max_messages=4, rate=None, partitions=2)


def start(state: MadeState, do: Doing, rows: list[Progress] | None = None) -> Summary:
    return run_pieces("replay", state, ten, do, Run(report=(rows if rows is not None else []).append))


def offsets(ranges: Sequence[QueueRange]) -> dict[MessageQueue, list[int]]:
    found: dict[MessageQueue, list[int]] = {}
    for one in ranges:
        found.setdefault(one.queue, []).extend(range(one.start, one.end))
    return found


def test_pieces_have_a_part_of_every_queue_and_cover_the_range() -> None:
    plan = ten()

    assert plan.pieces == 3
    assert plan.piece(0) == [QueueRange(A, 0, 2), QueueRange(B, 10, 11)]
    assert offsets([one for number in range(3) for one in plan.piece(number)]) == {A: [*range(7)], B: [10, 11, 12]}


def test_a_rate_limit_makes_pieces_small_and_pauses_between_them() -> None:
    plan = cut([QueueRange(A, 0, 100)], max_messages=1_000, rate=2, partitions=2)

    assert plan.pieces == 10
    assert pause_s(100, 4.0, 10) == pytest.approx(6.0)
    assert pause_s(100, 40.0, 10) == 0.0
    assert pause_s(100, 0.0, None) == 0.0


def test_all_pieces_are_processed_and_a_second_run_does_nothing() -> None:
    state, do, rows = MadeState(), Doing(), list[Progress]()

    summary = start(state, do, rows)
    again = start(state, do)

    assert offsets(do.done) == {A: [*range(7)], B: [10, 11, 12]}
    assert (summary.ended, summary.messages, summary.batches, summary.facts) == (
        "caught up",
        10,
        3,
        {"rows_written": 10},
    )
    assert [(row.batch, row.messages, row.behind) for row in rows] == [(0, 3, 7), (1, 6, 4), (2, 10, 0)]
    assert again.messages == 0
    assert "earlier run" in again.facts["note"]


def test_the_remaining_work_is_known_without_checking_all_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    piece = Pieces.piece

    def counted(plan: Pieces, number: int) -> list[QueueRange]:
        looked.append(number)
        return piece(plan, number)

    monkeypatch.setattr(Pieces, "piece", counted)

    start(MadeState(), Doing())

    assert looked == [0, 1, 2]


def test_a_failed_run_continues_with_the_failed_piece() -> None:
    state, first, second = MadeState(), Doing(fail_at=1), Doing()

    with pytest.raises(PipelineFailed, match="the disk of the executor is gone"):
        start(state, first)
    summary = start(state, second)

    assert offsets([*first.done, *second.done]) == {A: [*range(7)], B: [10, 11, 12]}
    assert (summary.messages, summary.batches) == (7, 2)


def test_a_stop_ends_a_run_between_two_pieces() -> None:
    state, do = MadeState(), Doing()
    run = Run()
    run.report = lambda progress: run.stop()

    summary = run_pieces("replay", state, ten, do, run)

    assert (summary.ended, summary.batches) == ("stopped", 1)


def test_an_empty_range_completes_at_once() -> None:
    summary = run_pieces(
        "replay", MadeState(), lambda: cut([], max_messages=1, rate=None, partitions=1), Doing(), Run()
    )

    assert (summary.ended, summary.messages) == ("caught up", 0)


@pytest.mark.parametrize(
    ("text", "why"), [("{", "damaged"), ('{"ranges":[],"pieces":1,"partitions":1,"version":9}', "version 9")]
)
def test_the_state_of_another_run_is_refused(text: str, why: str) -> None:
    with pytest.raises(WrongState, match=why):
        start(MadeState({STATE_FILE: text}), Doing())
