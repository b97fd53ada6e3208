"""Compares several servers under the same loads, so that none has an advantage.

    send 1 × 64     ours   Apache   Apache   ours   ours   Apache      the others are stopped (SIGSTOP) meanwhile
    send 16 × 64    ours   Apache   Apache   …

The order changes from round to round. If other programs used more than a few percent of the machine during a shot, the shot is
repeated as long as there is time, and the less disturbed one counts.
"""

from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import NamedTuple

from bench.broker.budget import Budget, UsedUp
from bench.broker.generators import Generator, Pace
from bench.broker.servers import Target, frozen
from bench.broker.shots import NotMeasured, Result, Shape, Shot, middle

Say = Callable[[str], None]
Words = Mapping[str, Sequence[str]]
"""Further words for the generator, by the name of the target."""


class Outcome(NamedTuple):
    """What one load found, by the name of the target; and why something is missing."""

    shape: Shape
    results: dict[str, Result]
    notes: list[str]


class Contest:
    """The servers that take part, and how they are shot at."""

    def __init__(
        self, targets: Sequence[Target], generator: Generator, pace: Pace, shots: int, budget: Budget, say: Say
    ) -> None:
        self._targets = list(targets)
        self._generator = generator
        self._pace = pace
        self._shots = shots
        self._budget = budget
        self._say = say

    def run(self, shape: Shape, words: Words | None = None, title: str = "") -> Outcome:
        """All shots of one load. A server that fails is left alone for the rest of it. UsedUp when there is time for none."""
        taken: dict[str, list[Shot]] = {target.name: [] for target in self._targets}
        notes: dict[str, str] = {}
        try:
            for number in range(self._shots):
                self._round(number, shape, words or {}, taken, notes)
        except UsedUp:
            if not all(taken[name] for name in taken if name not in notes):
                raise
        title = title or str(shape)
        results = {name: middle(shots) for name, shots in taken.items() if shots}
        self._say(f"{title}: {summary(results)}")
        said = [f"{title}, {name}: {reason}" for name, reason in notes.items()]
        return Outcome(shape, results, [*said, *_errors(taken, title)])

    def _round(
        self, number: int, shape: Shape, words: Words, taken: dict[str, list[Shot]], notes: dict[str, str]
    ) -> None:
        """One shot at each server, in the order of this round."""
        for target in self._targets if number % 2 == 0 else reversed(self._targets):
            if target.name in notes:
                continue
            try:
                taken[target.name].append(self._shoot(target, shape, words.get(target.name, ())))
            except UsedUp:
                raise
            except NotMeasured as reason:
                notes[target.name] = str(reason)

    def alone(self, target: Target, work: Callable[[], object]) -> None:
        """Something with one server that is not measured, while the others do not run."""
        with frozen([other for other in self._targets if other is not target]):
            work()

    def _shoot(self, target: Target, shape: Shape, words: Sequence[str]) -> Shot:
        first = self._one(target, shape, words)
        if not self._budget.may_repeat(first.disturbed, self._pace.seconds + self._pace.warm_s):
            return first
        return min(first, self._one(target, shape, words), key=lambda shot: shot.disturbed)

    def _one(self, target: Target, shape: Shape, words: Sequence[str]) -> Shot:
        self._budget.check(self._pace.seconds + self._pace.warm_s)
        with frozen([other for other in self._targets if other is not target]):
            return self._generator.fire(target, shape, self._pace, *words)


def warm_up(generator: Generator, target: Target, seconds: float) -> None:
    """Java compiles what it runs often: mixed load, before anything counts."""
    until = monotonic() + seconds
    loads = (Shape("send", 16, 64, 100), Shape("send", 1, 64, 1024), Shape("batch", 1, 8, 100, 32))
    for share, shape in zip((0.5, 0.3, 0.2), loads, strict=True):
        generator.fire(target, shape, Pace(max(0.1, min(seconds * share, until - monotonic())), 0), "--topic", "warm")


def summary(results: Mapping[str, Result]) -> str:
    return ", ".join(f"{name} {result.rate:,.0f}/s {result.server_us:.2f} us" for name, result in results.items())


def _errors(taken: Mapping[str, Sequence[Shot]], title: str) -> list[str]:
    notes = []
    for name, shots in taken.items():
        if wrong := sum(shot.wrong for shot in shots):
            first = next((shot.first_error for shot in shots if shot.first_error), "lost, or not stored")
            notes.append(f"{title}, {name}: {wrong:,} requests went wrong; the first: {first[:200]}")
    return notes
