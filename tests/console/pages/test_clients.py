"""Clients on pages."""

from pocketmq.client.admin.groups import Member
from pocketmq.codes import VERSION
from pocketmq.console.pages.cluster import connected, version_name
from pocketmq.console.snapshot import Snapshot
from pocketmq.protocol.bodies.clients import ProducerInfo


def test_consumers_are_listed_first_with_a_row_for_each_group() -> None:
    member = Member(client_id="c1", address="10.0.0.1:5", language="JAVA", version=int(VERSION), brokers=("a",))
    producer = ProducerInfo("p1", "/10.0.0.2:6", "PYTHON", int(VERSION))
    snapshot = Snapshot(members={"g2": (member,), "g1": (member,)}, producers={"web": [producer]})

    rows = [(one.kind, one.group, one.client_id, one.address) for one in connected(snapshot)]

    assert rows == [
        ("consumer", "g1", "c1", "10.0.0.1:5"),
        ("consumer", "g2", "c1", "10.0.0.1:5"),
        ("producer", "web", "p1", "10.0.0.2:6"),
    ]


def test_an_unknown_version_is_shown_as_a_number() -> None:
    assert version_name(int(VERSION)).count(".") == 2
    assert version_name(99_999) == "99999"
