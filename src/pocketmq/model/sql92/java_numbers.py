"""Numbers in texts, as Java reads them: what a property must look like to be compared with a number.

    literal in the expression      the property must be
    5, up to 2147483647            a whole number of 32 bits: 7, +7, -7, 007. Not 7.0, not 3000000000, no blanks
    3000000000                     the same with 64 bits
    5.0, 5e3                       any number: 7, 7.5, 1e3, .5, 7d, 0x1p3, NaN, Infinity, with blanks around it

Python's own `int` and `float` take other texts (1_000, inf), so nothing is handed to them unseen. Each function raises ValueError for
a text that Java would refuse.
"""

import math
import re
from typing import Final

INT_BITS: Final = 32
LONG_BITS: Final = 64
_SAFE_DIGITS: Final = 9
"""So many digits fit into 32 bits whatever they are."""
_LONG_DIGITS: Final = 19
_JAVA_BLANKS: Final = "".join(map(chr, range(0x21)))
"""What Java trims."""

_WHOLE = re.compile(r"([+-]?)(\d+)")
_NO_NUMBER = re.compile(r"[+-]?(?:NaN|Infinity)")
_DECIMAL = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?")
_HEX = re.compile(r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?")


def java_int(text: str) -> int:
    """A whole number of 32 bits."""
    if len(text) <= _SAFE_DIGITS and text.isascii() and text.isdigit():
        return int(text)
    return _whole(text, INT_BITS)


def java_long(text: str) -> int:
    """A whole number of 64 bits."""
    return _whole(text, LONG_BITS)


def _whole(text: str, bits: int) -> int:
    match = _WHOLE.fullmatch(text)
    if match is None or max(text) > "\uffff":  # of a character beyond, Java sees two halves, and no half is a digit
        raise ValueError(f"{text[:40]!r} is not a whole number")
    digits = match[2].lstrip("0") or "0"
    value = int(match[1] + digits) if len(digits) <= _LONG_DIGITS else 1 << LONG_BITS
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ValueError(f"{text[:40]!r} has more than {bits} bits")
    return value


def java_double(text: str) -> float:
    """A number of any kind; too large a one is infinite."""
    digits = text.replace(".", "", 1)
    if digits.isascii() and digits.isdigit():
        return float(text)
    text = text.strip(_JAVA_BLANKS)
    if match := _DECIMAL.fullmatch(text):
        return float(match[1])
    if _NO_NUMBER.fullmatch(text):
        return float(text)
    if match := _HEX.fullmatch(text):
        return _from_hex(match[1])
    raise ValueError(f"{text[:40]!r} is not a number")


def _from_hex(text: str) -> float:
    try:
        return float.fromhex(text)
    except OverflowError:
        return math.copysign(math.inf, -1 if text.startswith("-") else 1)


def java_double_or_infinite(text: str) -> float:
    """`java_double` for comparing with a finite number: Java sorts NaN above all others, where infinity stands as well."""
    value = java_double(text)
    return math.inf if math.isnan(value) else value


def java_order(left: float, right: float) -> int:
    """-1, 0 or 1 as Java sorts: NaN equals itself and is above all others, -0.0 is below 0.0."""
    if left < right:
        return -1
    if left > right:
        return 1
    left_rank, right_rank = _rank(left), _rank(right)
    return (left_rank > right_rank) - (left_rank < right_rank)


def _rank(value: float) -> tuple[bool, float]:
    """Parts numbers that are neither below nor above one another."""
    return (True, 0.0) if math.isnan(value) else (False, math.copysign(1.0, value))
