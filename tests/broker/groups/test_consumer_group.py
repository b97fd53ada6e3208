"""One group: the subscriptions of its members, those of the group, and conflicts."""

from collections.abc import Hashable

import pytest

from pocketmq.broker.groups.consumer_group import ClientInfo, Conflict, ConsumerGroup
from pocketmq.errors import SubscriptionStale, SubscriptionUnknown
from pocketmq.model.subscription import ExpressionType, Subscription
from pocketmq.protocol.bodies.clients import ConsumeFromWhere, ConsumerData, ConsumeType, MessageModel


def client(connection: Hashable, client_id: str | None = None) -> ClientInfo:
    return ClientInfo(connection, client_id or f"c{connection}", "", "JAVA", 479)


def wants(*subscriptions: Subscription) -> ConsumerData:
    return ConsumerData("g", subscription_data_set=subscriptions)


def topic(name: str, expression: str = "*", version: int = 1, kind: str = ExpressionType.TAG) -> Subscription:
    return Subscription.parse(name, expression, kind, version)


@pytest.fixture
def group() -> ConsumerGroup:
    return ConsumerGroup("g")


def join(group: ConsumerGroup, connection: Hashable, *subscriptions: Subscription, now: float = 0) -> bool:
    return group.join(client(connection), wants(*subscriptions), 0, without_sub=False, now=now)


# members


def test_a_new_member_changes_the_group_and_a_known_one_does_not(group: ConsumerGroup) -> None:
    assert join(group, 1, topic("T"))
    assert not join(group, 1, topic("T"))
    assert join(group, 2, topic("T"))

    assert group.client_ids() == ("c1", "c2")


def test_a_connection_that_changes_its_client_id_changes_the_group(group: ConsumerGroup) -> None:
    join(group, 1, topic("T"))

    assert group.join(client(1, "other"), wants(topic("T")), 0, without_sub=False, now=0)

    assert group.client_ids() == ("other",)


def test_a_client_with_two_connections_is_one_member_and_found_on_the_newer(group: ConsumerGroup) -> None:
    group.join(client(1, "c"), wants(topic("T")), 0, without_sub=False, now=0)
    group.join(client(2, "c"), wants(topic("T")), 0, without_sub=False, now=1)

    found = group.find("c")
    assert group.client_ids() == ("c",)
    assert found is not None
    assert found.connection == 2
    assert group.find("d") is None


def test_a_group_has_the_settings_of_its_last_heartbeat(group: ConsumerGroup) -> None:
    join(group, 1, topic("T"))
    data = ConsumerData(
        "g",
        ConsumeType.CONSUME_ACTIVELY,
        MessageModel.BROADCASTING,
        ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        (topic("T"),),
    )

    group.join(client(2), data, 0, without_sub=False, now=0)

    assert group.consume_type is ConsumeType.CONSUME_ACTIVELY
    assert group.message_model is MessageModel.BROADCASTING
    assert group.consume_from_where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


# subscriptions


@pytest.mark.parametrize(("version", "kept"), [(4, "a"), (5, "a"), (6, "b")])
def test_a_newer_version_replaces_a_filter_without_changing_the_members(
    group: ConsumerGroup, version: int, kept: str
) -> None:
    join(group, 1, topic("T", "a", 5))

    assert not join(group, 1, topic("T", "b", version))

    assert group.subscriptions["T"].sub_string == kept


def test_added_or_removed_topics_change_the_group(group: ConsumerGroup) -> None:
    join(group, 1, topic("T"))

    assert join(group, 1, topic("T"), topic("U"))
    assert join(group, 1, topic("U"))
    assert not join(group, 1, topic("U"))

    assert list(group.subscriptions) == ["U"]


@pytest.mark.parametrize("version", [0, 4, 5])
def test_a_pull_needs_a_subscription_that_is_new_enough(group: ConsumerGroup, version: int) -> None:
    join(group, 1, topic("T", version=5))

    assert group.subscription("T", version) == topic("T", version=5)


def test_a_pull_newer_than_the_heartbeat_gets_an_error(group: ConsumerGroup) -> None:
    join(group, 1, topic("T", version=5))

    with pytest.raises(SubscriptionStale, match="knows version 5") as refused:
        group.subscription("T", 6)

    assert refused.value.code == 25


def test_a_pull_of_an_unsubscribed_topic_gets_an_error(group: ConsumerGroup) -> None:
    join(group, 1, topic("T"))

    with pytest.raises(SubscriptionUnknown, match="has no subscription of topic U") as refused:
        group.subscription("U", 0)

    assert refused.value.code == 24


# heartbeats without subscriptions


def test_a_heartbeat_without_subscriptions_clears_nothing(group: ConsumerGroup) -> None:
    group.join(client(1), wants(topic("T")), 77, without_sub=False, now=0)

    assert not group.join(client(1), wants(), 77, without_sub=True, now=30)

    assert group.knows(1, 77)
    assert group.subscriptions == {"T": topic("T")}
    assert group.members[1].seen == 30


@pytest.mark.parametrize(("connection", "fingerprint"), [(1, 78), (2, 77)])
def test_a_member_with_unknown_subscriptions_must_send_them(
    group: ConsumerGroup, connection: int, fingerprint: int
) -> None:
    group.join(client(1), wants(topic("T")), 77, without_sub=False, now=0)

    group.join(client(connection), wants(), fingerprint, without_sub=True, now=30)

    assert not group.knows(connection, fingerprint)
    assert group.subscriptions == {"T": topic("T")}


