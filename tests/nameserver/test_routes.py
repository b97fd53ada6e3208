"""The rules of the route table, with plain numbers: which registrations are accepted, which expire, and what is answered."""

import pytest
from msgspec.structs import replace
from tests.nameserver.talk import CLUSTER, MASTER, SLAVE, registration

from pocketmq.codes import Perm, TopicFlag
from pocketmq.errors import ServerFailed
from pocketmq.nameserver.route_tables import Registration
from pocketmq.nameserver.routes import RouteTable, in_zone
from pocketmq.protocol.bodies.topics import (
    BrokerData,
    DataVersion,
    QueueData,
    QueueMappingInfo,
    TopicConfig,
    TopicList,
    TopicRouteData,
)


def told(*registrations: Registration, drop_absent: bool = False) -> RouteTable:
    table = RouteTable()
    for one in registrations:
        table.register(one, 0, drop_absent=drop_absent)
    return table


def topics(table: RouteTable) -> set[str]:
    return set(table.topics.names())


def addresses(table: RouteTable, name: str = "broker-a") -> dict[int, str]:
    return table.members(CLUSTER, name).broker_addrs


def perm(table: RouteTable, topic: str, name: str = "broker-a") -> int:
    return table.topics.queues(topic)[name].perm


def test_a_broker_and_its_topics_are_known() -> None:
    table = told(registration(TopicConfig("Orders", 8, 4, 6, topic_sys_flag=TopicFlag.UNIT), "TBW102"))

    route = table.route("Orders")

    assert route == TopicRouteData(
        queue_datas=(QueueData("broker-a", 8, 4, 6, TopicFlag.UNIT),),
        broker_datas=(BrokerData(CLUSTER, "broker-a", {0: MASTER}),),
    )
    assert topics(table) == {"Orders", "TBW102"}


def test_a_topic_that_no_broker_has_has_no_route() -> None:
    assert told(registration("A", "B")).route("Unknown") is None


@pytest.mark.parametrize("count", [0, 2, 3])
def test_a_first_registration_holds_no_topic_or_several(count: int) -> None:
    table = told(registration(*[f"T{number}" for number in range(count)]))

    assert len(topics(table)) == count
    assert addresses(table) == {0: MASTER}


def test_a_first_registration_of_a_single_topic_is_refused_and_leaves_no_trace() -> None:
    table = RouteTable()

    with pytest.raises(ServerFailed, match="register broker failed"):
        table.register(registration("Only"), 0)

    assert topics(table) == set()
    assert table.cluster_info() == RouteTable().cluster_info()


def test_a_single_topic_of_an_unknown_slave_is_refused() -> None:
    table = told(registration("A", "B"))

    with pytest.raises(ServerFailed):
        table.register(registration("C", number=1, address=SLAVE), 0)

    assert addresses(table) == {0: MASTER}


def test_a_later_registration_of_a_single_topic_adds_it() -> None:
    table = told(registration("A", "B"), registration("C", counter=2))

    assert topics(table) == {"A", "B", "C"}


def test_a_new_broker_and_a_known_one_are_distinguished() -> None:
    table = RouteTable()

    first = table.register(registration("A", "B"), 0)
    second = table.register(registration("A", "B"), 0)

    assert (first.is_new, second.is_new) == (True, False)
    assert first.master is None


def test_a_slave_gets_its_master() -> None:
    table = told(registration("A", "B"))

    done = table.register(registration(number=1, address=SLAVE), 0)

    assert done.master is not None
    assert (done.master.address, done.master.ha_address) == (MASTER, MASTER + "-ha")


def test_a_slave_without_a_master_gets_no_master_address() -> None:
    assert RouteTable().register(registration(number=1, address=SLAVE), 0).master is None


def test_a_slave_that_becomes_master_is_listed_once() -> None:
    table = told(registration("A", "B", number=1), registration("A", "B", number=0, counter=2))

    assert addresses(table) == {0: MASTER}


