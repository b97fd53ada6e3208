"""Filters that are pushed down leave out nothing that matches."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

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

from pocketmq.model.queue import MessageQueue, QueueRange
from pocketmq.spark.read.pushdown import Pushed, split_filters

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
def test_what_is_done_wholly_here_is_not_left_to_spark(each: Filter, pushed: Pushed) -> None:
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
def test_what_is_only_narrowed_is_left_to_spark_as_well(each: Filter, pushed: Pushed) -> None:
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
def test_what_is_not_understood_is_left_to_spark(each: Filter) -> None:
    assert split(each) == (Pushed(), [each])


def test_filters_narrow_one_another() -> None:
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


def test_times_narrow_one_another() -> None:
    hour = timedelta(hours=1)
    filters = [
        GreaterThan(("storeTimestamp",), TIME),
        GreaterThan(("storeTimestamp",), TIME - hour),
        LessThan(("storeTimestamp",), TIME + hour),
    ]

    assert split(*filters)[0] == Pushed(from_ms=TIME_MS, to_ms=TIME_MS + 3_600_001)


def test_tags_that_exclude_one_another_are_left_to_spark() -> None:
    first, second = EqualTo(("tags",), "a"), EqualTo(("tags",), "b")

    assert split(first, second) == (Pushed(tags=frozenset({"a"})), [second])


def test_a_query_with_a_filter_of_its_own_pushes_no_tags() -> None:
    each = EqualTo(("tags",), "a")

    assert split(each, can_filter_tags=False) == (Pushed(), [each])


def test_ranges_are_narrowed() -> None:
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
