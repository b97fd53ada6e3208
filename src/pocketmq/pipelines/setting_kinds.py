"""How settings of a pipeline are written: spans of time, sizes and moments, the same in a file and on the command line.

A value is a plain number for the code that uses it. `str` gives its digits, because py4j hands a number to Java as `str` writes it;
`text` is for people.
"""

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

_SPAN: Final = re.compile(r"(\d{1,15})\s*(ms|s|min|m|h|d)")
_SPAN_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIZE: Final = re.compile(r"(\d{1,15})\s*(B|KB|MB|GB|KiB|MiB|GiB)?", re.IGNORECASE)
_SIZE_BYTES: Final = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}


class Span(int):
    """Milliseconds, written as `500ms`, `30s`, `10m`, `2h` or `7d`."""

    word = "SPAN"

    @classmethod
    def read(cls, text: str, now_ms: int) -> "Span":
        match = _SPAN.fullmatch(text.strip())
        if not match:
            raise ValueError("a span of time such as 500ms, 30s, 10m, 2h or 7d")
        return cls(int(match[1]) * _SPAN_MS[match[2]])

    @property
    def text(self) -> str:
        for unit in ("d", "h", "m", "s"):
            if self and self % _SPAN_MS[unit] == 0:
                return f"{self // _SPAN_MS[unit]}{unit}"
        return f"{int(self)}ms"


class Size(int):
    """Bytes, written as `500KB`, `128MiB` or `1GB`."""

    word = "SIZE"

    @classmethod
    def read(cls, text: str, now_ms: int) -> "Size":
        match = _SIZE.fullmatch(text.strip())
        if not match:
            raise ValueError("a size such as 500KB, 128MiB or 1GB")
        return cls(int(match[1]) * _SIZE_BYTES[(match[2] or "B").lower()])

    @property
    def text(self) -> str:
        for unit in ("GiB", "GB", "MiB", "MB", "KiB", "KB"):
            if self and self % _SIZE_BYTES[unit.lower()] == 0:
                return f"{self // _SIZE_BYTES[unit.lower()]}{unit}"
        return f"{int(self)}B"


class Moment(int):
    """Milliseconds since 1970, written as `2026-03-01T12:00`, local if no zone is told, or as a span before now: `2h`."""

    word = "MOMENT"

    @classmethod
    def read(cls, text: str, now_ms: int) -> "Moment":
        try:
            if _SPAN.fullmatch(text.strip()):
                moment = cls(now_ms - Span.read(text, now_ms))
            else:
                moment = cls(int(datetime.fromisoformat(text.strip()).timestamp() * 1000))
        except (ValueError, OverflowError):
            raise ValueError("a moment such as 2026-03-01T12:00, or 2h for two hours ago") from None
        if moment < 0:
            raise ValueError("a moment since 1970, which is where times of messages begin")
        return moment

    @property
    def text(self) -> str:
        return datetime.fromtimestamp(self / 1000).astimezone().isoformat(timespec="milliseconds")


KINDS: Final = (Span, Size, Moment)


def reading(now_ms: int) -> Callable[[type, Any], Any]:
    """For msgspec: values of these kinds out of what TOML and flags hold. A plain number is milliseconds, or bytes."""

    def read(kind: type, value: Any) -> Any:
        if kind not in KINDS:
            raise TypeError(f"a setting cannot be {kind}; there are {KINDS}")
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return kind(value)
        text = (
            value if isinstance(value, str) else str(value)
        )  # TOML has moments of its own, which are written the same
        try:
            return kind.read(text, now_ms)
        except ValueError as error:
            raise ValueError(f"{text!r} is not {error}") from None

    return read
