"""The result of an examination: a verdict for every step, and the first step that is broken.

ok        the step works; hints name what deserves attention
info      a fact that is neither good nor bad here, such as plain text on loopback
warning   messages pass this step, but something should change; the fix says what
broken    messages do not pass this step; the fix says what to do
unknown   the step could not be examined; the finding says why
skipped   the step was not requested, or a step that it needs is broken
"""

import difflib
from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import msgspec

from pocketmq.model.human import count

MAX_HINTS: Final = 6
"""Per step."""
REQUIRED_STEPS: Final = ("address", "name server", "route", "broker", "permission")
"""If one of these is unknown, the steps after it are skipped."""


class Verdict(StrEnum):
    OK = "ok"
    INFO = "info"
    WARNING = "warning"
    BROKEN = "broken"
    UNKNOWN = "unknown"
    SKIPPED = "skipped"


class Finding(msgspec.Struct, frozen=True):
    """The result of one step."""

    verdict: Verdict
    text: str
    """One sentence without a full stop."""
    fix: str = ""
    """What to do if it is broken or a warning."""
    hints: tuple[str, ...] = ()
    """What deserves attention but stops no message."""


class Step(msgspec.Struct, frozen=True):
    """One step of the examination with its finding."""

    name: str
    finding: Finding

    @property
    def verdict(self) -> Verdict:
        return self.finding.verdict

    @property
    def sentence(self) -> str:
        """The finding and the fix in one line."""
        fix = f". {self.finding.fix}" if self.finding.fix else ""
        return f"{self.name}: {self.finding.text}{fix}."


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """All steps in their order."""

    name_servers: str
    topic: str | None
    group: str | None
    at_ms: int
    steps: tuple[Step, ...]

    @property
    def first_broken(self) -> Step | None:
        """The first broken step. Other problems may follow from it."""
        return next((step for step in self.steps if step.verdict is Verdict.BROKEN), None)

    @property
    def first_unknown(self) -> Step | None:
        """A required step that is unknown, so that the steps after it were skipped."""
        return next(
            (step for step in self.steps if step.verdict is Verdict.UNKNOWN and step.name in REQUIRED_STEPS), None
        )

    @property
    def is_healthy(self) -> bool:
        """Whether no step is broken and no required step is unknown."""
        return self.first_broken is None and self.first_unknown is None

    @property
    def hints(self) -> tuple[str, ...]:
        return tuple(hint for step in self.steps for hint in step.finding.hints)

    @property
    def sentence(self) -> str:
        """The report in one or two sentences."""
        if self.first_broken is not None:
            return self.first_broken.sentence
        if self.first_unknown is not None:
            return f"{self.first_unknown.sentence} The steps after it were skipped."
        warnings = sum(step.verdict is Verdict.WARNING for step in self.steps)
        return f"No problem found; {count(warnings, 'warning')} above." if warnings else "No problem found."

    def step(self, name: str) -> Step:
        return next(step for step in self.steps if step.name == name)


def ok(text: str, *hints: str) -> Finding:
    return Finding(Verdict.OK, text, hints=_limited(hints))


def info(text: str, *hints: str) -> Finding:
    return Finding(Verdict.INFO, text, hints=_limited(hints))


def warning(text: str, fix: str, *hints: str) -> Finding:
    return Finding(Verdict.WARNING, text, fix, _limited(hints))


def broken(text: str, fix: str, *hints: str) -> Finding:
    return Finding(Verdict.BROKEN, text, fix, _limited(hints))


def unknown(text: str, *hints: str) -> Finding:
    return Finding(Verdict.UNKNOWN, text, hints=_limited(hints))


def skipped(text: str) -> Finding:
    return Finding(Verdict.SKIPPED, text)


def with_suggestion(name: str, known: Sequence[str], advice: str) -> str:
    """`advice`, after a similar name if there is one."""
    near = difflib.get_close_matches(name, known, 1, 0.6)
    return f"Did you mean {near[0]}? Otherwise, {advice}" if near else advice[0].upper() + advice[1:]


def _limited(hints: Sequence[str]) -> tuple[str, ...]:
    """The first hints and the number of the others: a thousand queues may have the same problem."""
    if len(hints) <= MAX_HINTS:
        return tuple(hints)
    return (*hints[:MAX_HINTS], f"… and {len(hints) - MAX_HINTS:,} more")