@pytest.mark.parametrize(
    ("old_state", "new_state", "wins"), [(5, 4, MASTER), (5, 5, SLAVE), (5, 6, SLAVE), (0, 0, SLAVE)]
)
def test_of_two_brokers_with_one_id_the_one_with_the_newer_state_stays(
    old_state: int, new_state: int, wins: str
) -> None:
    table = told(registration("A", "B", state=old_state))

    done = table.register(registration("A", "B", address=SLAVE, state=new_state, counter=2), 0)

    assert addresses(table) == {0: wins}
    assert (done.rival is not None) == (wins == MASTER)
    assert (done.member is None) == (wins == MASTER)


def test_a_refused_registration_leaves_no_entry_under_the_old_id() -> None:
    table = told(registration("A", "B", state=5), registration(number=1, address=SLAVE))

    table.register(registration("A", "B", number=0, address=SLAVE, state=4), 0)

    assert addresses(table) == {0: MASTER}
    assert table.data_version(CLUSTER, SLAVE) is None


def test_an_address_that_registers_under_another_name_leaves_the_old_one() -> None:
    table = told(registration("A", "B"), registration("A", "C", name="broker-b"))

    assert table.cluster_info().cluster_addr_table == {CLUSTER: ("broker-b",)}
    assert topics(table) == {"A", "C"}


@pytest.mark.parametrize(
    ("number", "acting", "known"),
    [
        (0, None, True),
        (0, False, True),
        (1, None, False),
        (1, False, True),
        (1, True, True),
    ],
    ids=["old master", "master", "old slave", "slave", "slave that may act"],
)
def test_topics_come_from_the_master_or_from_a_new_enough_slave(number: int, acting: bool | None, known: bool) -> None:
    table = told(registration("A", "B", number=number, acting=acting))

    assert ("A" in topics(table)) == known


@pytest.mark.parametrize(("number", "known"), [(0, True), (1, True), (2, True), (3, False)])
def test_of_several_slaves_the_lowest_id_provides_topics(number: int, known: bool) -> None:
    table = told(registration(number=2, address=SLAVE, acting=True))
    address = SLAVE if number == 2 else MASTER

    table.register(registration("A", "B", number=number, address=address, acting=True, counter=2), 0)

    assert ("A" in topics(table)) == known


def test_a_slave_with_a_master_provides_no_topics() -> None:
    table = told(registration("A", "B"), registration("C", "D", number=1, address=SLAVE, acting=True))

    assert topics(table) == {"A", "B"}


@pytest.mark.parametrize(("number", "acting", "wanted"), [(0, True, 6), (1, True, 4), (1, False, 6)])
def test_topics_of_an_acting_slave_are_read_only(number: int, acting: bool, wanted: int) -> None:
    table = told(registration("A", "B", number=number, acting=acting))

    assert perm(table, "A") == wanted


def test_an_equal_data_version_changes_nothing() -> None:
    table = told(registration("A", "B"))

    table.register(registration(TopicConfig("A", perm=Perm.READ), "B"), 0)

    assert perm(table, "A") == Perm.READ_WRITE


@pytest.mark.parametrize("version", [DataVersion(2, 0, 1_001), DataVersion(1, 1, 1_001), DataVersion(1, 0, 1_002)])
def test_each_of_the_three_numbers_of_a_data_version_counts(version: DataVersion) -> None:
    table = told(registration("A", "B"))
    changed = registration(TopicConfig("A", perm=Perm.READ), "B")
    body = replace(changed.body, topics=replace(changed.body.topics, data_version=version))

    table.register(changed._replace(body=body), 0)

    assert perm(table, "A") == Perm.READ
    assert table.data_version(CLUSTER, MASTER) == version


