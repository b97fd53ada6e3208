"""Complete expressions: they agree with a second, naive SQL92, and no text makes them fail, hang or crash."""

import inspect
import random
import sys
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.model.sql92.naive import NO_ANSWER, PROPERTIES, TERMS, Term, judged, printed

from pocketmq.errors import InvalidExpression
from pocketmq.model.sql92 import Expression
from pocketmq.model.sql92.parser import MAX_CHARACTERS, MAX_DEPTH, scan


@given(TERMS, st.lists(PROPERTIES, min_size=1, max_size=4), st.integers())
def test_any_expression_selects_the_same_as_a_naive_evaluator(
    term: Term, messages: list[dict[str, str]], seed: int
) -> None:
    expression = Expression(printed(term, random.Random(seed)))

    for properties in messages:
        failures = expression.failures
        verdict = judged(term, properties)
        assert expression.matches(properties.get) is (verdict is True), expression.text
        assert expression.failures - failures == (verdict == NO_ANSWER), expression.text


WORDS = [
    "a",
    "b",
    "5",
    "-5",
    "5.0",
    "1e1",
    "'x'",
    "''",
    "'it''s'",
    "NULL",
    "TRUE",
    "FALSE",
    "AND",
    "OR",
    "NOT",
    "BETWEEN",
    "IN",
    "IS",
    "CONTAINS",
    "STARTSWITH",
    "ENDSWITH",
    "=",
    "<>",
    ">",
    ">=",
    "<",
    "<=",
    "(",
    ")",
    ",",
    "+",
    "-",
    "--",
    "/*",
    "*/",
    "'",
    '"',
    "LIKE",
    "007",
    "a=1",
    "a<>'x'",
    "(a)IN('x')",
    "-(",
    "-(a)BETWEEN(1)AND(2)",
]
SOUP = st.lists(st.sampled_from([*WORDS, "BETWEEN 1 AND 2", "IS NOT NULL"]) | st.text(max_size=2), max_size=30).map(
    " ".join
)


@given(st.text() | SOUP, PROPERTIES)
@example("", {})
@example("'", {})
@example("\ud800 = 1", {})
@example("a = '\ud800'", {"a": "\ud800"})
def test_any_text_is_an_expression_or_invalid(text: str, properties: dict[str, str]) -> None:
    try:
        expression = Expression(text)
    except InvalidExpression:
        return

    assert expression.matches(properties.get) in (True, False)
    assert expression.names <= {token.image for token in scan(text)}


@given(SOUP, PROPERTIES)
def test_the_cost_of_a_message_is_linear_in_the_expression(text: str, properties: dict[str, str]) -> None:
    looks = 0

    def get(name: str) -> str | None:
        nonlocal looks
        looks += 1
        return properties.get(name)

    try:
        Expression(text).matches(get)
    except InvalidExpression:
        return

    assert looks <= sum(1 for _ in scan(text))


NESTED: dict[str, Callable[[int], str]] = {
    "parentheses": lambda depth: "(" * depth + "a = 1" + ")" * depth,
    "not": lambda depth: "NOT " * depth + "a",
    "not in parentheses": lambda depth: "NOT (" * depth + "a = 1" + ")" * depth,
    "or of and": lambda depth: "a = 2 OR (b = 1 AND (" * depth + "TRUE" + "))" * depth,
    "equal": lambda depth: "a = (" * depth + "TRUE" + ")" * depth,
    "equal to equal": lambda depth: "a = 1" + " = TRUE" * depth,
    "search": lambda depth: "a" + " CONTAINS 'x'" * depth,
    "is null": lambda depth: "a" + " IS NOT NULL" * depth,
    "minus": lambda depth: "a = " + "- " * depth + "b",
    "minus in parentheses": lambda depth: "a > -(" * depth + "b" + ")" * depth,
    "between, on its left": lambda depth: "-(" * depth + "a" + " BETWEEN 1 AND 2)" * depth + " > 1",
    "between, on its right": lambda depth: "a BETWEEN 1 AND -(" * depth + "b" + ")" * depth,
}
"""What can stand in itself, so and so often."""


@pytest.mark.parametrize("kind", NESTED)
def test_unlimited_nesting_is_refused(kind: str) -> None:
    with pytest.raises(InvalidExpression):
        Expression(NESTED[kind](20_000)[:MAX_CHARACTERS])


@pytest.mark.parametrize("kind", NESTED)
def test_the_deepest_accepted_expression_fits_a_small_stack(kind: str) -> None:
    taken = []
    for depth in range(1, MAX_DEPTH + 2):
        try:
            taken.append(looks_with_frames(300, NESTED[kind](depth)))
        except InvalidExpression:
            break

    assert MAX_DEPTH // 3 <= len(taken) <= MAX_DEPTH
    assert max(taken) <= 2 * MAX_DEPTH


def looks_with_frames(frames: int, text: str) -> int:
    """How often `text` reads the only property, evaluated with this number of free stack frames."""
    looks = 0

    def get(name: str) -> str:
        nonlocal looks
        looks += 1
        return "1"

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + frames)
    try:
        Expression(text).matches(get)
    finally:
        sys.setrecursionlimit(limit)
    return looks


def test_a_thousand_ors_and_the_longest_list_are_fine() -> None:
    row = Expression(" OR ".join(f"a = 'v{n}'" for n in range(1000)))
    listed = Expression("a IN (" + ", ".join(f"'v{n}'" for n in range(2000)) + ")")

    for expression in (row, listed):
        assert expression.matches({"a": "v999"}.get)
        assert not expression.matches({"a": "other"}.get)


def test_only_true_is_a_match_and_missing_answers_are_counted() -> None:
    expression = Expression("a > 5 AND b = 'x'")

    assert expression.matches({"a": "6", "b": "x"}.get) is True
    assert expression.matches({"a": "6", "b": "y"}.get) is False
    assert expression.matches({"b": "x"}.get) is False
    assert expression.failures == 0
    assert expression.matches({"a": "six", "b": "x"}.get) is False
    assert expression.failures == 1


def test_an_expression_knows_the_properties_that_it_reads() -> None:
    expression = Expression("a > 5 AND b = 'x' OR NOT c OR d IN ('y') OR e CONTAINS 'z' OR -f = a OR g IS NULL")

    assert expression.names == frozenset("abcdefg")
    assert expression.text.startswith("a > 5")
