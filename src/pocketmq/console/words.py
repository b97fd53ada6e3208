"""Words for pages: numbers, spans and moments of time, shares. What nobody knows is called unknown, never 0."""

from datetime import datetime
from typing import Final

from pocketmq.errors import NetworkError, PocketMQError, ProtocolError, RemoteError, UsageError
from pocketmq.model.flags import Perm, compression_of
from pocketmq.store.message_fields import local_time

UNKNOWN: Final = "unknown"
_UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000))
_PERMS: Final = {"rw": Perm.READ_WRITE, "r": Perm.READ, "w": Perm.WRITE}


def number(value: float | None) -> str:
    """`12,000`, `0.5`, `unknown`."""
    if value is None:
        return UNKNOWN
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}".removesuffix(".0")


def short_number(value: float | None) -> str:
    """`12 k`, `3.4 M`: where there is little room."""
    if value is None:
        return UNKNOWN
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.1f}".removesuffix(".0") + f" {unit}"
    return number(value if isinstance(value, int) else round(value, 1))


def span(ms: float | None) -> str:
    """`850 ms`, `12 s`, `3 min 5 s`, `2 d 4 h`: the two largest units."""
    if ms is None:
        return UNKNOWN
    rest = int(ms)
    if 0 < rest < 1_000:
        return f"{rest} ms"
    parts: list[str] = []
    for unit, unit_ms in _UNITS:
        many, rest = divmod(rest, unit_ms)
        if many or parts:
            parts.append(f"{many} {unit}")
    return " ".join(part for part in parts[:2] if not part.startswith("0 ")) or "0 s"


def moment(ms: int | None) -> str:
    """As the clock on the wall of the console's machine would have shown it, to the second."""
    return UNKNOWN if ms is None else local_time(ms)[:19].replace("T", " ")


def share(part: float | None) -> str:
    return UNKNOWN if part is None else f"{part:.0%}".replace("%", " %")


def size(count: int | None) -> str:
    """`12 B`, `1.5 KiB`."""
    if count is None:
        return UNKNOWN
    value, units = float(count), iter(("B", "KiB", "MiB", "GiB", "TiB"))
    unit = next(units)
    while value >= 1024 and unit != "TiB":
        value, unit = value / 1024, next(units)
    return f"{value:,.1f}".removesuffix(".0") + f" {unit}"


def perm_text(perm: int) -> str:
    return ("r" if perm & Perm.READ else "") + ("w" if perm & Perm.WRITE else "") or "none"


def perm_word(text: str) -> int:
    if text not in _PERMS:
        raise UsageError(f"{text!r} is no permission; it is one of: {', '.join(_PERMS)}")
    return _PERMS[text]


def whole(text: str, what: str, *, least: int = 0, most: int = 2**63 - 1) -> int:
    """A whole number of a form."""
    stripped = text.strip()
    if not (stripped.isascii() and stripped.isdigit() and len(stripped) < 20 and least <= int(stripped) <= most):
        raise UsageError(f"{what}: {text!r} is no whole number from {least:,} to {most:,}")
    return int(stripped)


def moment_word(text: str, what: str) -> datetime:
    """A moment of a form, `2026-03-01T12:00`, by the clock of the console's machine."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{what}: {text!r} is no moment; write it as 2026-03-01T12:00") from None


def moment_ms(text: str, what: str) -> int | None:
    return int(moment_word(text, what).timestamp() * 1000) if text else None


def compression_name(sys_flag: int) -> str:
    """`zlib`; empty for a body that is not compressed."""
    try:
        kind = compression_of(sys_flag)
    except ProtocolError:
        return "compressed"
    return "" if kind is None else kind.name.lower()


def count(many: int, what: str) -> str:
    """`1 message`, `2 messages`."""
    return f"{many:,} {what}{'' if many == 1 else 's'}"


def sentence(error: PocketMQError) -> str:
    """What a page says of an error: the first line of it, with what to do when nobody answers."""
    told = error.remark if isinstance(error, RemoteError) and error.remark else str(error)
    text = told.partition("\n")[0].rstrip(".")
    return f"{text}. See that name server and brokers run." if isinstance(error, NetworkError) else f"{text}."
