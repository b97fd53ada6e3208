"""The option `filter`: what it accepts, and the errors for the rest."""

import re
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.errors import InvalidExpression
from pocketmq.spark.filters.conditions import (
    And,
    Condition,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    Or,
    columns_of,
    negated,
    parts_of,
)
from pocketmq.spark.filters.parsing import MAX_CHARACTERS, MAX_DEPTH, has_doubled_quotes, parse_filter
from pocketmq.spark.schema import Name

CITY = ("properties", "city")
TAGS = ("tags",)


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("properties['city'] = 'Oslo'", EqualTo(CITY, "Oslo")),
        ('PROPERTIES["city"] == "it\'s"', EqualTo(CITY, "it's")),
        ("'it''s' = `properties`['city']", EqualTo(CITY, "it's")),
        ("tags <> 'a'", Not(EqualTo(TAGS, "a"))),
        ("NOT tags = 'a'", Not(EqualTo(TAGS, "a"))),
        ("not tags != 'a'", EqualTo(TAGS, "a")),
        ("5 < queueOffset", GreaterThan(("queueOffset",), 5)),
        ("queueOffset >= -5", GreaterThanOrEqual(("queueOffset",), -5)),
        ("NOT queueId < 5", GreaterThanOrEqual(("queueId",), 5)),
        ("tags IN ('a', 'b', 'a')", In(TAGS, ("a", "b"))),
        ("tags NOT IN ('a')", Not(In(TAGS, ("a",)))),
        ("queueId BETWEEN 1 AND 3", And((GreaterThanOrEqual(("queueId",), 1), LessThanOrEqual(("queueId",), 3)))),
        ("queueId NOT BETWEEN 1 AND 3", Or((LessThan(("queueId",), 1), GreaterThan(("queueId",), 3)))),
        ("value IS NOT NULL", IsNotNull(("value",))),
        ("NOT keys IS NOT NULL", IsNull(("keys",))),
        ("tags='a' OR tags='b' AND queueId=1", Or((EqualTo(TAGS, "a"), And((EqualTo(TAGS, "b"), EqualTo(("queueId",), 1)))))),
        ("NOT (tags = 'a' AND keys IS NULL)", Or((Not(EqualTo(TAGS, "a")), IsNotNull(("keys",))))),
        ("storeTimestamp > TIMESTAMP '1970-01-01 01:00:00.5+01:00'", GreaterThan(("storeTimestamp",), 500_000)),
        ("bornTimestamp = timestamp '1970-01-01T00:00:01Z'", EqualTo(("bornTimestamp",), 1_000_000)),
    ],
)  # fmt: skip
def test_a_condition_becomes_a_tree_with_not_at_its_leaves(text: str, condition: Condition) -> None:
    assert parse_filter(text) == condition


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "character 1: expected a column or properties['key'], found the end"),
        ("tags", "character 5: expected a comparison (=, <>, <, <=, >, >=), IN, BETWEEN or IS NULL, found the end"),
        ("tags = ", "character 8: expected a text, a whole number or a TIMESTAMP; for other values, filter the DataFrame, found the end"),
        ("tags = 'a' keys", "character 12: expected AND, OR or the end, found 'keys'"),
        ("tag = 'a'", "character 1: a topic has no column 'tag'; did you mean tags?"),
        ("city = 'a'", "character 1: a topic has no column 'city'; write properties['city'] for a property"),
        ("properties = 'a'", "character 12: expected a key after properties: properties['city'], found '='"),
        ("properties[city] = 'a'", "character 12: expected the key of a property as a text: properties['city'], found 'city'"),
        ("properties['n'] = 5", "character 19: expected a text such as 'Oslo' to compare with properties['n'], found '5'"),
        ("queueOffset = '5'", "expected a whole number to compare with queueOffset, found \"'5'\""),
        ("queueOffset > 5.5", "character 15: expected a whole number, found '5'"),
        ("queueOffset = 99999999999999999999", "expected a whole number of 64 bits"),
        ("storeTimestamp > '2026-01-01'", "expected TIMESTAMP '2026-01-01 00:00:00Z' to compare with storeTimestamp"),
        ("storeTimestamp > TIMESTAMP '2026-01-01 00:00:00'", "expected a time with its zone"),
        ("storeTimestamp > TIMESTAMP '2026-13-01 00:00:00Z'", "expected a time (month must be in 1..12"),
        ("value = 'a'", "expected IS NULL: the column value cannot be compared"),
        ("tags = 'a", "expected a text that ends with the same quote, and has no backslash"),
        ("tags = 'a\\n'", "expected a text that ends with the same quote, and has no backslash"),
        ("tags IN ()", "expected a text, a whole number or a TIMESTAMP"),
        ("tags IN ('a', NULL)", "expected a text, a whole number or a TIMESTAMP"),
        ("tags = NULL", "expected a text, a whole number or a TIMESTAMP"),
        ("tags NOT LIKE 'a%'", "expected IN or BETWEEN after NOT, found 'LIKE'"),
        ("tags LIKE 'a%'", "expected a comparison"),
        ("tags <=> 'a'", "expected a comparison (=, <>, <, <=, >, >=), IN, BETWEEN or IS NULL, found '<=>'"),
        ("'a' <=> tags", "expected a comparison (=, <>, <, <=, >, >=), found \"'a'\""),
        ("'a' = 'a'", "expected a column or properties['key'], found \"'a'\""),
        ("tags = keys", "expected a text, a whole number or a TIMESTAMP"),
        ("(tags = 'a'", "character 12: expected ), found the end"),
        ("NOT = 'a'", "expected a column or properties['key'], found '='"),
        ("(" * (MAX_DEPTH + 1), f"expected at most {MAX_DEPTH} nested conditions"),
        ("NOT " * (MAX_DEPTH + 1), f"expected at most {MAX_DEPTH} nested conditions"),
        ("x" * (MAX_CHARACTERS + 1), f"it has {MAX_CHARACTERS + 1} characters; the limit is {MAX_CHARACTERS}"),
    ],
)  # fmt: skip
def test_conditions_with_another_meaning_in_spark_are_refused(text: str, told: str) -> None:
    with pytest.raises(InvalidExpression, match=re.escape(told)):
        parse_filter(text)


