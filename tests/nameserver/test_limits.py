"""Limits on registrations: a broker above one is refused completely; of its topics, those that fit are accepted."""

import pytest
from msgspec.structs import replace
from tests.nameserver.talk import registration

from pocketmq.broker.settings import BrokerSettings
from pocketmq.embedded import limits_for
from pocketmq.errors import ServerFailed
from pocketmq.nameserver.route_tables import Registration, RouteLimits
from pocketmq.nameserver.routes import RouteTable
from pocketmq.protocol.bodies.topics import QueueData

SMALL = RouteLimits(max_brokers=2, max_topics=3, max_topic_entries=4, max_name_chars=20, max_filter_servers=1)


def other(*topics: str, name: str = "broker-b", number: int = 0) -> Registration:
    told = registration(*topics, name=name, number=number, address=f"{name}:{number}")
    return told._replace(ha_address="")


def filtered(count: int) -> Registration:
    one = registration("A", "B")
    return one._replace(body=replace(one.body, filter_server_list=("f:1",) * count))


def refused(table: RouteTable, told: Registration, why: str) -> None:
    before = table.cluster_info(), table.topics.names(), table.topics.entries
    with pytest.raises(ServerFailed, match=why):
        table.register(told, 0)
    assert (table.cluster_info(), table.topics.names(), table.topics.entries) == before


@pytest.mark.parametrize(
    ("first", "fits", "too_much", "why"),
    [
        ([registration("A", "B"), other()], other("A", "B"), other(name="broker-c"), "maxBrokers"),
        ([registration("A", "B"), other()], registration("A", "B", counter=2), other(number=1), "maxBrokers"),
        ([], other(name="b" * 18), other(name="b" * 19), "21 characters"),
        ([], filtered(1), filtered(2), "1 filter servers"),
        ([], other(), other()._replace(cluster=""), "it has no cluster"),
        ([], other(), other()._replace(broker_name=""), "it has no broker"),
        ([], other(), other()._replace(address=""), "it has no address"),
        ([], other(), other()._replace(ha_address="h" * 21), "21 characters"),
        ([], other(), other()._replace(zone="z" * 21), "21 characters"),
        ([], other(), other()._replace(broker_name="b\nfalse log line"), "control character"),
    ],
    ids=[
        "brokers",
        "brokers, one again",
        "broker name",
        "filter servers",
        "no cluster",
        "no broker",
        "no address",
        "other address",
        "zone",
        "control character",
    ],
)
def test_values_at_a_limit_are_accepted_and_above_it_nothing_changes(
    first: list[Registration], fits: Registration, too_much: Registration, why: str
) -> None:
    table = RouteTable(SMALL)
    for one in first:
        table.register(one, 0)

    refused(table, too_much, why)
    table.register(fits, 0)


def test_topics_added_by_hand_are_limited_too() -> None:
    table = RouteTable(SMALL)
    table.register(registration("A", "B", "C"), 0)

    with pytest.raises(ServerFailed, match="maxTopics"):
        table.register_topic("D", (QueueData("broker-a"),))

    assert "D" not in table.topics


def test_topics_of_a_slave_without_permission_do_not_refuse_its_registration() -> None:
    table = RouteTable(SMALL)
    table.register(registration("A", "B"), 0)

    table.register(registration("C", "D", "E", "F", number=1, address="s:1"), 0)

    assert table.topics.names() == ("A", "B")


@pytest.mark.parametrize(
    ("first", "told", "taken", "rejected", "why"),
    [
        (registration("A", "B"), other("A", "C", "D"), {"A", "B", "C"}, 1, "maxTopics"),
        (registration("A", "B"), other("A", "%RETRY%G", "D"), {"A", "B", "D"}, 1, "maxTopics"),
        (registration("A", "B"), other("%DLQ%G", "%RETRY%G", "D"), {"A", "B", "D"}, 2, "maxTopics"),
        (registration("A", "B", "C"), other("A", "B"), {"A", "B", "C"}, 1, "maxTopicEntries"),
        (registration(), other("T" * 20, "T" * 21), {"T" * 20}, 1, "20 characters"),
        (registration(), other("", "A"), {"A"}, 1, "is empty"),
    ],
)
def test_of_too_many_topics_those_of_users_are_accepted_before_those_of_groups(
    first: Registration, told: Registration, taken: set[str], rejected: int, why: str
) -> None:
    table = RouteTable(SMALL)
    table.register(first, 0)

    done = table.register(told, 0)

    assert set(table.topics.names()) == taken
    assert (done.rejected, table.rejected_topics) == (rejected, rejected)
    assert why in done.why
    assert table.route("A") is not None or "A" not in taken


def test_topics_that_are_known_stay_known_when_there_are_too_many() -> None:
    table = RouteTable(SMALL)
    table.register(registration("A", "B", "C"), 0)

    done = table.register(registration("A", "B", "C", "D", "E", counter=2), 0)

    assert (set(table.topics.names()), done.rejected) == ({"A", "B", "C"}, 2)


def test_a_name_server_has_space_for_all_topics_of_a_broker() -> None:
    broker = BrokerSettings()

    assert RouteLimits().max_topics >= broker.max_topics + broker.max_retry_topics
    assert limits_for(replace(broker, max_topics=1_000_000)).max_topics >= 1_000_000 + broker.max_retry_topics
