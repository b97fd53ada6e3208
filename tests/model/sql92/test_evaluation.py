"""Expressions × messages → true, false, unknown or no answer. RocketMQ 5.3.3's own filter gives these answers, all of them."""

from typing import Final

import pytest

from pocketmq.model.sql92.evaluation import function_of
from pocketmq.model.sql92.parser import parse

NO_ANSWER: Final = "no answer"
Answer = bool | None | str


def answer(expression: str, properties: dict[str, str]) -> Answer:
    question = function_of(parse(expression))
    try:
        return question(properties.get)
    except ValueError:
        return NO_ANSWER


def has(**properties: str) -> dict[str, str]:
    return properties


NUMBERS: list[tuple[str, dict[str, str], Answer]] = [
    ("a > 5", has(a="6"), True),
    ("a > 5", has(a="5"), False),
    ("a >= 5", has(a="5"), True),
    ("a < 5", has(a="4"), True),
    ("a <= 5", has(a="5"), True),
    ("a <= 5", has(a="6"), False),
    ("5 < a", has(a="6"), True),
    ("5 <= a", has(a="4"), False),
    ("5 > a", has(a="4"), True),
    ("5 >= a", has(a="5"), True),
    ("a > 5", has(), None),
    ("5 > a", has(), None),
    ("a > 5", has(a="5.5"), NO_ANSWER),
    ("a > 5", has(a="six"), NO_ANSWER),
    ("a > 5", has(a=" 6"), NO_ANSWER),
    ("a > 5", has(a="3000000000"), NO_ANSWER),
    ("a > 5L", has(a="3000000000"), NO_ANSWER),
    ("a > 2147483648", has(a="3000000000"), True),
    ("a > -2147483648", has(a="3000000000"), True),
    ("a > -2147483647", has(a="3000000000"), NO_ANSWER),
    ("a > 2147483648", has(a="9223372036854775808"), NO_ANSWER),
    ("a > 5.0", has(a="5.5"), True),
    ("a > 5.0", has(a=" 5.5d "), True),
    ("a > 5.0", has(a="3000000000"), True),
    ("a > 5.0", has(a="1e400"), True),
    ("a > 5.0", has(a="NaN"), True),
    ("a >= 5.0", has(a="NaN"), True),
    ("a < 5.0", has(a="NaN"), False),
    ("a = 5.0", has(a="NaN"), False),
    ("a > 5.0", has(a="six"), NO_ANSWER),
    ("a = 5", has(a="+05"), True),
    ("a = 5", has(a="5.0"), NO_ANSWER),
    ("a = 5.0", has(a="0x5p0"), True),
    ("a <> 5", has(a="6"), True),
    ("a <> 5", has(), None),
    ("5 = a", has(a="5"), True),
    ("5 = a", has(), False),
    ("5 <> a", has(), True),
    ("a > -5", has(a="-4"), True),
    ("a = - -5", has(a="5"), True),
    ("a > +5", has(a="6"), True),
    ("5 = 5.0", has(), True),
    ("5 <> 6", has(), True),
    ("5 > 3", has(), True),
    ("3000000000 < 3", has(), False),
    ("9007199254740993 = 9007199254740992.0", has(), True),
    ("9007199254740993 = 9007199254740992", has(), False),
    ("5 = '5'", has(), True),
    ("'x' = 5", has(), NO_ANSWER),
]

TWO_PROPERTIES: list[tuple[str, dict[str, str], Answer]] = [
    ("a > b", has(a="2", b="1.5"), True),
    ("a > b", has(a="1e1", b="9"), True),
    ("a >= b", has(a="1", b="1.0"), True),
    ("a <= b", has(a="NaN", b="NaN"), True),
    ("a < b", has(a="-0.0", b="0.0"), True),
    ("a > b", has(a="x", b="1"), NO_ANSWER),
    ("a > b", has(a="1", b="x"), NO_ANSWER),
    ("a > b", has(b="x"), None),
    ("a > b", has(a="x"), None),
    ("a = b", has(a="x", b="x"), True),
    ("a = b", has(a="1", b="1.0"), False),
    ("a = b", has(), True),
    ("a = b", has(a="x"), False),
    ("a = b", has(b="x"), None),
    ("a <> b", has(), False),
    ("a <> b", has(a="x"), True),
    ("a BETWEEN b AND c", has(a="2", b="1", c="3"), True),
    ("a BETWEEN b AND c", has(a="2", b="3", c="1"), False),
    ("a BETWEEN b AND c", has(a="2", b="1"), None),
    ("a BETWEEN b AND c", has(a="1", b="2"), False),
]