def test_an_unknown_topic_is_accepted_at_an_equal_version() -> None:
    table = told(registration("A", "B"))
    table.delete_topic("A")

    table.register(registration("A", "B"), 0)

    assert topics(table) == {"A", "B"}


def test_an_unknown_broker_has_no_version() -> None:
    assert RouteTable().data_version(CLUSTER, MASTER) is None


def test_wiped_permissions_last_until_the_broker_changes_a_topic() -> None:
    table = told(registration("A", "B"))
    table.wipe_write_perm("broker-a")

    table.register(registration("A", "B"), 0)
    still = perm(table, "A")
    table.register(registration("A", "B", counter=2), 0)

    assert (still, perm(table, "A")) == (Perm.READ, Perm.READ_WRITE)


@pytest.mark.parametrize(
    ("later", "drop_absent", "left"),
    [
        (["A", "C"], False, {"A", "B", "C"}),
        (["A", "C"], True, {"A", "C"}),
        (["C"], True, {"A", "B", "C"}),
        ([], True, {"A", "B"}),
    ],
    ids=["kept", "dropped", "a single topic is an addition", "no table at all"],
)
def test_topics_missing_from_a_registration_are_removed_only_if_requested(
    later: list[str], drop_absent: bool, left: set[str]
) -> None:
    table = told(registration("A", "B"))

    table.register(registration(*later, counter=2), 0, drop_absent=drop_absent)

    assert topics(table) == left


def test_topics_of_other_brokers_stay_when_one_broker_drops_them() -> None:
    table = told(registration("A", "B"), registration("B", "C", name="broker-b", address="b:1"))

    table.register(registration("A", "D", counter=2), 0, drop_absent=True)

    assert topics(table) == {"A", "B", "C", "D"}
    assert set(table.topics.queues("B")) == {"broker-b"}


def test_a_table_with_static_topics_removes_nothing() -> None:
    table = told(registration("A", "B"))
    later = registration("A", "C", counter=2)
    mapped = replace(later.body.topics, topic_queue_mapping_info_map={"A": QueueMappingInfo("A", "broker-a", 1)})

    table.register(later._replace(body=replace(later.body, topics=mapped)), 0, drop_absent=True)

    assert topics(table) == {"A", "B", "C"}
    route = table.route("A")
    assert route is not None
    assert route.topic_queue_mapping_by_broker == {"broker-a": QueueMappingInfo("A", "broker-a", 1)}


@pytest.mark.parametrize(
    ("timeout_s", "now", "is_gone"),
    [
        (None, 120.0, False),
        (None, 120.001, True),
        (10.0, 10.0, False),
        (10.0, 10.001, True),
        (300.0, 121.0, False),
        (0.0, 0.001, True),
    ],
)
def test_a_silent_broker_expires_after_its_time(timeout_s: float | None, now: float, is_gone: bool) -> None:
    table = told(registration("A", "B", timeout_s=timeout_s))

    expired = table.expire(now)

    assert bool(expired) == is_gone
    assert (table.route("A") is None) == is_gone


@pytest.mark.parametrize("sign", ["registration", "heartbeat"])
def test_a_heartbeat_keeps_a_broker_registered(sign: str) -> None:
    table = told(registration("A", "B"))

    if sign == "registration":
        table.register(registration("A", "B"), 100)
    else:
        table.touch(CLUSTER, MASTER, 100)

    assert table.expire(220) == []
    assert [member.address for member in table.expire(220.5)] == [MASTER]


def test_a_heartbeat_of_an_unknown_broker_registers_nothing() -> None:
    table = RouteTable()

    table.touch(CLUSTER, MASTER, 100)

    assert table.cluster_info() == RouteTable().cluster_info()


def test_a_lost_connection_removes_only_its_own_brokers() -> None:
    table = told(
        registration("A", "B", connection="one"),
        registration("A", "C", name="broker-b", address="b:1", connection="one"),
        registration("A", "D", name="broker-c", address="c:1", connection="two"),
    )

    lost = table.lose("one")

    assert {member.broker_name for member in lost} == {"broker-a", "broker-b"}
    assert topics(table) == {"A", "D"}
    assert table.lose("one") == []


