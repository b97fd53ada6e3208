"""The tables of docs/reference/sql92.md are correct."""

import re
from pathlib import Path

import pytest

from pocketmq.errors import InvalidExpression
from pocketmq.model.sql92.evaluation import function_of
from pocketmq.model.sql92.parser import MAX_CHARACTERS, MAX_DEPTH, MAX_TOKENS, parse

GUIDE = (Path(__file__).parents[3] / "docs" / "reference" / "sql92.md").read_text("utf-8")
ANSWERS = {True: "true", False: "false", None: "unknown"}
SHARED, DIFFERENT = GUIDE.split("## Differences from Apache RocketMQ")
ROWS = re.findall(r"^\| `([^`]+)` \| ([^|`]*)\| (true|false|unknown|no answer|refused) \|", SHARED, re.MULTILINE)
DIFFERENCES = re.findall(r"^\| `([^`]+)` \| ([^|]+) \| (refused|any positive number)", DIFFERENT, re.MULTILINE)


def answer(expression: str, properties: dict[str, str]) -> str:
    try:
        return ANSWERS[function_of(parse(expression))(properties.get)]
    except InvalidExpression:
        return "refused"
    except ValueError:
        return "no answer"


def test_the_guide_has_tables() -> None:
    assert len(ROWS) >= 40
    assert len(DIFFERENCES) == 5


@pytest.mark.parametrize(("expression", "message", "expected"), ROWS)
def test_the_examples_of_the_guide_have_the_printed_answers(expression: str, message: str, expected: str) -> None:
    pairs = (pair.partition("=")[::2] for pair in message.strip().split(", ") if pair)

    assert answer(expression, dict(pairs)) == expected


@pytest.mark.parametrize(("expression", "apache", "expected"), DIFFERENCES)
def test_the_differences_from_apache_are_as_printed(expression: str, apache: str, expected: str) -> None:
    assert (apache == "refused") is not (expected == "refused")
    assert (answer(expression, {"a": "0.1"}) == "refused") is (expected == "refused")


@pytest.mark.parametrize("example", re.findall(r"^\|.*\| `([^`]+)` \|$", GUIDE, re.MULTILINE))
def test_the_example_of_each_operator_is_accepted(example: str) -> None:
    parse(example)


def test_the_error_and_the_limits_are_as_printed() -> None:
    with pytest.raises(InvalidExpression) as caught:
        parse("a == 1")

    assert f"    {caught.value}\n" in GUIDE
    for limit in (MAX_CHARACTERS, MAX_TOKENS, MAX_DEPTH):
        assert f"| {limit:,}" in GUIDE
