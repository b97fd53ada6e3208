"""What an examination finds: a verdict for every step of the way from an address to a handler, and the first that is broken.

fine            looked at, and as it should be; notes say what deserves attention all the same
as it is        looked at; neither good nor bad where it was seen, such as plain text on loopback
warning         messages get past here, and something should be changed; the fix says what
broken          messages do not get past here; the fix says what to do
unknown         looked at, and nobody could tell; the finding says why
not looked at   it was not asked for, or an earlier step is broken, so that nothing true could be said
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import msgspec

from pocketmq.model.human import count

MAX_NOTES: Final = 6
"""Of one step."""
WAY: Final = ("address", "name server", "route", "broker", "permission")
"""Steps without which nothing behind them can be asked."""


class Verdict(StrEnum):
    FINE = "fine"
    FACT = "as it is"
    WARNING = "warning"
    BROKEN = "broken"
    UNKNOWN = "unknown"
    NOT_LOOKED_AT = "not looked at"


class Finding(msgspec.Struct, frozen=True):
    """What was seen at one step, in one sentence without a full stop."""

    verdict: Verdict
    text: str
    fix: str = ""
    """What to do, when it is broken or a warning."""
    notes: tuple[str, ...] = ()
    """What deserves attention, and stops nothing."""


class Step(msgspec.Struct, frozen=True):
    """A step of the way, and what was found there."""

    name: str
    finding: Finding

    @property
    def verdict(self) -> Verdict:
        return self.finding.verdict

    @property
    def sentence(self) -> str:
        """For one line of a log or a page."""
        fix = f". {self.finding.fix}" if self.finding.fix else ""
        return f"{self.name}: {self.finding.text}{fix}."


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """All steps, in the order of the way."""

    name_servers: str
    topic: str | None
    group: str | None
    at_ms: int
    steps: tuple[Step, ...]

    @property
    def first_broken(self) -> Step | None:
        """Where it breaks. What else is wrong may follow from it."""
        return next((step for step in self.steps if step.verdict is Verdict.BROKEN), None)

    @property
    def first_dark(self) -> Step | None:
        """A step of the way that nobody could tell of, so that what is behind it was not looked at."""
        return next((step for step in self.steps if step.verdict is Verdict.UNKNOWN and step.name in WAY), None)

    @property
    def is_well(self) -> bool:
        """Whether nothing is broken, and somebody could look."""
        return self.first_broken is None and self.first_dark is None

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(note for step in self.steps for note in step.finding.notes)

    @property
    def sentence(self) -> str:
        """The whole of it in one sentence."""
        if self.first_broken is not None:
            return self.first_broken.sentence
        if self.first_dark is not None:
            return f"{self.first_dark.sentence} Nothing behind it could be looked at."
        many = sum(step.verdict is Verdict.WARNING for step in self.steps)
        warned = f" {count(many, 'warning')} above {'deserves' if many == 1 else 'deserve'} attention." if many else ""
        return f"Nothing is broken that can be seen from here.{warned}"

    def step(self, name: str) -> Step:
        return next(step for step in self.steps if step.name == name)


def fine(text: str, *notes: str) -> Finding:
    return Finding(Verdict.FINE, text, notes=_few(notes))


def fact(text: str, *notes: str) -> Finding:
    return Finding(Verdict.FACT, text, notes=_few(notes))


def warning(text: str, fix: str, *notes: str) -> Finding:
    return Finding(Verdict.WARNING, text, fix, _few(notes))


def broken(text: str, fix: str, *notes: str) -> Finding:
    return Finding(Verdict.BROKEN, text, fix, _few(notes))


def unknown(text: str, *notes: str) -> Finding:
    return Finding(Verdict.UNKNOWN, text, notes=_few(notes))


def not_looked_at(text: str) -> Finding:
    return Finding(Verdict.NOT_LOOKED_AT, text)


def _few(notes: Sequence[str]) -> tuple[str, ...]:
    """A thousand queues with the same trouble need not be named one by one."""
    if len(notes) <= MAX_NOTES:
        return tuple(notes)
    return (*notes[:MAX_NOTES], f"… and {len(notes) - MAX_NOTES:,} more")
