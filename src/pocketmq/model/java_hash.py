"""Java's `String.hashCode`, which RocketMQ uses for tags and index keys.

    h = s[0]*31^(n-1) + s[1]*31^(n-2) + … + s[n-1]      over UTF-16 units, in a signed 32-bit int

Python's own hash, or a hash over UTF-8 bytes, would filter wrongly.
"""

from operator import mul


def _powers(count: int) -> list[int]:
    powers = [1] * count
    for n in range(1, count):
        powers[n] = powers[n - 1] * 31 & 0xFFFFFFFF
    return powers


# Highest power first once sliced from the end; long enough for topic#key texts. Longer texts take the slow path.
_POWERS = _powers(512)[::-1]


def java_hash(text: str) -> int:
    """The hash as Java's signed 32-bit int."""
    units: bytes | memoryview = text.encode("latin-1") if text.isascii() else _utf16_units(text)
    count = len(units)
    if count <= len(_POWERS):
        total: int = sum(map(mul, units, _POWERS[-count:] if count else ()))
    else:
        total = 0
        for unit in units:
            total = total * 31 + unit & 0xFFFFFFFF
    return ((total & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000


def _utf16_units(text: str) -> memoryview:
    encoded = text.encode("utf-16-le", "surrogatepass")
    return memoryview(bytearray(encoded)).cast("H")
