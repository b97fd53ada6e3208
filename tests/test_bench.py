"""The benchmarks run, with the documented method: turns, medians, minima, and goals."""

import gc
import subprocess
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from bench.__main__ import all_subjects, main, verdict
from bench.method import Candidate, Subject, Timing, best_peer, machine, measure

ROOT = Path(__file__).parents[1]
TINY = ["--rounds", "1", "--round-ms", "0.01"]


def named(log: list[str], name: str) -> Candidate:
    return Candidate(name, lambda: log.append(name))


def ticking(step_s: float) -> Callable[[], float]:
    """A timer by which every interval takes `step_s`."""
    reading = count()
    return lambda: next(reading) * step_s


def test_every_subject_is_printed_with_its_candidates_and_its_goal(capsys: pytest.CaptureFixture[str]) -> None:
    main(TINY)

    printed = capsys.readouterr().out
    assert machine() in printed
    for subject in all_subjects():
        assert subject.name in printed
        for candidate in subject.candidates:
            assert candidate.name in printed
        assert subject.aim_us is None or f"≤ {subject.aim_us:g}" in printed


def test_the_goals_are_those_of_the_hot_path() -> None:
    aims = {subject.name: subject.aim_us for subject in all_subjects()}

    assert aims["send header decode"] == 0.8
    assert aims["send reply encode"] == 0.4
    assert aims["record encode"] == aims["record decode, lazy"] == 1.2


def test_every_subject_has_a_peer_and_the_first_candidate_is_ours() -> None:
    for subject in all_subjects():
        assert subject.candidates[0].ours
        assert not all(candidate.ours for candidate in subject.candidates)
        assert subject.messages > 1


def test_arguments_select_subjects(capsys: pytest.CaptureFixture[str]) -> None:
    main(["batch", *TINY])

    printed = capsys.readouterr().out
    assert "batch encode" in printed
    assert "frame split" not in printed


@pytest.mark.parametrize("arguments", [["nothing is called so"], ["--rounds", "0"]])
def test_a_run_without_measurements_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(arguments)

    assert "python -m bench" in capsys.readouterr().err


def test_the_benchmark_runs_as_a_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench", "frame", *TINY],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert done.returncode == 0, done.stderr
    assert "FrameSplitter" in done.stdout


def test_candidates_take_turns_and_each_round_starts_with_another() -> None:
    log: list[str] = []
    subject = Subject("s", 1, [named(log, "a"), named(log, "b"), named(log, "c")])

    measure(subject, rounds=4, round_ms=0, timer=ticking(1.0))

    assert "".join(log[-12:]) == "abcbcacababc"


def test_a_round_has_the_requested_length_and_reports_per_message() -> None:
    log: list[str] = []

    (timing,) = measure(Subject("s", 10, [named(log, "a")]), rounds=3, round_ms=50, timer=ticking(0.001))

    warming_up = 4
    assert len(log) == warming_up + 3 * 50
    assert timing.median_us == pytest.approx(1000 / 50 / 10)


def test_median_and_minimum_are_over_the_rounds() -> None:
    stretches = iter([1.0, 1.0, 1.0, 5.0, 2.0, 9.0])
    now = 0.0
    started = False

    def timer() -> float:
        nonlocal now, started
        if started:
            now += next(stretches)
        started = not started
        return now

    (timing,) = measure(Subject("s", 1, [Candidate("a", lambda: None)]), rounds=3, round_ms=0, timer=timer)

    assert timing.median_us == pytest.approx(5e6)
    assert timing.min_us == pytest.approx(2e6)


def test_the_garbage_collector_is_off_during_a_measurement() -> None:
    seen: list[bool] = []

    measure(Subject("s", 1, [Candidate("a", lambda: seen.append(gc.isenabled()))]), rounds=1, round_ms=0)

    assert not any(seen)
    assert gc.isenabled()


def test_the_best_peer_is_the_quickest_that_is_not_ours() -> None:
    ours = Timing(Candidate("ours", lambda: None, ours=True), 1, 1)
    slow, quick = (Timing(Candidate(name, lambda: None), us, us) for name, us in (("slow", 9), ("quick", 4)))

    assert best_peer([ours, slow, quick]) is quick
    assert best_peer([ours]) is None


def test_a_goal_is_met_up_to_its_number_by_the_median() -> None:
    candidate = Candidate("ours", lambda: None, ours=True)

    assert "ok" in verdict(Timing(candidate, 0.8, 0.7), 0.8)
    assert "over" in verdict(Timing(candidate, 0.81, 0.7), 0.8)
