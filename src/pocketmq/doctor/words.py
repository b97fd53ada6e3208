"""Numbers and spans of time in the sentences of a report."""

_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000))


def count(number: int, noun: str) -> str:
    """`1 message`, `2,000 messages`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def span(ms: int) -> str:
    """`850 ms`, `12 s`, `3 min`, `47 h`, `9 d`: the largest unit of which there are two at least."""
    unit, unit_ms = next(((unit, unit_ms) for unit, unit_ms in _UNITS if ms >= 2 * unit_ms), ("ms", 1))
    return f"{ms // unit_ms:,} {unit}"
