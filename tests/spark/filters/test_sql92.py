"""What brokers evaluate as Spark does, as SQL92, and what they do not."""

import pytest

from pocketmq.model.sql92 import check_expression
from pocketmq.spark.filters.conditions import sql92_of
from pocketmq.spark.filters.parsing import parse_filter


@pytest.mark.parametrize(
    ("text", "sql"),
    [
        ("properties['city'] = 'Oslo'", "city = 'Oslo'"),
        ("properties['city'] <> 'it''s'", "city <> 'it''s'"),
        ("tags IN ('a', 'b')", "TAGS IN ('a', 'b')"),
        ("keys NOT IN ('a')", "KEYS NOT IN ('a')"),
        ("properties['a_1'] IS NULL", "a_1 IS NULL"),
        ("NOT properties['a'] IS NULL", "a IS NOT NULL"),
        ("NOT (tags = 'a' AND properties['b'] = '5')", "(TAGS <> 'a' OR b <> '5')"),
        ("tags = 'a' OR keys = 'b' AND keys = 'c'", "(TAGS = 'a' OR (KEYS = 'b' AND KEYS = 'c'))"),
    ],
)
def test_comparisons_of_properties_with_texts_are_evaluated_by_brokers(text: str, sql: str) -> None:
    assert sql92_of(parse_filter(text)) == sql
    check_expression(sql)


@pytest.mark.parametrize(
    "text",
    [
        "properties['city'] > 'Oslo'",
        "properties['order id'] = '1'",
        "properties['größe'] = '1'",
        "properties['IN'] = '1'",
        "properties['a'] = ''",
        "properties['a'] = 'x\ty'",
        "properties['a'] IN ('b', '')",
        "queueId = 5",
        "msgId = 'x'",
        "topic IS NULL",
        "storeTimestamp = TIMESTAMP '2026-01-01 00:00:00Z'",
        "tags = 'a' OR queueId = 5",
        "tags = 'a' OR tags IN (" + ", ".join(f"'{number}'" for number in range(5000)) + ")",
    ],
)
def test_all_other_conditions_are_left_to_tasks(text: str) -> None:
    assert sql92_of(parse_filter(text)) is None
