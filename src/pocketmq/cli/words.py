"""Words for what people read and write: numbers, spans and moments of time, queues. What nobody knows is called unknown."""

import re
from datetime import datetime, timedelta
from typing import Final

import click

from pocketmq.model.flags import Perm
from pocketmq.store.message_fields import local_time

UNKNOWN: Final = "unknown"
_UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000))
_SPAN: Final = re.compile(r"(\d+)\s*(ms|s|min|m|h|d)")
_UNIT_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_PERMS: Final = {"r": Perm.READ, "w": Perm.WRITE, "rw": Perm.READ_WRITE}


def number(value: float | None) -> str:
    """`12,000`, `0.5`, `unknown`."""
    if value is None:
        return UNKNOWN
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def offset(value: int | None) -> str:
    """Where a group is in a queue."""
    return "never there" if value is None else f"{value:,}"


def span(ms: int | None) -> str:
    """`850 ms`, `12 s`, `3 min 5 s`, `2 d 4 h`, `unknown`: the two largest units."""
    if ms is None:
        return UNKNOWN
    if 0 < ms < 1_000:
        return f"{ms} ms"
    parts: list[str] = []
    for unit, unit_ms in _UNITS:
        many, ms = divmod(ms, unit_ms)
        if many or (parts and len(parts) < 2):
            parts.append(f"{many} {unit}")
    return " ".join(part for part in parts[:2] if not part.startswith("0 ")) or "0 s"


def clock_time(ms: int | None) -> str:
    """A moment as the clock on the wall would have shown it."""
    return UNKNOWN if ms is None else local_time(ms)


def share(part: float | None) -> str:
    """`42 %`."""
    return UNKNOWN if part is None else f"{part:.0%}".replace("%", " %")


def perm_text(perm: int) -> str:
    """`rw`, `r`, `w`, or `none`."""
    return ("r" if perm & Perm.READ else "") + ("w" if perm & Perm.WRITE else "") or "none"


def perm_word(text: str) -> int:
    """What may be done with a topic: `rw`, `r` or `w`."""
    if text not in _PERMS:
        raise click.BadParameter(f"{text!r} is none of: {', '.join(_PERMS)}")
    return _PERMS[text]


def span_word(text: str) -> int:
    """The milliseconds of a span of time: `500ms`, `30s`, `10m`, `2h`, `7d`."""
    ms = _span_ms(text)
    if ms is None:
        raise click.BadParameter(f"{text!r} is no span of time such as 500ms, 30s, 10m, 2h or 7d")
    return ms


def moment_word(text: str) -> datetime | timedelta:
    """A moment: `2026-03-01T12:00`, local if no zone is told, or a span before now such as `2h`."""
    try:
        ms = _span_ms(text)
        if ms is not None:
            return timedelta(milliseconds=ms)
        moment = datetime.fromisoformat(text)
        moment.timestamp()
    except (ValueError, OverflowError, OSError):  # also for one before or after all that clocks can show
        raise click.BadParameter(
            f"{text!r} is no moment: give a time such as 2026-03-01T12:00, or 2h for two hours ago"
        ) from None
    return moment


def place_word(text: str) -> str | datetime | timedelta:
    """Where to go on: `earliest`, `latest`, or a moment."""
    return text if text in ("earliest", "latest") else moment_word(text)


def moment_ms(moment: datetime | timedelta, now_ms: int) -> int:
    if isinstance(moment, datetime):
        return int(moment.timestamp() * 1000)
    return now_ms - moment // timedelta(milliseconds=1)


def queue_word(text: str) -> tuple[str, int]:
    """A queue of a topic, `broker-a:0`: the broker's name and the number."""
    broker, _, queue_id = text.rpartition(":")
    if not broker or not queue_id.isdecimal():
        raise click.BadParameter(f"{text!r} is no queue: give broker and number, such as broker-a:0")
    return broker, int(queue_id)


def pair_word(text: str) -> tuple[str, str]:
    """`NAME=VALUE`."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise click.BadParameter(f"{text!r} is not of the form NAME=VALUE")
    return name, value


def _span_ms(text: str) -> int | None:
    match = _SPAN.fullmatch(text.strip())
    return int(match[1]) * _UNIT_MS[match[2]] if match else None