def test_an_unchanged_member_replaces_the_subscriptions_of_one_that_left(group: ConsumerGroup) -> None:
    group.join(client(1), wants(topic("T")), 77, without_sub=False, now=0)
    group.join(client(2), wants(topic("U")), 88, without_sub=False, now=0)
    group.leave(2)

    assert group.join(client(1), wants(), 77, without_sub=True, now=30)

    assert list(group.subscriptions) == ["T"]


# conflicts


def test_members_with_equal_subscriptions_do_not_conflict_whatever_their_versions(group: ConsumerGroup) -> None:
    join(group, 1, topic("T", "a||b", 1), topic("%RETRY%g"))
    join(group, 2, topic("%RETRY%g", version=9), topic("T", "b || a", 5))

    assert not group.in_conflict
    assert group.conflict() == Conflict("g", {})
    assert group.pop_report() is None


def test_members_that_pull_and_members_that_pop_do_not_conflict(group: ConsumerGroup) -> None:
    join(group, 1, topic("T"), topic("%RETRY%g"))
    join(group, 2, topic("T"))
    join(group, 3, topic("T"), topic("%RETRY%g_T"))

    assert not group.in_conflict


@pytest.mark.parametrize(
    ("first", "second", "wanted"),
    [
        ([topic("T", "a")], [topic("T", "b")], {"T": {"a": ("c1",), "b": ("c2",)}}),
        ([topic("T")], [topic("T", "b || a")], {"T": {"*": ("c1",), "a || b": ("c2",)}}),
        ([topic("T")], [topic("T"), topic("U")], {"U": {None: ("c1",), "*": ("c2",)}}),
        ([topic("T")], [], {"T": {"*": ("c1",), None: ("c2",)}}),
        (
            [topic("T", "a > 1", kind=ExpressionType.SQL92)],
            [topic("T", "a > 2", kind=ExpressionType.SQL92)],
            {"T": {"SQL92: a > 1": ("c1",), "SQL92: a > 2": ("c2",)}},
        ),
        (
            [topic("T", "a", kind=ExpressionType.SQL92)],
            [topic("T", "a")],
            {"T": {"SQL92: a": ("c1",), "a": ("c2",)}},
        ),
    ],
)
def test_members_with_different_subscriptions_conflict(
    group: ConsumerGroup,
    first: list[Subscription],
    second: list[Subscription],
    wanted: dict[str, dict[str | None, tuple[str, ...]]],
) -> None:
    join(group, 1, *first)
    join(group, 2, *second)

    assert group.in_conflict
    assert group.conflict() == Conflict("g", wanted)


def test_a_conflict_is_reported_when_it_starts_changes_and_ends(group: ConsumerGroup) -> None:
    reports = []
    for connection, expression in [(1, "a"), (2, "a"), (3, "b"), (4, "b"), (3, "b"), (1, "a"), (4, "c"), (4, "c")]:
        join(group, connection, topic("T", expression))
        reports.append(group.pop_report())
    for connection in (4, 3):
        group.leave(connection)
        reports.append(group.pop_report())

    assert reports == [
        None,
        None,
        Conflict("g", {"T": {"a": ("c1", "c2"), "b": ("c3",)}}),
        None,
        None,
        None,
        Conflict("g", {"T": {"a": ("c1", "c2"), "b": ("c3",), "c": ("c4",)}}),
        None,
        Conflict("g", {"T": {"a": ("c1", "c2"), "b": ("c3",)}}),
        Conflict("g", {}),
    ]


def test_a_member_without_subscriptions_does_not_take_part_in_a_conflict(group: ConsumerGroup) -> None:
    join(group, 1, topic("T"))
    group.join(client(2), wants(), 77, without_sub=True, now=0)

    assert not group.in_conflict
    group.leave(2)
    assert group.client_ids() == ("c1",)


def test_a_topic_that_is_sent_twice_counts_once(group: ConsumerGroup) -> None:
    join(group, 1, topic("T", "a"), topic("T", "b"))
    join(group, 2, topic("T", "b"))

    assert not group.in_conflict


def test_in_a_conflict_the_last_heartbeat_decides_the_subscriptions(group: ConsumerGroup) -> None:
    join(group, 1, topic("T", "a", 5))
    join(group, 2, topic("U"), topic("T", "b", 4))
    assert group.subscriptions == {"U": topic("U"), "T": topic("T", "a", 5)}

    assert join(group, 1, topic("T", "a", 5))
    assert group.subscriptions == {"T": topic("T", "a", 5)}


def test_a_conflict_is_a_sentence_with_advice() -> None:
    text = str(Conflict("g", {"T": {"a": ("c1", "c2", "c3", "c4", "c5"), None: ("c6",)}}))

    assert "T: a (c1, c2, c3 and 2 more), nothing (c6). Use the same subscriptions" in text
    assert str(Conflict("g", {})) == "All members of group g have the same subscriptions again"


def test_a_conflict_about_many_topics_is_still_one_line() -> None:
    text = str(Conflict("g", {f"T{n}": {"a": ("c1",), None: ("c2",)} for n in range(9)}))

    assert "T2: a (c1), nothing (c2) and 6 more." in text
