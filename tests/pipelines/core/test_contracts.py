"""Contracts: each rule, what violates it, and its name."""

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from tests.pipelines.rows_kit import messages

from pocketmq.errors import InvalidSetting
from pocketmq.pipelines.core.contracts import MAX_RULES, Contract, Rule
from pocketmq.pipelines.core.rows import parse_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RULES: list[dict[str, Any]] = [
    {"column": "id", "not-null": True, "unique": True},
    {"name": "the amount", "column": "amount", "min": 0, "max": 100},
    {"column": "day", "type": "date"},
    {"name": "a colour", "column": "colour", "one-of": ["red", "blue"]},
    {"column": "place.zip", "matches": r"\d{5}"},
    {"name": "red is cheap", "expression": "colour <> 'red' OR amount < 50"},
]


def test_each_rule_names_the_rows_that_break_it(spark: "SparkSession") -> None:
    schema = "n int, id string, amount double, day string, colour string, place struct<zip:string>"
    rows = spark.createDataFrame(
        [
            (0, "a", 1.0, "2026-03-01", "red", ("12345",)),
            (1, "b", None, None, None, None),
            (2, None, -1.0, "1 March", "blue", ("12345",)),
            (3, "c", 101.0, "2026-03-01", "green", ("1234",)),
            (4, "d", 60.0, None, "red", ("12345x",)),
            (5, "a", 1.0, None, "blue", None),
        ],
        schema,
    ).coalesce(1)

    checked = Contract.of(RULES).check(rows)

    assert [row["n"] for row in checked.good.orderBy("n").collect()] == [0, 1]
    assert {row["n"]: row["violations"] for row in checked.bad.collect()} == {
        2: ["id is null", "the amount is below 0", "day is not date"],
        3: ["the amount is above 100", "a colour", r"place.zip does not match \d{5}"],
        4: [r"place.zip does not match \d{5}", "red is cheap"],
        5: ["id is not unique"],
    }
    assert checked.bad.where("n = 4").collect()[0]["reason"] == r"place.zip does not match \d{5}; red is cheap"
    assert checked.good.columns == rows.columns


def test_messages_that_are_no_rows_keep_their_reason_and_violate_no_rule(spark: "SparkSession") -> None:
    rows = parse_json(messages(spark, [{"amount": -1}, b"oh", {"amount": 1}]), "amount double").rows

    checked = Contract([Rule(column="amount", min=0)]).check(rows)

    found = {row["message"]["queueOffset"]: (row["violations"], row["reason"]) for row in checked.bad.collect()}
    assert found == {0: (["amount is below 0"], "amount is below 0"), 1: ([], "the body is not a JSON object")}
    assert checked.good.count() == 1


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        ([], "at least one rule"),
        (
            [{"colum": "id", "not-null": True}],
            "rule 1 of the contract has an unknown key 'colum'; did you mean column?",
        ),
        ([{"column": "id", "not_null": True}], "did you mean not-null?"),
        ([{"column": "id"}], "has no check for the column 'id'"),
        ([{"not-null": True}], "needs a column, or an expression"),
        ([{"column": "id", "expression": "id > 1"}], "remove column"),
        ([{"column": "id", "not-null": "yes"}], "rule 1 of the contract: Expected bool, got str"),
        ([{"column": "id", "min": 1}, {"column": "id", "min": 1}], "two rules have the name 'id is below 1'"),
        ([{"expression": str(number)} for number in range(MAX_RULES + 1)], "at most 1,000 rules"),
    ],
)
def test_impossible_rules_are_refused(rules: list[dict[str, Any]], told: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        Contract.of(rules)

    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ({"column": "amuont", "min": 1}, "cannot evaluate the column 'amuont'"),
        ({"column": "amuont", "min": 1}, "did you mean 'amount'?"),
        ({"expression": "amount >"}, "the expression 'amount >'"),
    ],
)
def test_a_rule_about_a_missing_column_is_refused_before_a_row_is_read(
    spark: "SparkSession", rule: dict[str, Any], told: str
) -> None:
    with pytest.raises(InvalidSetting) as caught:
        Contract.of([rule]).check(spark.createDataFrame([(1,)], "amount int"))

    assert told in str(caught.value)


def test_the_rule_unique_applies_to_batches(spark: "SparkSession") -> None:
    stream = spark.readStream.format("rate").load()

    with pytest.raises(InvalidSetting, match="inside foreachBatch"):
        Contract.of([{"column": "value", "unique": True}]).check(stream)
