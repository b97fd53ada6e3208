"""The method of measurement, which is the same for every subject.

    round 1   a a a a …   b b b b …   c c c c …        each candidate for a few milliseconds
    round 2   b b b b …   c c c c …   a a a a …        then again, another one first
    …

The candidates of a subject take turns, so a busy moment of the machine affects all of them. A call processes several different
messages in its own loop, and microseconds per message are reported. The result is the median of all rounds; the minimum shows
how much the machine was disturbed. The garbage collector is off during the measurement.
"""

import gc
import os
import platform
import statistics
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import NamedTuple

Timer = Callable[[], float]


class Candidate(NamedTuple):
    """One way to do it. `run` works through all messages of the subject once."""

    name: str
    run: Callable[[], object]
    ours: bool = False


class Subject(NamedTuple):
    """Something that is done once per message. The first candidate is the one that the aim speaks of."""

    name: str
    messages: int
    candidates: Sequence[Candidate]
    aim_us: float | None = None


class Timing(NamedTuple):
    """Microseconds per message."""

    candidate: Candidate
    median_us: float
    min_us: float


def measure(subject: Subject, rounds: int, round_ms: float, timer: Timer = perf_counter) -> list[Timing]:
    """Time every candidate of `subject` in `rounds` rounds of about `round_ms` each."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        calls = [_calls_per_round(candidate, round_ms, timer) for candidate in subject.candidates]
        found: list[list[float]] = [[] for _ in subject.candidates]
        for number in range(rounds):
            for turn in range(len(found)):
                at = (number + turn) % len(found)
                seconds = _seconds(subject.candidates[at].run, calls[at], timer)
                found[at].append(1e6 * seconds / calls[at] / subject.messages)
    finally:
        if was_on:
            gc.enable()
    return [
        Timing(candidate, statistics.median(times), min(times))
        for candidate, times in zip(subject.candidates, found, strict=True)
    ]


def _calls_per_round(candidate: Candidate, round_ms: float, timer: Timer) -> int:
    candidate.run()
    quickest = min(_seconds(candidate.run, 1, timer) for _ in range(3))
    return max(1, round(round_ms / 1e3 / max(quickest, 1e-9)))


def _seconds(run: Callable[[], object], calls: int, timer: Timer) -> float:
    turns = range(calls)
    start = timer()
    for _ in turns:
        run()
    return timer() - start


def best_peer(timings: Sequence[Timing]) -> Timing | None:
    """The quickest candidate that is not ours."""
    return min((timing for timing in timings if not timing.candidate.ours), key=lambda t: t.median_us, default=None)


def machine() -> str:
    """What it was measured on."""
    return (
        f"{os.cpu_count()} cores, {platform.machine()}, {platform.python_implementation()} {platform.python_version()}"
    )
