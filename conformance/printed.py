"""What the Java programs printed, without what no two runs have in common: the same lines, in whatever order.

    ids, clients, addresses, times   are called so
    numbers                          are #, except those that a message keeps wherever it goes: flags, CRC, body, counts
    blanks                           columns are as wide as their numbers: one blank is enough
    failures                         the code; the words are each broker's own, and stack traces say where Java was
    properties of messages           in alphabetical order: Java's depends on how many there are

What is left must be the same on both sides, or be a difference on purpose: a `Purpose` says for which subjects and which lines.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from conformance.report import Trial

Rule = tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]

_KEPT: Final = frozenset({"sysFlag", "flag", "bodyCRC", "reconsumeTimes", "CODE", "reached", "exit"})
_DROPPED: Final = re.compile(
    r"^\d\d:\d\d:\d\d\.\d{3} \[|^\s+at |^\s*\.\.\. \d+ more|^See https?:|^For more information|^\s*$"
    r"|^Was expecting one of:|^\s+[\"<]\S+ \.\.\.|<- org\.apache\.rocketmq\.filter"
)
"""Lines of loggers, of stack traces, of what a parser expected, and where to read more."""


def _sorted_properties(found: re.Match[str]) -> str:
    return f"{found[1]}{{{', '.join(sorted(found[2].split(', ')))}}}"


_RULES: Final[tuple[Rule, ...]] = (
    (re.compile(r"(CODE: \d+ +DESC:).*"), r"\1 <words>"),
    (re.compile(r"(properties=|Properties: +)\{([^}]*)\}"), _sorted_properties),
    (re.compile(r"recallHandle=[\w=-]{40,}"), "recallHandle=<handle>"),
    (re.compile(r"(?<![0-9A-F])([0-9A-F]{56}|[0-9A-F]{32})(?![0-9A-F])"), "<id>"),
    (re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "<uuid>"),
    (re.compile(r"(\b[\d.]+@)?\d+#\d+(@STREAM)?"), "<client>"),
    (re.compile(r"(?<=[a-zA-Z/])(0x[0-9a-f]+)?@[0-9a-f]{5,8}\b"), "@<object>"),
    (re.compile(r"127\.0\.0\.1:\d+"), "<address>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[ #]\d\d:\d\d:\d\d([:,.]\d{3})?"), "<time>"),
    (re.compile(r"\b\d+ms\b"), "#ms"),
    (re.compile(r"\bV\d_\d_\d\b"), "<version>"),
    (re.compile(r"(?<!\S)(<TMP>|/tmp)(?=/)"), "<TMP>"),  # noqa: S108 where Java puts what it was asked to keep
)
_NUMBER: Final = re.compile(r"(?<![\w.#%])-?\d+(\.\d+)?(E-?\d+)?(?![\w%])")
_NAME_BEFORE: Final = re.compile(r"(\w+)(?:=|: ?|\s)\Z")
_BODY: Final = re.compile(r"(body=\[[^]]*\])")


class Printed(NamedTuple):
    """What a program wrote, and its exit code; None when it did not end in time."""

    text: str
    code: int | None


class Purpose(NamedTuple):
    """Lines that may differ: those of these subjects in which this is found, for this reason."""

    why: str
    subjects: str
    lines: str

    def covers(self, subject: str, flaw: str) -> bool:
        return re.search(self.subjects, subject) is not None and re.search(self.lines, flaw) is not None


def lines_of(text: str) -> Counter[str]:
    """The lines of a text that can be compared, and how often each is there."""
    return Counter(_lines(text))


def _lines(text: str) -> Iterator[str]:
    for line in text.replace("\t", "    ").splitlines():
        if not _DROPPED.search(line):
            for pattern, replacement in _RULES:
                line = pattern.sub(replacement, line)
            parts = _BODY.split(line)
            parts[::2] = [_NUMBER.sub(_number, part) for part in parts[::2]]
            yield " ".join("".join(parts).split())


def _number(found: re.Match[str]) -> str:
    before = _NAME_BEFORE.search(found.string[: found.start()])
    return found[0] if before and before[1] in _KEPT else "#"


def flaws_of(theirs: Printed, ours: Printed) -> list[str]:
    """What only one of the two says."""
    expected, found = lines_of(theirs.text), lines_of(ours.text)
    flaws = [f"missing: {line}" for line in (expected - found).elements()]
    flaws += [f"not expected: {line}" for line in (found - expected).elements()]
    if theirs.code != ours.code:
        flaws.append(f"exit code {ours.code} instead of {theirs.code}")
    return flaws


def judge(trial: Trial, subject: str, flaws: Sequence[str], purposes: Sequence[Purpose]) -> None:
    """Report the check that is called like its subject: pass, fail, or differs on purpose."""
    reasons = {flaw: next((one.why for one in purposes if one.covers(subject, flaw)), None) for flaw in flaws}
    unexplained = [flaw for flaw, why in reasons.items() if why is None]
    if unexplained or not flaws:
        trial.expect(subject, unexplained)
    else:
        trial.differ(subject, "; ".join(dict.fromkeys(why for why in reasons.values() if why)))