TEXTS: list[tuple[str, dict[str, str], Answer]] = [
    ("a = 'x'", has(a="x"), True),
    ("a = 'x'", has(a="X"), False),
    ("a = 'x'", has(), None),
    ("'x' = a", has(a="x"), True),
    ("'x' = a", has(), False),
    ("a <> 'x'", has(a="y"), True),
    ("a <> 'x'", has(), None),
    ("'x' <> a", has(), True),
    ("a = 'it''s'", has(a="it's"), True),
    ("a = '5'", has(a="05"), False),
    ("'x' = 'x'", has(), True),
    ("a IN ('x', 'y')", has(a="y"), True),
    ("a IN ('x', 'y')", has(a="z"), False),
    ("a IN ('x')", has(), None),
    ("a NOT IN ('x')", has(a="y"), True),
    ("a NOT IN ('x')", has(a="x"), False),
    ("a NOT IN ('x')", has(), None),
    ("a CONTAINS 'b'", has(a="abc"), True),
    ("a CONTAINS 'B'", has(a="abc"), False),
    ("a STARTSWITH 'a'", has(a="abc"), True),
    ("a STARTSWITH 'b'", has(a="abc"), False),
    ("a ENDSWITH 'c'", has(a="abc"), True),
    ("a ENDSWITH 'b'", has(a="abc"), False),
    ("a NOT CONTAINS 'x'", has(a="abc"), True),
    ("a NOT STARTSWITH 'a'", has(a="abc"), False),
    ("a NOT ENDSWITH 'a'", has(a="abc"), True),
    ("a CONTAINS 'x'", has(), False),
    ("a NOT CONTAINS 'x'", has(), False),
    ("NOT (a CONTAINS 'x')", has(), True),
    ("a CONTAINS ''", has(a="x"), False),
    ("a NOT ENDSWITH ''", has(a="x"), False),
    ("'abc' CONTAINS 'b'", has(), True),
    ("5 CONTAINS '5'", has(), False),
    ("TRUE NOT CONTAINS 'x'", has(), False),
    ("(a > 5) CONTAINS 'x'", has(a="six"), NO_ANSWER),
    ("(a > 5) CONTAINS ''", has(a="six"), False),
    ("a CONTAINS 'x' CONTAINS 'x'", has(a="x"), False),
]

RANGES: list[tuple[str, dict[str, str], Answer]] = [
    ("a BETWEEN 1 AND 3", has(a="1"), True),
    ("a BETWEEN 1 AND 3", has(a="3"), True),
    ("a BETWEEN 1 AND 3", has(a="4"), False),
    ("a BETWEEN 1 AND 3", has(a="0"), False),
    ("a BETWEEN 1 AND 3", has(), None),
    ("a BETWEEN 1 AND 3", has(a="x"), NO_ANSWER),
    ("a BETWEEN 1 AND 3.5", has(a="0.5"), NO_ANSWER),
    ("a BETWEEN -3 AND -1", has(a="-2"), True),
    ("a NOT BETWEEN 1 AND 3", has(a="4"), True),
    ("a NOT BETWEEN 1 AND 3", has(a="3"), False),
    ("a NOT BETWEEN 1 AND 3", has(), None),
    ("a NOT BETWEEN 9 AND 1", has(a="5"), True),
    ("2 BETWEEN a AND b", has(a="1", b="3"), True),
    ("2 BETWEEN 1 AND 3", has(), True),
    ("a BETWEEN 1 AND 3 AND b = 'x'", has(a="2", b="x"), True),
]

