"""What the Java programs printed, without what no two runs have in common: the same lines, in whatever order.

    ids, clients, addresses, times   are called so
    numbers                          are #, except those that a message keeps wherever it goes: flags, CRC, body, counts
    blanks                           columns are as wide as their numbers: one blank is enough
    failures                         the code; the words are each broker's own, and stack traces say where Java was
    properties of messages           in alphabetical order: Java's depends on how many there are

What is left must be the same on both sides, or be a difference on purpose: a `Purpose` says for which subjects and which lines.
"""

import re
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from conformance.report import Trial

Rule = tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]

_KEPT: Final = frozenset({"sysFlag", "flag", "bodyCRC", "reconsumeTimes", "CODE", "reached", "exit"})
_DROPPED: Final = re.compile(
    r"^\d\d:\d\d:\d\d\.\d{3} \[|^\s+at |^\s*\.\.\. \d+ more|^See https?:|^For more information|^\s*$"
    r"|^Note: |^Was expecting one of:|^\s+[\"<]\S+ \.\.\.|<- org\.apache\.rocketmq\.filter"
)
"""Lines of loggers, compilers and stack traces, what a parser expected, and where to read more."""


def _without_time(found: re.Match[str]) -> str:
    """A message whose body is a moment has another one in each run, and another CRC."""
    body = bytes(int(number) & 0xFF for number in found[3].split(", ") if number)
    return f"bodyCRC=#{found[2]}body=<with a time>" if _TIME_IN_BODY.search(body) else found[0]


_TIME_IN_BODY: Final = re.compile(rb"\d{13}")
_RULES: Final[tuple[Rule, ...]] = (
    (re.compile(r"bodyCRC=(\d+)(.*?)body=\[([-\d, ]*)\]"), _without_time),
    (re.compile(r"(CODE: \d+ +DESC:).*"), r"\1 <words>"),
    (re.compile(r"recallHandle([= ])[\w=-]{40,}"), r"recallHandle\1<handle>"),
    (re.compile(r"(?<![0-9A-F])([0-9A-F]{56}|[0-9A-F]{32})(?![0-9A-F])"), "<id>"),
    (re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "<uuid>"),
    (re.compile(r"(\b[\d.]+@)?\d+#\d+(@STREAM)?"), "<client>"),
    (re.compile(r"(?<=[a-zA-Z/])(0x[0-9a-f]+)?@[0-9a-f]{5,8}\b"), "@<object>"),
    (re.compile(r"127\.0\.0\.1:\d+"), "<address>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[ #]\d\d:\d\d:\d\d([:,.]\d{3})?"), "<time>"),
    (re.compile(r"\b\d+ms\b"), "#ms"),
    (re.compile(r"commitLogDiskRatio_[^\s:]+"), "commitLogDiskRatio_<path>"),
    (re.compile(r"trackType=(NOT_CONSUME_YET|CONSUMED)"), "trackType=<by its broker's address>"),
    (re.compile(r"\bV\d_\d_\d\b"), "<version>"),
    (re.compile(rf"(?<!\S){re.escape(tempfile.gettempdir())}(?=/)"), "<TMP>"),
)
_PROPERTIES: Final = re.compile(r"(properties=|Properties: +)\{([^}]*)\}")
NEW_PROPERTIES: Final = {"4.9.7": frozenset({"MSG_REGION", "TRACE_ON", "WAIT", "__transactionId__"})}
"""Properties that a release does not store, and ours and 5.3 do."""
_NUMBER: Final = re.compile(r"(?<![\w.#%])-?\d+(\.\d+)?(E-?\d+)?(?![\w%])")
_NAME_BEFORE: Final = re.compile(r"(\w+)(?:=|: ?|\s)\Z")
_JOINED: Final = re.compile(r"\](?=MessageTrack \[)")
"""mqadmin does not always begin a new line."""
_AVERAGES: Final = re.compile(r"(?<=Tps : )# [# ]*\Z")
"""Over ten seconds, a minute and more: a young broker has fewer of them."""
_BODY: Final = re.compile(r"(body=\[[^]]*\])")


class Printed(NamedTuple):
    """What a program wrote, and its exit code; None when it did not end in time."""

    text: str
    code: int | None


class Purpose(NamedTuple):
    """Lines that may differ: those of these subjects in which this is found, for this reason, with this release or with all."""

    why: str
    subjects: str
    lines: str
    version: str = ""
    passes: bool = False
    """It is as it should be all the same: as in 5.3, which our broker announces, with lines more, or recorded by another chance."""

    def covers(self, version: str, subject: str, flaw: str) -> bool:
        if self.version not in ("", version):
            return False
        return re.search(self.subjects, subject) is not None and re.search(self.lines, flaw) is not None


def explained(version: str, subject: str, flaw: str, purposes: Iterable[Purpose]) -> Purpose | None:
    """Why this differs on purpose; None when nothing says so."""
    return next((one for one in purposes if one.covers(version, subject, flaw)), None)


def lines_of(text: str, left_out: Collection[str] = ()) -> Counter[str]:
    """The lines of a text that can be compared, and how often each is there; messages without these properties."""
    return Counter(_lines(text, left_out))


def _lines(text: str, left_out: Collection[str]) -> Iterator[str]:
    def sorted_properties(found: re.Match[str]) -> str:
        kept = [entry for entry in found[2].split(", ") if entry.partition("=")[0] not in left_out]
        return f"{found[1]}{{{', '.join(sorted(kept))}}}"

    for line in _JOINED.sub("]\n", text.replace("\t", "    ")).splitlines():
        if not _DROPPED.search(line):
            line = _PROPERTIES.sub(sorted_properties, line)
            for pattern, replacement in _RULES:
                line = pattern.sub(replacement, line)
            parts = _BODY.split(line)
            parts[::2] = [_NUMBER.sub(_number, part) for part in parts[::2]]
            yield _AVERAGES.sub("#", " ".join("".join(parts).split()))


def _number(found: re.Match[str]) -> str:
    before = _NAME_BEFORE.search(found.string[: found.start()])
    return found[0] if before and before[1] in _KEPT else "#"


def flaws_of(theirs: Printed, ours: Printed, version: str, *, once: bool = False) -> list[str]:
    """What only one of the two says; with `once`, however often it says it."""
    left_out = NEW_PROPERTIES.get(version, ())
    expected, found = lines_of(theirs.text, left_out), lines_of(ours.text, left_out)
    if once:
        expected, found = Counter(set(expected)), Counter(set(found))
    flaws = [f"missing: {line}" for line in (expected - found).elements()]
    flaws += [f"not expected: {line}" for line in (found - expected).elements()]
    if theirs.code != ours.code:
        flaws.append(f"exit code {ours.code} instead of {theirs.code}")
    return flaws


def judge(trial: Trial, subject: str, flaws: Sequence[str], purposes: Sequence[Purpose]) -> None:
    """Report the check that is called like its subject: pass, fail, or differs on purpose."""
    reasons = {flaw: explained(trial.version, subject, flaw, purposes) for flaw in flaws}
    unexplained = [flaw for flaw, purpose in reasons.items() if purpose is None]
    found = [purpose for purpose in reasons.values() if purpose is not None]
    why = "; ".join(dict.fromkeys(purpose.why for purpose in found))
    if unexplained or not flaws:
        trial.expect(subject, unexplained)
    elif all(purpose.passes for purpose in found):
        trial.expect(subject, [], measured=why)
    else:
        trial.differ(subject, why)
