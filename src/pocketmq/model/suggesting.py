"""Suggestions for names that do not exist: `tag=` is refused with "did you mean 'tags'?"."""

import difflib
from collections.abc import Iterable, Mapping
from typing import Final

from pocketmq.errors import UsageError

_OTHER_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "timeout": ("timeout_s", "send_timeout_ms", "pull_timeout_ms", "call_timeout_ms"),
    "timeout_ms": ("timeout_s", "send_timeout_ms", "pull_timeout_ms", "call_timeout_ms"),
    "timeout_s": ("send_timeout_ms", "pull_timeout_ms", "call_timeout_ms"),
    "headers": ("properties",),
    "filter": ("tags",),
    "selector": ("tags",),
    "expression": ("sql",),
    "threads": ("workers",),
    "bootstrap_servers": ("name_servers",),
    "from_where": ("start_at",),
}
"""Words of other libraries, or with another unit, and what they are called here."""


def suggestion(name: str, known: Iterable[str]) -> str:
    """`did you mean 'tags'?`, or all that there is when nothing comes near."""
    known = sorted(known)
    near = [word for word in _OTHER_WORDS.get(name, ()) if word in known] or difflib.get_close_matches(
        name, known, 1, 0.5
    )
    return f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known)}"


def refuse_unknown(what: str, unknown: Iterable[str], known: Iterable[str]) -> None:
    """UsageError for the first argument that `what` does not have, if there is any."""
    for name in unknown:
        raise UsageError(f"{what} has no argument {name!r}; {suggestion(name, known)}")