TRUTH: list[tuple[str, dict[str, str], Answer]] = [
    ("TRUE", has(), True),
    ("FALSE", has(), False),
    ("NULL", has(), None),
    ("NOT NULL", has(), None),
    ("NOT FALSE", has(), True),
    ("a", has(a="true"), False),
    ("a", has(), None),
    ("NOT a", has(a="true"), True),
    ("NOT a", has(), None),
    ("a = TRUE", has(a="True"), True),
    ("a = TRUE", has(a="yes"), False),
    ("a = FALSE", has(a="yes"), True),
    ("a = FALSE", has(), None),
    ("a <> TRUE", has(a="no"), True),
    ("'true' = TRUE", has(), True),
    ("TRUE = a", has(a="true"), NO_ANSWER),
    ("TRUE = a", has(), False),
    ("(b = 1) = a", has(a="true", b="1"), NO_ANSWER),
    ("(b = 1) = a", has(a="true"), None),
    ("(b = 1) = a", has(), True),
    ("a = (b = 1)", has(a="true", b="1"), True),
    ("a = (b = 1)", has(a="true"), False),
    ("(a = 1) = (b = 1)", has(a="1", b="1"), True),
    ("(a = 1) = (b = 1)", has(a="1", b="2"), False),
    ("(a = 1) <> FALSE", has(a="1"), True),
    ("5 = TRUE", has(), False),
    ("(a = 1) = 5", has(a="1"), False),
    ("(a = 1) = 5", has(), None),
    ("5 = (a = 1)", has(), False),
    ("NOT a = 5", has(a="6"), False),
    ("NOT a = 5", has(), None),
    ("NOT (a = 5)", has(a="6"), True),
    ("a IS NULL", has(), True),
    ("a IS NULL", has(a="x"), False),
    ("a IS NOT NULL", has(a="x"), True),
    ("a IS NOT NULL", has(), False),
    ("NULL IS NULL", has(), True),
    ("5 IS NULL", has(), False),
    ("a > 5 IS NULL", has(), True),
    ("a > 5 IS NOT NULL", has(a="1"), True),
    ("a > 5 IS NULL", has(a="x"), NO_ANSWER),
    ("a IS NULL IS NULL", has(), False),
]

MINUS: list[tuple[str, dict[str, str], Answer]] = [
    ("a > -b", has(a="5", b="5"), None),
    ("-a > b", has(a="5", b="5"), None),
    ("a = -b", has(a="5", b="5"), False),
    ("a = -b", has(), True),
    ("-b = a", has(a="5"), None),
    ("a <> -b", has(a="5", b="5"), True),
    ("a = -'5'", has(a="-5"), False),
    ("a > -(b > 5)", has(a="5", b="six"), NO_ANSWER),
    ("a > -(b > 5)", has(b="six"), None),
    ("-(b > 5) > a", has(b="six"), NO_ANSWER),
    ("-(b > 5) BETWEEN 1 AND 2", has(b="six"), NO_ANSWER),
    ("-b NOT BETWEEN 1 AND 2", has(b="1"), None),
]

LOGIC: list[tuple[str, dict[str, str], Answer]] = [
    ("a = 1 OR b = 1", has(b="1"), True),
    ("a = 1 OR b = 1", has(b="2"), None),
    ("a = 1 AND b = 1", has(b="2"), False),
    ("a = 1 AND b = 1", has(b="1"), None),
    ("a > 5 OR b = 'x'", has(a="six", b="x"), NO_ANSWER),
    ("b = 'x' OR a > 5", has(a="six", b="x"), True),
    ("a > 5 AND b = 'x'", has(a="six", b="y"), NO_ANSWER),
    ("b = 'x' AND a > 5", has(a="six", b="y"), False),
    ("c = 1 AND a > 5", has(a="six"), NO_ANSWER),
    ("c = 1 OR a > 5", has(a="six"), NO_ANSWER),
    ("FALSE AND a > 5", has(a="six"), False),
    ("TRUE OR a > 5", has(a="six"), True),
    ("a = 1 AND b = 1 OR c = 1", has(c="1"), True),
    ("a = 1 AND (b = 1 OR c = 1)", has(c="1"), None),
]


@pytest.mark.parametrize(
    ("expression", "properties", "expected"),
    NUMBERS + TWO_PROPERTIES + TEXTS + RANGES + TRUTH + MINUS + LOGIC,
)
def test_an_expression_has_the_expected_answer(expression: str, properties: dict[str, str], expected: Answer) -> None:
    assert answer(expression, properties) is expected


@pytest.mark.parametrize("left", [True, False, None])
@pytest.mark.parametrize("right", [True, False, None])
def test_three_valued_logic(left: bool | None, right: bool | None) -> None:
    words = {True: "TRUE", False: "FALSE", None: "NULL"}
    both = f"{words[left]} {{}} {words[right]}"
    known = {left, right} - {None}

    assert answer(both.format("AND"), {}) is (False if False in known else None if None in (left, right) else True)
    assert answer(both.format("OR"), {}) is (True if True in known else None if None in (left, right) else False)
    assert answer(f"NOT {words[left]}", {}) is (None if left is None else not left)


def test_terms_are_evaluated_from_the_left_until_the_result_is_certain() -> None:
    asked = []

    def get(name: str) -> str | None:
        asked.append(name)
        return {"a": "1", "b": "2"}.get(name)

    function_of(parse("a = 1 OR b = 2 OR c = 3"))(get)
    function_of(parse("c = 1 AND b = 3 AND a = 1"))(get)

    assert asked == ["a", "c", "b"]
