"""Filters that are pushed down leave out nothing that matches."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytest.importorskip("pyspark.sql.worker.data_source_pushdown_filters", reason="PySpark 4.0 has no filters")

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)
from tests.spark.metadata_kit import FakeMetadata

from pocketmq.errors import InvalidSetting
from pocketmq.model import MessageQueue, QueueRange
from pocketmq.spark.filters.parsing import parse_filter
from pocketmq.spark.options.read_options import parse_read_options
from pocketmq.spark.read.pushdown import FilterPlan, Pushed, planned_filter, split_filters

TIME = datetime(2026, 1, 1, tzinfo=UTC)
TIME_MS = 1_767_225_600_000


def split(*filters: Filter, can_filter_tags: bool = True) -> tuple[Pushed, list[Any]]:
    return split_filters(filters, can_filter_tags=can_filter_tags)


@pytest.mark.parametrize(
    ("each", "pushed"),
    [
        (EqualTo(("topic",), "orders"), Pushed(topics=frozenset({"orders"}))),
        (EqualNullSafe(("topic",), "orders"), Pushed(topics=frozenset({"orders"}))),
        (In(("topic",), ("a", "b", None)), Pushed(topics=frozenset({"a", "b"}))),
        (EqualTo(("queueId",), 3), Pushed(queue_ids=frozenset({3}))),
        (In(("queueId",), (1, 2)), Pushed(queue_ids=frozenset({1, 2}))),
        (EqualTo(("queueOffset",), 5), Pushed(from_offset=5, to_offset=6)),
        (GreaterThan(("queueOffset",), 5), Pushed(from_offset=6)),
        (GreaterThanOrEqual(("queueOffset",), 5), Pushed(from_offset=5)),
        (LessThan(("queueOffset",), 5), Pushed(to_offset=5)),
        (LessThanOrEqual(("queueOffset",), 5), Pushed(to_offset=6)),
        (EqualTo(("tags",), "paid"), Pushed(tags=frozenset({"paid"}))),
        (In(("tags",), ("a", "b")), Pushed(tags=frozenset({"a", "b"}))),
        (IsNotNull(("queueOffset",)), Pushed()),
        (IsNotNull(("value",)), Pushed()),
    ],
)
def test_completely_applied_filters_are_not_left_to_spark(each: Filter, pushed: Pushed) -> None:
    assert split(each) == (pushed, [])


@pytest.mark.parametrize(
    ("each", "pushed"),
    [
        (EqualTo(("storeTimestamp",), TIME), Pushed(from_ms=TIME_MS, to_ms=TIME_MS + 1)),
        (GreaterThan(("storeTimestamp",), TIME), Pushed(from_ms=TIME_MS)),
        (GreaterThanOrEqual(("storeTimestamp",), TIME + timedelta(microseconds=999)), Pushed(from_ms=TIME_MS)),
        (LessThan(("storeTimestamp",), TIME), Pushed(to_ms=TIME_MS + 1)),
        (LessThanOrEqual(("storeTimestamp",), TIME + timedelta(microseconds=999)), Pushed(to_ms=TIME_MS + 1)),
        (In(("queueOffset",), (9, 5)), Pushed(from_offset=5, to_offset=10)),
    ],
)
def test_partly_applied_filters_are_also_left_to_spark(each: Filter, pushed: Pushed) -> None:
    assert split(each) == (pushed, [each])


@pytest.mark.parametrize(
    "each",
    [
        EqualTo(("keys",), "k"),
        EqualTo(("unknown",), 1),
        EqualTo(("properties", "a"), "1"),
        EqualTo(("topic",), 5),
        EqualTo(("queueId",), True),
        EqualTo(("queueOffset",), "5"),
        GreaterThan(("queueOffset",), 5.5),
        GreaterThan(("queueId",), 5),
        EqualTo(("storeTimestamp",), datetime(2026, 1, 1)),
        EqualNullSafe(("tags",), None),
        EqualTo(("tags",), "a||b"),
        EqualTo(("tags",), "*"),
        EqualTo(("tags",), " a"),
        EqualTo(("tags",), "a\x1b"),
        EqualTo(("tags",), ""),
        In(("tags",), ()),
        IsNotNull(("tags",)),
        IsNull(("tags",)),
        Not(EqualTo(("topic",), "a")),
        StringStartsWith(("topic",), "a"),
        StringStartsWith(("queueOffset",), "a"),
        StringStartsWith(("storeTimestamp",), "a"),
    ],
)
def test_unknown_filters_are_left_to_spark(each: Filter) -> None:
    assert split(each) == (Pushed(), [each])


def test_several_filters_are_combined() -> None:
    filters = [
        In(("topic",), ("a", "b")),
        EqualTo(("topic",), "b"),
        GreaterThan(("queueOffset",), 5),
        GreaterThan(("queueOffset",), 3),
        LessThan(("queueOffset",), 20),
        LessThan(("queueOffset",), 30),
        In(("tags",), ("x", "y")),
        In(("tags",), ("y", "z")),
    ]

    pushed, remaining = split(*filters)

    assert pushed == Pushed(topics=frozenset({"b"}), tags=frozenset({"y"}), from_offset=6, to_offset=20)
    assert remaining == []


def test_several_times_are_combined() -> None:
    hour = timedelta(hours=1)
    filters = [
        GreaterThan(("storeTimestamp",), TIME),
        GreaterThan(("storeTimestamp",), TIME - hour),
        LessThan(("storeTimestamp",), TIME + hour),
    ]

    assert split(*filters)[0] == Pushed(from_ms=TIME_MS, to_ms=TIME_MS + 3_600_001)


def test_contradicting_tags_are_left_to_spark() -> None:
    first, second = EqualTo(("tags",), "a"), EqualTo(("tags",), "b")

    assert split(first, second) == (Pushed(tags=frozenset({"a"})), [second])


def test_a_query_with_a_filter_of_its_own_pushes_no_tags() -> None:
    each = EqualTo(("tags",), "a")

    assert split(each, can_filter_tags=False) == (Pushed(), [each])


def test_ranges_are_narrowed_by_filters() -> None:
    queue = MessageQueue("orders", "broker-a", 3)
    wanted = QueueRange(queue, 10, 20)

    assert Pushed().narrowed(wanted) == wanted
    assert Pushed(from_offset=12, to_offset=15).narrowed(wanted) == QueueRange(queue, 12, 15)
    assert Pushed(to_offset=10).narrowed(wanted) is None
    assert Pushed(topics=frozenset({"other"})).narrowed(wanted) is None
    assert Pushed(topics=frozenset()).narrowed(wanted) is None
    assert Pushed(queue_ids=frozenset({2})).narrowed(wanted) is None
    assert Pushed(topics=frozenset({"orders"}), queue_ids=frozenset({3})).narrowed(wanted) == wanted


def test_tags_become_a_subscription() -> None:
    assert Pushed().tag_expression is None
    assert Pushed(tags=frozenset({"b", "a"})).tag_expression == "a || b"


# the option `filter`

QUEUES = [MessageQueue("orders", name, 0) for name in ("broker-a", "broker-b")]
CITY = "properties['city'] = 'Oslo'"
NUMBER = "properties['n'] < '5'"


def planned(
    text: str, *offered: Filter, sql: str = "broker-a broker-b", topic: str = "orders", **given: str
) -> FilterPlan:
    options = {"rocketmq.namesrv.addr": "a:1", "subscribe": topic, **given} | ({"filter": text} if text else {})
    read = parse_read_options(options, streaming=False, environ={})
    held = FakeMetadata({})
    held.sql_brokers = set(sql.split())
    return planned_filter(read, offered, [MessageQueue(topic, one.broker_name, 0) for one in QUEUES], held)


@pytest.mark.parametrize(
    ("text", "plan"),
    [
        ("queueOffset >= 5 AND topic = 'orders'", FilterPlan(Pushed(topics=frozenset({"orders"}), from_offset=5))),
        ("tags = 'a'", FilterPlan(Pushed(tags=frozenset({"a"})), tags="a")),
        ("tags = 'a' AND queueId <> 1", FilterPlan(Pushed(tags=frozenset({"a"})), "a", condition=parse_filter("queueId <> 1"))),
        (CITY, FilterPlan(sql="city = 'Oslo'", condition=parse_filter(CITY))),
        (
            f"{CITY} AND tags = 'a'",
            FilterPlan(Pushed(tags=frozenset({"a"})), "a", "(TAGS IN ('a') AND city = 'Oslo')", parse_filter(CITY)),
        ),
        (f"{CITY} AND {NUMBER}", FilterPlan(sql="city = 'Oslo'", condition=parse_filter(f"{CITY} AND {NUMBER}"))),
        (f"{CITY} OR {NUMBER}", FilterPlan(condition=parse_filter(f"{CITY} OR {NUMBER}"))),
        (
            "storeTimestamp >= TIMESTAMP '2026-01-01 00:00:00Z'",
            FilterPlan(Pushed(from_ms=TIME_MS), condition=parse_filter("storeTimestamp >= TIMESTAMP '2026-01-01 00:00:00Z'")),
        ),
    ],
)  # fmt: skip
def test_brokers_apply_conditions_with_equal_meaning_and_tasks_the_rest(text: str, plan: FilterPlan) -> None:
    assert planned(text) == plan


def test_one_broker_without_sql92_leaves_that_part_to_tasks() -> None:
    whole = f"{CITY} AND tags = 'a'"

    assert planned(whole, sql="broker-a") == FilterPlan(
        Pushed(tags=frozenset({"a"})), "a", condition=parse_filter(CITY)
    )
    with pytest.raises(InvalidSetting, match=r"filterSql: broker broker-b does not filter by SQL92"):
        planned("", filterSql="a = 'b'", sql="broker-a")
    with pytest.raises(InvalidSetting, match=r"filterSql: brokers broker-a, broker-b do not filter by SQL92"):
        planned("", filterSql="a = 'b'", sql="")


def test_brokers_do_not_filter_retry_topics_by_sql92() -> None:
    assert planned(CITY, topic="%RETRY%g") == FilterPlan(condition=parse_filter(CITY))


def test_the_filters_of_spark_and_the_option_narrow_together() -> None:
    offered = EqualTo(("tags",), "a"), GreaterThan(("queueOffset",), 4), StringStartsWith(("topic",), "o")

    plan = planned(f"{CITY} AND queueOffset < 9", *offered)

    assert plan == FilterPlan(
        Pushed(tags=frozenset({"a"}), from_offset=5, to_offset=9),
        "a",
        "(TAGS IN ('a') AND city = 'Oslo')",
        parse_filter(CITY),
    )


def test_a_tag_that_sql92_cannot_express_is_filtered_by_tags() -> None:
    plan = planned(CITY, EqualTo(("tags",), "a\tb"))

    assert plan == FilterPlan(Pushed(tags=frozenset({"a\tb"})), "a\tb", condition=parse_filter(CITY))


def test_conditions_that_are_too_long_together_are_left_to_tasks() -> None:
    parts = [f"properties['p{at}'] IN ({', '.join(repr(str(number)) for number in range(1500))})" for at in range(2)]

    plan = planned(" AND ".join(parts))

    assert (plan.sql, plan.condition) == (None, parse_filter(" AND ".join(parts)))
