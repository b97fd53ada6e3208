"""Subscriptions of a consumer: versions that only increase, and exact tags."""

import pytest
from tests.client.messages import stored

from pocketmq.client.consumer.subscriptions import SubscriptionTable, matching_messages
from pocketmq.errors import InvalidExpression, InvalidName, UsageError
from pocketmq.model.java_hash import java_hash
from pocketmq.model.names import GroupName
from pocketmq.model.subscription import Subscription

NOW_MS = 1_700_000_000_000


@pytest.fixture
def table() -> SubscriptionTable:
    return SubscriptionTable(GroupName("shop"), NOW_MS, with_retries=True)


def test_a_clustering_consumer_is_subscribed_to_its_retry_topic(table: SubscriptionTable) -> None:
    assert list(table) == [Subscription("%RETRY%shop", sub_version=NOW_MS)]
    assert len(SubscriptionTable(GroupName("shop"), NOW_MS, with_retries=False)) == 0


def test_a_subscription_by_tags_has_their_hashes(table: SubscriptionTable) -> None:
    subscription = table.subscribe("Orders", "paid || sent", now_ms=NOW_MS + 1)

    assert subscription == table.get("Orders")
    assert subscription.tags_set == ("paid", "sent")
    assert subscription.code_set == (java_hash("paid"), java_hash("sent"))
    assert subscription.sub_version == NOW_MS + 1


def test_a_subscription_by_sql_keeps_its_text(table: SubscriptionTable) -> None:
    subscription = table.subscribe("Orders", "price > 5", "SQL92", now_ms=NOW_MS)

    assert (subscription.sub_string, subscription.expression_type) == ("price > 5", "SQL92")


def test_a_changed_filter_has_a_larger_version_even_when_the_clock_was_set_back(table: SubscriptionTable) -> None:
    table.subscribe("Orders", "a", now_ms=NOW_MS)

    changed = table.subscribe("Orders", "b", now_ms=NOW_MS - 60_000)

    assert changed.sub_version == NOW_MS + 1
    assert changed.tags_set == ("b",)


def test_an_equal_filter_changes_nothing(table: SubscriptionTable) -> None:
    first = table.subscribe("Orders", "a || b", now_ms=NOW_MS)

    assert table.subscribe("Orders", "b||a", now_ms=NOW_MS + 5) is first


@pytest.mark.parametrize(
    ("now_ms", "version"), [(NOW_MS - 1, NOW_MS + 1), (NOW_MS, NOW_MS + 1), (NOW_MS + 9, NOW_MS + 9)]
)
def test_a_changed_set_of_topics_raises_the_version(table: SubscriptionTable, now_ms: int, version: int) -> None:
    table.subscribe("Orders", "a", now_ms=NOW_MS)

    table.touch("Orders", now_ms)
    table.touch("Unknown", now_ms)

    touched = table.get("Orders")
    assert touched is not None
    assert (touched.sub_version, touched.tags_set) == (version, ("a",))
    assert table.get("Unknown") is None


def test_unsubscribing_leaves_the_retry_topic(table: SubscriptionTable) -> None:
    table.subscribe("Orders", now_ms=NOW_MS)

    assert table.unsubscribe("Orders")
    assert not table.unsubscribe("Orders")
    assert not table.unsubscribe("%RETRY%shop")
    assert [one.topic for one in table] == ["%RETRY%shop"]


def test_the_table_may_change_during_an_iteration(table: SubscriptionTable) -> None:
    for subscription in table:
        table.subscribe("Other" + str(len(table)), now_ms=NOW_MS)
        assert subscription.topic == "%RETRY%shop"


def test_impossible_subscriptions_are_refused(table: SubscriptionTable) -> None:
    with pytest.raises(InvalidName):
        table.subscribe("a b", now_ms=NOW_MS)
    with pytest.raises(InvalidExpression, match="contains no tag"):
        table.subscribe("Orders", " || ", now_ms=NOW_MS)
    with pytest.raises(InvalidExpression, match="SQL92 expression for topic Orders is empty"):
        table.subscribe("Orders", "", "SQL92", now_ms=NOW_MS)
    with pytest.raises(UsageError, match="automatically"):
        table.subscribe("%RETRY%shop", now_ms=NOW_MS)
    assert len(table) == 1


def test_tags_with_the_same_hash_are_distinguished_here() -> None:
    assert java_hash("Aa") == java_hash("BB")
    messages = [stored(0, properties={"TAGS": "Aa"}), stored(1, properties={"TAGS": "BB", "KEYS": "k"}), stored(2)]

    wanted = matching_messages(Subscription.parse("Orders", "BB || 中文"), messages)

    assert [message.queue_offset for message in wanted] == [1]


@pytest.mark.parametrize(("expression", "kind"), [("*", "TAG"), (None, "TAG"), ("a > 5", "SQL92")])
def test_other_filters_are_applied_by_the_broker(expression: str | None, kind: str) -> None:
    messages = [stored(0), stored(1, properties={"TAGS": "a"})]

    assert matching_messages(Subscription.parse("Orders", expression, kind), messages) is messages


def test_tags_beyond_ascii_are_compared_as_text() -> None:
    messages = [stored(0, properties={"TAGS": "中文"}), stored(1, properties={"TAGS": "中"})]

    assert matching_messages(Subscription.parse("Orders", "中文"), messages) == messages[:1]