def test_losing_an_old_connection_does_not_affect_a_broker_with_a_new_one() -> None:
    table = told(registration("A", "B", connection="old"), registration("A", "B", connection="new"))

    assert table.lose("old") == []
    assert topics(table) == {"A", "B"}


@pytest.mark.parametrize(
    ("name", "address", "cluster", "is_gone"),
    [
        ("broker-a", MASTER, CLUSTER, True),
        ("broker-b", MASTER, CLUSTER, False),
        ("broker-a", SLAVE, CLUSTER, False),
        ("broker-a", MASTER, "Other", False),
    ],
)
def test_an_unregistration_removes_exactly_the_named_broker(
    name: str, address: str, cluster: str, is_gone: bool
) -> None:
    table = told(registration("A", "B"))

    gone = table.unregister(cluster, name, address)

    assert (gone is not None) == is_gone
    assert (topics(table) == set()) == is_gone


def test_a_name_stays_while_one_of_its_addresses_does() -> None:
    table = told(registration("A", "B"), registration(number=1, address=SLAVE))

    table.unregister(CLUSTER, "broker-a", MASTER)

    assert addresses(table) == {1: SLAVE}
    assert topics(table) == {"A", "B"}
    table.unregister(CLUSTER, "broker-a", SLAVE)
    assert topics(table) == set()
    assert table.cluster_info() == RouteTable().cluster_info()


@pytest.mark.parametrize(("acting", "wanted"), [(True, Perm.READ), (False, Perm.READ_WRITE), (None, 6)])
def test_without_a_master_a_name_with_acting_slaves_is_read_only(acting: bool | None, wanted: int) -> None:
    table = told(registration("A", "B", acting=acting), registration(number=1, address=SLAVE, acting=acting))

    table.unregister(CLUSTER, "broker-a", MASTER)

    assert perm(table, "A") == wanted


def lost_master(acting: bool | None = True) -> RouteTable:
    member_topic = "rmq_sys_SYNC_BROKER_MEMBER_broker-a"
    table = told(
        registration("A", member_topic, acting=acting),
        registration(number=1, address=SLAVE, acting=acting),
        registration(number=2, address="10.0.0.7:10911", acting=acting),
    )
    table.unregister(CLUSTER, "broker-a", MASTER)
    return table


@pytest.mark.parametrize(
    ("topic", "asked", "acting", "wanted"),
    [
        ("A", True, True, {0: SLAVE, 2: "10.0.0.7:10911"}),
        ("A", False, True, {1: SLAVE, 2: "10.0.0.7:10911"}),
        ("A", True, False, {1: SLAVE, 2: "10.0.0.7:10911"}),
        ("rmq_sys_SYNC_BROKER_MEMBER_broker-a", True, True, {1: SLAVE, 2: "10.0.0.7:10911"}),
    ],
    ids=["stands in", "not asked for", "not allowed", "members need the true ids"],
)
def test_the_slave_with_the_lowest_id_acts_for_a_lost_master(
    topic: str, asked: bool, acting: bool, wanted: dict[int, str]
) -> None:
    route = lost_master(acting).route(topic, acting_master=asked)

    assert route is not None
    assert route.broker_datas[0].broker_addrs == wanted


def test_no_slave_acts_while_the_topic_is_writable() -> None:
    table = lost_master()
    table.add_write_perm("broker-a")

    route = table.route("A", acting_master=True)

    assert route is not None
    assert 0 not in route.broker_datas[0].broker_addrs


def test_no_slave_acts_while_the_master_is_registered() -> None:
    route = told(registration("A", "B", acting=True)).route("A", acting_master=True)

    assert route is not None
    assert route.broker_datas[0].broker_addrs == {0: MASTER}