@given(
    st.text(max_size=60)
    | st.lists(
        st.sampled_from(["tags", "=", "'a'", "(", ")", "NOT", "AND", "IN", "IS", "NULL", ",", "5", "[", "]", "<", "`"])
    ).map(" ".join)
)
def test_any_text_is_a_condition_or_refused(text: str) -> None:
    with suppress(InvalidExpression):
        assert columns_of(parse_filter(text)) <= set(Name)


def test_parts_columns_and_double_negation_are_parsed() -> None:
    condition = parse_filter(
        "tags = 'a' AND (queueId = 1 AND properties['n'] IS NULL) AND NOT (keys = 'k' OR tags IN ('b'))"
    )

    assert len(parts_of(condition)) == 5
    assert columns_of(condition) == {Name.TAGS, Name.QUEUE_ID, Name.PROPERTIES, Name.KEYS}
    assert negated(negated(condition)) == condition
    assert parts_of(None) == ()
    assert columns_of(None) == frozenset()
    assert all(not isinstance(one, Not) or isinstance(one.child, EqualTo | In) for one in _all(negated(condition)))


def _all(condition: Condition) -> Iterator[Condition]:
    yield condition
    for child in condition.children if isinstance(condition, And | Or) else ():
        yield from _all(child)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("tags = 'it''s'", True),
        ("tags IN ('a', '''', 'b')", True),
        ("properties['a''b'] IS NULL", True),
        ("tags = '' OR keys IN ('', 'a','b')", False),
        ('tags = "it\'s" AND keys = "\'\'"', False),
    ],
)
def test_quotes_that_pyspark_4_0_would_join_are_found(text: str, found: bool) -> None:
    parse_filter(text)

    assert has_doubled_quotes(text) == found
