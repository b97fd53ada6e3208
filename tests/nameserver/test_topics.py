"""Topics by broker name: addresses, mappings, flags and permissions."""

import pytest

from pocketmq.codes import Perm, TopicFlag
from pocketmq.nameserver.route_tables import TopicTable
from pocketmq.protocol.bodies.topics import QueueData, QueueMappingInfo


def filled(**topics: str) -> TopicTable:
    """`T="a b"` is topic T on broker names a and b."""
    table = TopicTable()
    for topic, names in topics.items():
        for name in names.split():
            table.put(topic, QueueData(name, 4, 4, Perm.READ_WRITE))
    return table


def entries(table: TopicTable) -> dict[str, str]:
    return {topic: " ".join(table.queues(topic)) for topic in table.names()}


def test_an_entry_is_one_topic_on_one_broker_name() -> None:
    table = filled(T="a b", U="a")

    table.put("T", QueueData("a", 8, 8, Perm.READ))

    assert len(table) == 2
    assert table.entries == 3
    assert table.queues("T")["a"] == QueueData("a", 8, 8, Perm.READ)
    assert table.queues("Unknown") == {}


@pytest.mark.parametrize(
    ("removed", "left"),
    [
        ([("T", ["a"])], {"T": "b", "U": "a"}),
        ([("T", ["a", "b"])], {"U": "a"}),
        ([("T", ["a", "none"]), ("None", ["a"])], {"T": "b", "U": "a"}),
        ([("T", [])], {"T": "a b", "U": "a"}),
    ],
)
def test_a_topic_is_removed_with_its_last_entry(removed: list[tuple[str, list[str]]], left: dict[str, str]) -> None:
    table = filled(T="a b", U="a")

    for topic, names in removed:
        table.remove(topic, names)

    assert entries(table) == left
    assert table.entries == sum(len(names.split()) for names in left.values())


def test_deleting_a_topic_removes_it_from_all_brokers() -> None:
    table = filled(T="a b", U="a")

    table.delete("T")
    table.delete("Unknown")

    assert entries(table) == {"U": "a"}
    assert "T" not in table
    assert "U" in table


def test_removing_a_broker_removes_its_topics() -> None:
    table = filled(T="a b", U="a", V="b")

    table.remove_broker("a")

    assert entries(table) == {"T": "b", "V": "b"}
    assert table.entries == 2


def test_topics_of_one_broker_and_of_several() -> None:
    table = filled(T="a b", U="a", V="b", W="c")

    assert table.of_broker("a") == ["T", "U"]
    assert table.of_brokers(["a", "b"]) == ["T", "U", "V"]
    assert table.of_brokers([]) == []


def test_a_permission_is_changed_for_all_topics_of_a_broker_and_no_other() -> None:
    table = filled(T="a b", U="a")

    count = table.change_perm("a", lambda perm: perm & ~Perm.WRITE)

    assert count == 2
    assert [table.queues("T")[name].perm for name in "ab"] == [Perm.READ, Perm.READ_WRITE]
    assert table.queues("U")["a"].perm == Perm.READ
    assert table.change_perm("none", lambda perm: 0) == 0


def test_topics_are_found_by_their_flag() -> None:
    table = TopicTable()
    for topic, flag in (("plain", 0), ("unit", TopicFlag.UNIT), ("sub", TopicFlag.UNIT_SUB), ("both", 3)):
        table.put(topic, QueueData("a", topic_sys_flag=flag))

    assert table.with_flag(lambda flag: bool(flag & TopicFlag.UNIT)) == ["unit", "both"]


def test_the_mapping_of_a_static_topic_is_removed_with_its_entry() -> None:
    table = filled(T="a b")
    mapping = QueueMappingInfo("T", "a", 2)

    table.put_mapping("T", "a", mapping)

    assert table.mappings("T") == {"a": mapping}
    table.remove("T", ["a"])
    assert table.mappings("T") is None


@pytest.mark.parametrize(("topic", "name"), [("T", "b"), ("U", "a")])
def test_a_mapping_without_an_entry_is_not_kept(topic: str, name: str) -> None:
    table = filled(T="a")

    table.put_mapping(topic, name, QueueMappingInfo(topic, name, 2))

    assert table.mappings(topic) is None
