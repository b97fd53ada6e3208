"""What the Java programs printed, without what no two runs have in common: the same lines, in whatever order.

    ids, clients, addresses, times     are what they are called
    numbers                            are #, except those that a message keeps wherever it goes: flags, CRC, body, counts
    blanks                             columns are as wide as their numbers: one blank is enough
    failures                           the code; the broker's words are its own, and stack traces say where Java was
    properties of messages             in alphabetical order: Java's depends on how many there are
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

Rule = tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]

_KEPT: Final = ("sysFlag", "flag", "bodyCRC", "reconsumeTimes", "CODE", "reached", "body")
_PROPERTIES_OF_5: Final = ("MSG_REGION", "TRACE_ON", "WAIT", "__transactionId__")
"""Properties that a 4.9 broker does not store."""
MAX_SHOWN: Final = 3


def _sorted_properties(found: re.Match[str]) -> str:
    entries = [entry for entry in found[1].split(", ") if entry.partition("=")[0] not in _PROPERTIES_OF_5]
    return f"properties={{{', '.join(sorted(entries))}}}"


_DROPPED: Final = re.compile(
    r"^\d\d:\d\d:\d\d\.\d{3} \[|^\s+at |^\s*\.\.\. \d+ more|^See https?:|^For more information|^\s*$"
)
"""Lines of loggers, of stack traces, and where to read more."""
_WORDS: Final = re.compile(r"(CODE: \d+ +DESC:).*?(?= BROKER:|\n\s+at |\nFor more information|\Z)", re.DOTALL)
_RULES: Final[tuple[Rule, ...]] = (
    (re.compile(r"properties=\{([^}]*)\}"), _sorted_properties),
    (re.compile(r"recallHandle=[\w=-]{40,}"), "recallHandle=<handle>"),
    (re.compile(r"\b[0-9A-F]{16}([0-9A-F]{16}|[0-9A-F]{40})\b"), "<id>"),
    (re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "<uuid>"),
    (re.compile(r"\b[\d.]+@\d+#\d+(@STREAM)?"), "<client>"),
    (re.compile(r"127\.0\.0\.1:\d+"), "<address>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[ #]\d\d:\d\d:\d\d([:,.]\d{3})?"), "<time>"),
)
_NUMBER: Final = re.compile(r"(?<![\w.#%])-?\d+(\.\d+)?(E-?\d+)?(?![\w%])")
_NUMBER_OF: Final = re.compile(r"(\w+)(?:=|: |\s)\Z")
_BODY: Final = re.compile(r"(body=\[[^]]*\])")


def lines_of(text: str) -> Counter[str]:
    """The lines of a text that can be compared, and how often each is there."""
    return Counter(_lines(text))


def _lines(text: str) -> Iterator[str]:
    for line in _WORDS.sub(r"\1 <words>", text.replace("\t", "    ")).splitlines():
        if _DROPPED.search(line):
            continue
        for pattern, replacement in _RULES:
            line = pattern.sub(replacement, line)
        parts = _BODY.split(line)
        parts[::2] = [_NUMBER.sub(_number, part) for part in parts[::2]]
        yield " ".join("".join(parts).split())


def _number(found: re.Match[str]) -> str:
    before = _NUMBER_OF.search(found.string[: found.start()])
    return found[0] if before and before[1] in _KEPT else "#"


def flaws_of(theirs: str, ours: str) -> list[str]:
    """What only one of the two says."""
    expected, found = lines_of(theirs), lines_of(ours)
    missing = [f"missing: {line}" for line in (expected - found)]
    return [*missing, *(f"not expected: {line}" for line in (found - expected))]
