"""Numbers in texts, as Java's Integer, Long and Double parse them; every row was checked with Java 17."""

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.model.sql92.evaluation import java_double, java_double_or_infinite, java_int, java_long, java_order


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("+5", 5),
        ("-5", -5),
        ("-0", 0),
        ("005", 5),
        ("0" * 5000 + "5", 5),
        ("2147483647", 2147483647),
        ("-2147483648", -2147483648),
        ("٥", 5),
        ("１２", 12),
    ],
)
def test_whole_numbers_are_read_as_by_java(text: str, value: int) -> None:
    assert java_int(text) == java_long(text) == value


@pytest.mark.parametrize("read", [java_int, java_long, java_double])
@pytest.mark.parametrize(
    "text", ["", "+", "-", "x", "--5", "5L", "1_000", "0x5", "5 5", "²", "𝟓", "inf", "nan", "1e", "5dd"]
)
def test_a_text_that_is_not_a_number_is_refused(text: str, read: Callable[[str], float]) -> None:
    with pytest.raises(ValueError, match=r"is not a"):
        read(text)


@pytest.mark.parametrize("text", [" 5", "5 ", "5.0", "5.", "1e1", "5d", "NaN"])
@pytest.mark.parametrize("read", [java_int, java_long])
def test_a_fraction_is_not_a_whole_number(text: str, read: Callable[[str], float]) -> None:
    java_double(text)

    with pytest.raises(ValueError, match="is not a whole number"):
        read(text)


@pytest.mark.parametrize("text", ["2147483648", "-2147483649", "3000000000"])
def test_a_number_with_more_than_32_bits_is_refused(text: str) -> None:
    assert java_long(text) == int(text)

    with pytest.raises(ValueError, match="has more than 32 bits"):
        java_int(text)


@pytest.mark.parametrize("text", ["9223372036854775808", "-9223372036854775809", "9" * 5000])
def test_a_number_with_more_than_64_bits_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="has more than 64 bits"):
        java_long(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5.0),
        ("5.5", 5.5),
        (".5", 0.5),
        ("5.", 5.0),
        ("-5.5", -5.5),
        ("+1e1", 10.0),
        ("1.5E+3D", 1500.0),
        ("5d", 5.0),
        ("5F", 5.0),
        (" \t\x005\n", 5.0),
        ("0x5p0", 5.0),
        ("0X.8P-2f", 0.125),
        ("-0x1.p4", -16.0),
        ("Infinity", math.inf),
        ("-Infinity", -math.inf),
        ("1e400", math.inf),
        ("-1e400", -math.inf),
        ("0x1p99999999999999999999", math.inf),
        ("-0x1p5000", -math.inf),
        ("0x0p99999999999999999999", 0.0),
        ("0x1p-99999999999999999999", 0.0),
        ("1e-400", 0.0),
        ("9" * 400, math.inf),
    ],
)
def test_numbers_of_any_kind_are_read(text: str, value: float) -> None:
    assert java_double(text) == value


@pytest.mark.parametrize(
    "text", [".", "\u00a05", "infinity", "nan", "Infinityd", "0x5", "0xp1", "0x1p", "٥", "+-5", "1e+"]
)
def test_numbers_that_only_python_accepts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a number"):
        java_double(text)


@pytest.mark.parametrize("text", ["NaN", "+NaN", "-NaN"])
def test_nan_is_above_all_finite_numbers(text: str) -> None:
    assert math.isnan(java_double(text))
    assert java_double_or_infinite(text) == math.inf


SORTED = [-math.inf, -1.5, -0.0, 0.0, 5e-324, 1.5, math.inf, math.nan]


@pytest.mark.parametrize("left", range(len(SORTED)))
@pytest.mark.parametrize("right", range(len(SORTED)))
def test_all_numbers_are_ordered_as_in_java(left: int, right: int) -> None:
    assert java_order(SORTED[left], SORTED[right]) == (left > right) - (left < right)


@given(st.text(alphabet="0123456789+-.eExXpPdDfFNaInity_ \t", max_size=12))
def test_numbers_that_java_accepts_have_the_same_value(text: str) -> None:
    try:
        value = java_double(text)
    except ValueError:
        return

    plain = text.strip("\t ").rstrip("dDfF" if "x" not in text.lower() else "") or text
    if "x" not in text.lower():
        assert value == float(plain) or math.isnan(value)


@given(st.integers())
def test_every_whole_number_of_32_bits_is_read(value: int) -> None:
    if -(2**31) <= value < 2**31:
        assert java_int(str(value)) == value
    else:
        with pytest.raises(ValueError, match="bits"):
            java_int(str(value))
