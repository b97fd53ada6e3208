"""What Spark does with the orders, on a few rows."""

from typing import TYPE_CHECKING

import pytest

from pocketmq.demo.pipeline import CONTRACT, SCHEMA, as_messages, each_once, final_hours, revenue
from pocketmq.demo.shop import Day, Kind
from pocketmq.pipelines import parse_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVENTS = list(Day(seed=2, begin_ms=1_767_225_600_000, orders=600).events())


@pytest.fixture(scope="module")
def messages(spark: "SparkSession") -> "DataFrame":
    return spark.createDataFrame([(bytearray(event.body), event.key) for event in EVENTS], "value binary, keys string")


def keys(kind: Kind) -> set[str]:
    return {event.key for event in EVENTS if event.kind is kind}


def test_unreadable_orders_are_bad_and_all_others_good(messages: "DataFrame") -> None:
    checked = CONTRACT.check(parse_json(messages, SCHEMA).rows)

    bad = checked.bad.select("message.keys", "reason").collect()

    assert {row["keys"] for row in bad} == keys(Kind.BROKEN)
    assert all(row.reason for row in bad)
    assert checked.good.count() == len(EVENTS) - len(bad)


def test_each_order_is_kept_once_and_late_ones_are_marked(messages: "DataFrame") -> None:
    good = CONTRACT.check(parse_json(messages, SCHEMA).rows).good

    rows = each_once(good).select("order_id", "late").collect()

    assert sorted(row.order_id for row in rows) == sorted(keys(Kind.FINE) | keys(Kind.LATE))
    assert {row.order_id for row in rows if row.late} == keys(Kind.LATE)


def test_revenue_counts_orders_in_time_and_the_last_row_of_an_hour_wins(spark: "SparkSession") -> None:
    rows = [("Oslo", 5, "2026-01-01 10:10:00", False), ("Oslo", 7, "2026-01-01 10:50:00", False)]
    rows += [("Oslo", 100, "2026-01-01 10:20:00", True), ("Riga", 3, "2026-01-01 11:00:00", False)]
    orders = spark.createDataFrame(rows, "city string, amount_cents bigint, placed_at string, late boolean")
    orders = orders.withColumn("placed_at", orders.placed_at.cast("timestamp"))

    first, all_of_them = as_messages(revenue(orders.where("amount_cents = 5"))), as_messages(revenue(orders))
    found = final_hours(all_of_them.union(first)).collect()

    assert {(row.city, row.begin.hour, row.orders, row.amount_cents) for row in found} == {
        ("Oslo", 10, 2, 12),
        ("Riga", 11, 1, 3),
    }
    assert {row["keys"] for row in all_of_them.collect()} == {"Oslo-1767261600", "Riga-1767265200"}