def two_brokers() -> RouteTable:
    return told(
        registration("A", TopicConfig("B", perm=Perm.READ_WRITE | Perm.INHERIT)),
        registration("A", "C", name="broker-b", address="b:1", cluster="Other"),
    )


def test_wiping_and_restoring_write_permission_returns_the_number_of_topics() -> None:
    table = two_brokers()

    assert table.wipe_write_perm("broker-a") == 2
    assert (perm(table, "A"), perm(table, "B")) == (Perm.READ, Perm.READ | Perm.INHERIT)
    assert perm(table, "A", "broker-b") == Perm.READ_WRITE
    assert table.add_write_perm("broker-a") == 2
    assert (perm(table, "A"), perm(table, "B")) == (Perm.READ_WRITE, Perm.READ_WRITE)
    assert table.wipe_write_perm("unknown") == table.add_write_perm("unknown") == 0


@pytest.mark.parametrize(
    ("cluster", "left"),
    [
        (None, set()),
        ("", set()),
        (CLUSTER, {"broker-b"}),
        ("Other", {"broker-a"}),
        ("Unknown", {"broker-a", "broker-b"}),
    ],
)
def test_a_topic_is_deleted_everywhere_or_in_one_cluster(cluster: str | None, left: set[str]) -> None:
    table = two_brokers()

    table.delete_topic("A", cluster)

    assert set(table.topics.queues("A")) == left


def test_a_topic_is_registered_by_hand_on_brokers_that_are_known() -> None:
    table = two_brokers()
    queues = (QueueData("broker-a", 2, 2, 6), QueueData("broker-b", 4, 4, 6))

    assert table.register_topic("New", queues) is None
    assert tuple(table.topics.queues("New").values()) == queues
    assert table.register_topic("Bad", (queues[0], QueueData("nobody"))) == "nobody"
    assert "Bad" not in topics(table)


def test_topics_of_a_cluster_are_listed() -> None:
    table = two_brokers()

    assert table.topics_of_cluster(CLUSTER) == ["A", "B"]
    assert table.topics_of_cluster("Other") == ["A", "C"]
    assert table.topics_of_cluster("Unknown") == []


def test_clusters_and_brokers_are_names_of_topics_too() -> None:
    assert two_brokers().system_topics() == TopicList((CLUSTER, "broker-a", "Other", "broker-b"), broker_addr=MASTER)
    assert RouteTable().system_topics() == TopicList()


def test_filter_servers_are_listed_by_address() -> None:
    one = registration("A", "B")
    table = told(one._replace(body=replace(one.body, filter_server_list=("f:1",))))

    route = table.route("A")

    assert route is not None
    assert route.filter_server_table == {MASTER: ("f:1",)}


def route_in_zones() -> TopicRouteData:
    north = registration("A", "B", zone="North")
    table = told(
        north._replace(body=replace(north.body, filter_server_list=("f:1",))),
        registration("A", "B", name="broker-b", address="b:1", zone="south"),
        registration("A", "B", name="broker-c", address="c:1", number=1, acting=False, zone="south"),
        registration("A", "B", name="broker-d", address="d:1"),
    )
    route = table.route("A")
    assert route is not None
    return route


@pytest.mark.parametrize(
    ("zone", "names", "filters"),
    [
        ("north", {"broker-a", "broker-c"}, {MASTER: ("f:1",)}),
        ("SOUTH", {"broker-b", "broker-c"}, {}),
        ("west", {"broker-c"}, {}),
    ],
)
def test_a_client_gets_brokers_of_its_zone_and_those_without_a_master(
    zone: str, names: set[str], filters: dict[str, tuple[str, ...]]
) -> None:
    near = in_zone(route_in_zones(), zone)

    assert {data.broker_name for data in near.broker_datas} == names
    assert {data.broker_name for data in near.queue_datas} == names
    assert near.filter_server_table == filters
