"""Bounds of what brokers may tell: at the bound it is taken, beyond it refused as a whole."""

import pytest
from msgspec.structs import replace
from tests.nameserver.talk import registration

from pocketmq.errors import ServerFailed
from pocketmq.nameserver.brokers import Registration
from pocketmq.nameserver.limits import RouteLimits
from pocketmq.nameserver.routes import RouteTable
from pocketmq.protocol.bodies.routes import QueueData

SMALL = RouteLimits(max_brokers=2, max_topics=3, max_places=4, max_name_chars=20, max_filter_servers=1)


def other(*topics: str, name: str = "broker-b", number: int = 0) -> Registration:
    told = registration(*topics, name=name, number=number, address=f"{name}:{number}")
    return told._replace(ha_address="")


def filtered(count: int) -> Registration:
    one = registration("A", "B")
    return one._replace(body=replace(one.body, filter_server_list=("f:1",) * count))


def refused(table: RouteTable, told: Registration, why: str) -> None:
    before = table.cluster_info(), table.topics.names(), table.topics.places
    with pytest.raises(ServerFailed, match=why):
        table.register(told, 0)
    assert (table.cluster_info(), table.topics.names(), table.topics.places) == before


@pytest.mark.parametrize(
    ("first", "fits", "too_much", "why"),
    [
        ([registration("A", "B")], other("A", "B"), other("A", "C", "D"), "maxTopics"),
        ([registration("A", "B", "C")], other(), other("A", "B"), "maxPlaces"),
        ([registration("A", "B"), other()], other("A", "B"), other(name="broker-c"), "maxBrokers"),
        ([registration("A", "B"), other()], registration("A", "B", counter=2), other(number=1), "maxBrokers"),
        ([], other("T" * 20, "A"), other("T" * 21, "A"), "20 characters"),
        ([], other("A", "B"), other("", "A"), "is empty"),
        ([], other(name="b" * 18), other(name="b" * 19), "21 characters"),
        ([], filtered(1), filtered(2), "1 filter servers"),
        ([], other(), other()._replace(cluster=""), "names no cluster"),
        ([], other(), other()._replace(broker_name=""), "names no broker"),
        ([], other(), other()._replace(address=""), "names no address"),
        ([], other(), other()._replace(ha_address="h" * 21), "21 characters"),
        ([], other(), other()._replace(zone="z" * 21), "21 characters"),
        ([], other(), other()._replace(broker_name="b\nfalse log line"), "control character"),
    ],
    ids=[
        "topics",
        "places",
        "brokers",
        "brokers, one again",
        "topic name",
        "empty topic name",
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
def test_what_is_at_a_bound_is_taken_and_what_is_beyond_it_changes_nothing(
    first: list[Registration], fits: Registration, too_much: Registration, why: str
) -> None:
    table = RouteTable(SMALL)
    for one in first:
        table.register(one, 0)

    refused(table, too_much, why)
    table.register(fits, 0)


def test_a_topic_by_hand_is_bounded_too() -> None:
    table = RouteTable(SMALL)
    table.register(registration("A", "B", "C"), 0)

    with pytest.raises(ServerFailed, match="maxTopics"):
        table.register_topic("D", (QueueData("broker-a"),))

    assert "D" not in table.topics


def test_a_slave_that_may_not_tell_topics_is_not_refused_for_them() -> None:
    table = RouteTable(SMALL)
    table.register(registration("A", "B"), 0)

    table.register(registration("C", "D", "E", "F", number=1, address="s:1"), 0)

    assert table.topics.names() == ("A", "B")
