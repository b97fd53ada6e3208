"""Formats and parses numbers, durations, times, sizes, permissions and queues for people.

    format  number(12_000) = "12,000"    duration(185_000) = "3 min 5 s"    size(1536) = "1.5 KiB"    None = "unknown"
    parse   parse_duration_ms("2h") = 7_200_000    parse_time("2h") = two hours ago    parse_perm("rw") = READ_WRITE

The command line, the console, the doctor and the pipelines use the same forms. A text that cannot be parsed is a UsageError that
names the expected form.
"""

import re
from datetime import datetime, timedelta
from typing import Final

from pocketmq.codes import Perm
from pocketmq.errors import UsageError

UNKNOWN: Final = "unknown"
DURATION_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
SIZE_UNITS: Final = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_DURATION: Final = re.compile(r"(\d{1,15})\s*(ms|s|min|m|h|d)")
_SIZE: Final = re.compile(r"(\d{1,15})\s*(B|KB|MB|GB|KiB|MiB|GiB)?", re.IGNORECASE)
_PERMS: Final = {"rw": Perm.READ_WRITE, "r": Perm.READ, "w": Perm.WRITE}


def number(value: float | None) -> str:
    """`12,000`, `0.5`, `unknown`."""
    if value is None:
        return UNKNOWN
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}".removesuffix(".0")


def short_number(value: float | None) -> str:
    """`12 k`, `3.4 M`, for axes and narrow columns."""
    if value is None:
        return UNKNOWN
    for unit, least in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= least:
            return f"{number(value / least)} {unit}"
    return number(value)


def count(many: int, noun: str) -> str:
    """`1 message`, `2,000 messages`."""
    return f"{many:,} {noun}{'' if many == 1 else 's'}"


def offset(value: int | None) -> str:
    """The committed offset of a group in a queue."""
    return "none" if value is None else f"{value:,}"


def percent(part: float | None) -> str:
    """`42 %`."""
    return UNKNOWN if part is None else f"{part:.0%}".replace("%", " %")


def size(many: int | None) -> str:
    """`12 B`, `1.5 KiB`."""
    if many is None:
        return UNKNOWN
    value, units = float(many), iter(("B", "KiB", "MiB", "GiB", "TiB"))
    unit = next(units)
    while value >= 1024 and unit != "TiB":
        value, unit = value / 1024, next(units)
    return f"{number(value)} {unit}"


def duration(ms: float | None) -> str:
    """`850 ms`, `12 s`, `3 min 5 s`, `2 d 4 h`, `unknown`: the two largest units."""
    if ms is None:
        return UNKNOWN
    rest = int(ms)
    if 0 < rest < 1_000:
        return f"{rest} ms"
    parts: list[str] = []
    for unit in ("d", "h", "min", "s"):
        many, rest = divmod(rest, DURATION_UNITS_MS[unit])
        if many or parts:
            parts.append(f"{many} {unit}")
    return " ".join(part for part in parts[:2] if not part.startswith("0 ")) or "0 s"


def local_time(ms: int | None) -> str:
    """Local time, `2026-03-01T12:00:00.000+01:00`; the number itself if it is outside the calendar."""
    if ms is None:
        return UNKNOWN
    try:
        moment = datetime.fromtimestamp(ms // 1000) + timedelta(milliseconds=ms % 1000)
        return moment.astimezone().isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"


def short_local_time(ms: int | None) -> str:
    """`2026-03-01 12:00:00`."""
    return local_time(ms)[:19].replace("T", " ")


def perm_text(perm: int) -> str:
    """`rw`, `r`, `w`, or `none`."""
    return ("r" if perm & Perm.READ else "") + ("w" if perm & Perm.WRITE else "") or "none"


def parse_whole(text: str, least: int = 0, most: int = 2**63 - 1) -> int:
    stripped = text.strip()
    if not (stripped.isascii() and stripped.isdigit() and len(stripped) < 20 and least <= int(stripped) <= most):
        raise UsageError(f"{text!r} is not a whole number from {least:,} to {most:,}")
    return int(stripped)


def parse_duration_ms(text: str) -> int:
    match = _DURATION.fullmatch(text.strip())
    if not match:
        raise UsageError(f"{text!r} is not a duration such as 500ms, 30s, 10m, 2h or 7d")
    return int(match[1]) * DURATION_UNITS_MS[match[2]]


def parse_size(text: str) -> int:
    """A size in bytes. A number without a unit is in bytes."""
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise UsageError(f"{text!r} is not a size such as 500KB, 128MiB or 1GB")
    return int(match[1]) * SIZE_UNITS[(match[2] or "B").lower()]


def parse_time(text: str) -> datetime | timedelta:
    """A time, local if it has no zone, or a duration before now, such as `2h`."""
    try:
        if _DURATION.fullmatch(text.strip()):
            return timedelta(milliseconds=parse_duration_ms(text))
        moment = datetime.fromisoformat(text.strip())
        moment.timestamp()
    except (ValueError, OverflowError, OSError):  # the last two for times outside the calendar
        raise UsageError(f"{text!r} is not a time such as 2026-03-01T12:00, or 2h for two hours ago") from None
    return moment


def time_ms(time: datetime | timedelta, now_ms: int) -> int:
    """A result of `parse_time` in milliseconds since 1970."""
    if isinstance(time, datetime):
        return int(time.timestamp() * 1000)
    return now_ms - time // timedelta(milliseconds=1)


def parse_start(text: str) -> str | datetime | timedelta:
    """The start of a group: `earliest`, `latest`, or a time."""
    if text in ("earliest", "latest"):
        return text
    try:
        return parse_time(text)
    except UsageError as error:
        raise UsageError(f"{error}, nor earliest or latest") from None


def parse_perm(text: str) -> int:
    """The permissions of a topic: `rw`, `r` or `w`."""
    if text not in _PERMS:
        raise UsageError(f"{text!r} is not a permission; the permissions are {', '.join(_PERMS)}")
    return _PERMS[text]


def parse_queue(text: str) -> tuple[str, int]:
    """A broker name and a queue id, `broker-a:0`."""
    broker, _, queue_id = text.rpartition(":")
    if not broker or not queue_id.isdecimal():
        raise UsageError(f"{text!r} is not a broker name and a queue id such as broker-a:0")
    return broker, int(queue_id)


def parse_pair(text: str) -> tuple[str, str]:
    """`NAME=VALUE`."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise UsageError(f"{text!r} is not of the form NAME=VALUE")
    return name, value
