"""Brokers by name, cluster, address and connection: every member is in all tables or in none."""

from hypothesis import given
from hypothesis import strategies as st
from tests.nameserver.talk import CLUSTER, MASTER, SLAVE, registration

from pocketmq.nameserver.route_tables import BrokerTable, Registration
from pocketmq.protocol.bodies.topics import BrokerData, BrokerMembers, ClusterInfo


def filled(*told: Registration) -> BrokerTable:
    table = BrokerTable(120)
    for one in told:
        table.enter(one, 0)
    return table


def test_a_member_is_found_by_name_address_and_connection() -> None:
    table = filled(registration(connection="one"), registration(number=1, address=SLAVE, connection="two"))

    broker = table.named("broker-a")

    assert broker is not None
    assert broker.addresses == {0: MASTER, 1: SLAVE}
    assert table.at(CLUSTER, SLAVE) is broker.members[1]
    assert table.of_connection("two") == [broker.members[1]]
    assert len(table) == 2
    assert table.first_address() == MASTER
    assert table.names_of(CLUSTER) == ("broker-a",)


def test_an_empty_table_has_no_brokers() -> None:
    table = filled()

    assert table.named("broker-a") is None
    assert table.at(CLUSTER, MASTER) is None
    assert table.first_address() is None
    assert table.names_of(CLUSTER) == ()
    assert table.of_connection("line") == []
    assert table.info() == ClusterInfo()
    assert table.members(CLUSTER, "broker-a") == BrokerMembers(CLUSTER, "broker-a", {})


def test_a_broker_that_changes_its_id_is_listed_once() -> None:
    table = filled(registration(number=1), registration(number=0))

    assert table.members(CLUSTER, "broker-a").broker_addrs == {0: MASTER}
    assert len(table) == 1


def test_a_broker_that_registers_a_used_id_replaces_the_other() -> None:
    table = filled(registration(connection="old"), registration(address=SLAVE, connection="new"))

    assert table.members(CLUSTER, "broker-a").broker_addrs == {0: SLAVE}
    assert table.at(CLUSTER, MASTER) is None
    assert table.of_connection("old") == []


def test_a_member_that_registers_by_another_connection_leaves_the_first() -> None:
    table = filled(registration(connection="old"), registration(connection="new"))

    assert table.of_connection("old") == []
    assert [member.address for member in table.of_connection("new")] == [MASTER]


def test_a_broker_registers_its_zone_and_whether_a_slave_may_act_for_its_master() -> None:
    table = filled(registration(acting=True, zone="north"))

    data = BrokerData(CLUSTER, "broker-a", {0: MASTER}, enable_acting_master=True, zone_name="north")

    assert table.info() == ClusterInfo({"broker-a": data}, {CLUSTER: ("broker-a",)})


def test_a_name_without_members_leaves_all_clusters() -> None:
    table = filled(
        registration(),
        registration(number=1, address=SLAVE, cluster="Other"),
        registration(name="broker-b", address="b:1", cluster="Other"),
    )
    master, slave = table.at(CLUSTER, MASTER), table.at("Other", SLAVE)
    assert master is not None
    assert slave is not None

    assert table.remove(master) is table.named("broker-a")
    assert table.remove(slave) is None

    assert table.info().cluster_addr_table == {"Other": ("broker-b",)}
    assert list(table.info().broker_addr_table) == ["broker-b"]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["enter", "enter", "remove"]),
            st.sampled_from(["a", "b"]),
            st.integers(0, 2),
            st.sampled_from(["x:1", "y:1", "z:1"]),
            st.sampled_from(["c", "d"]),
            st.sampled_from(["l1", "l2"]),
        )
    )
)
def test_all_tables_are_consistent_after_random_operations(steps: list[tuple[str, str, int, str, str, str]]) -> None:
    table = BrokerTable(120)

    for what, name, number, address, cluster, line in steps:
        known = table.at(cluster, address)
        if known is not None and (what == "remove" or known.broker_name != name):
            table.remove(known)
        if what == "enter":
            table.enter(registration(name=name, number=number, address=address, cluster=cluster, connection=line), 0)

    names = [broker for name in ("a", "b") if (broker := table.named(name))]
    by_name = {member for broker in names for member in broker.members.values()}
    by_line = {member for line in ("l1", "l2") for member in table.of_connection(line)}
    by_address = {table.at(cluster, address) for cluster in "cd" for address in ("x:1", "y:1", "z:1")} - {None}
    assert by_name == by_line == by_address
    assert len(table) == len(by_name)
    assert all(broker.members for broker in names)
    in_clusters = {name for names in table.info().cluster_addr_table.values() for name in names}
    assert in_clusters == {broker.name for broker in names}
    assert all(table.info().cluster_addr_table.values())
