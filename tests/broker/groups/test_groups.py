"""Groups: created by an administrator or by their first use, and their forbidden topics."""

import pytest
from tests.golden import GOLDEN, captured, needs_golden

from pocketmq.broker.groups.groups import BUILT_IN_GROUPS, GroupTable
from pocketmq.broker.settings import MAX_QUEUES
from pocketmq.codes import RequestCode
from pocketmq.errors import GroupNotFound, ImpossibleRequest, InvalidName, InvalidParameter
from pocketmq.protocol.bodies import clients as bodies
from pocketmq.protocol.bodies.clients import GroupConfigList, SubscriptionGroupConfig
from pocketmq.protocol.bodies.topics import DataVersion
from pocketmq.protocol.java_json import read_json, write_pretty_json

NOW = 1_700_000_000_000


@pytest.fixture
def groups() -> GroupTable:
    return GroupTable()


def test_a_broker_has_system_groups(groups: GroupTable) -> None:
    assert [group.group_name for group in groups] == list(BUILT_IN_GROUPS)
    assert len(groups) == 8
    assert groups.version == DataVersion()


def test_the_first_use_creates_a_group(groups: GroupTable) -> None:
    made = groups.ensure("g", NOW)

    assert made == SubscriptionGroupConfig("g")
    assert groups.get("g") is groups.ensure("g", NOW + 1) is made
    assert "g" in groups
    assert groups.version == DataVersion(1, 0, NOW)


def test_a_query_creates_no_group(groups: GroupTable) -> None:
    assert groups.get("g") is None
    assert "g" not in groups


def test_with_automatic_creation_off_no_use_creates_a_group() -> None:
    groups = GroupTable(auto_create=False)
    groups.put([SubscriptionGroupConfig("known")], NOW)

    with pytest.raises(GroupNotFound, match="create it first") as refused:
        groups.ensure("g", NOW)

    assert refused.value.code == 26
    assert groups.ensure("known", NOW).group_name == "known"


@pytest.mark.parametrize("name", ["", "bad*group", "a@b", "x" * 121])
def test_an_invalid_name_creates_no_group_and_is_an_error_for_an_administrator(groups: GroupTable, name: str) -> None:
    with pytest.raises(GroupNotFound):
        groups.ensure(name, NOW)
    with pytest.raises(InvalidName) as refused:
        groups.put([SubscriptionGroupConfig(name)], NOW)

    assert refused.value.code == 29
    assert len(groups) == len(BUILT_IN_GROUPS)


def test_the_longest_name_is_accepted(groups: GroupTable) -> None:
    assert groups.ensure("x" * 120, NOW).group_name == "x" * 120


def test_clients_create_groups_up_to_the_limit_and_administrators_more() -> None:
    groups = GroupTable(max_groups=len(BUILT_IN_GROUPS) + 2)

    groups.ensure("g1", NOW)
    groups.ensure("g2", NOW)
    with pytest.raises(GroupNotFound, match="maxGroups"):
        groups.ensure("g3", NOW)

    groups.put([SubscriptionGroupConfig("g3")], NOW)
    assert groups.ensure("g3", NOW).group_name == "g3"


def test_an_administrator_changes_a_group(groups: GroupTable) -> None:
    groups.ensure("g", NOW)
    wanted = SubscriptionGroupConfig("g", consume_enable=False, retry_max_times=5, retry_queue_nums=2)

    groups.put([wanted], NOW + 1)
    version = groups.version
    groups.put([wanted], NOW + 2)

    assert groups.get("g") == wanted
    assert groups.version == version == DataVersion(2, 0, NOW + 1)


def test_several_groups_are_all_created_or_none(groups: GroupTable) -> None:
    with pytest.raises(ImpossibleRequest):
        groups.put([SubscriptionGroupConfig("g"), SubscriptionGroupConfig("h", attributes={"+a": "b"})], NOW)

    assert "g" not in groups


@pytest.mark.parametrize(("queues", "taken"), [(-1, True), (0, True), (MAX_QUEUES, True), (MAX_QUEUES + 1, False)])
def test_retry_queues_are_limited(groups: GroupTable, queues: int, taken: bool) -> None:
    config = SubscriptionGroupConfig("g", retry_queue_nums=queues)

    if taken:
        groups.put([config], NOW)
    else:
        with pytest.raises(InvalidParameter):
            groups.put([config], NOW)

    assert ("g" in groups) is taken


def test_deleting_a_group_deletes_its_forbidden_topics(groups: GroupTable) -> None:
    groups.ensure("g", NOW)
    groups.set_readable("g", "T", False, NOW)
    version = groups.version

    assert groups.delete("g", NOW)
    assert "g" not in groups
    assert groups.may_read("g", "T")
    assert groups.version != version

    version = groups.version
    assert not groups.delete("g", NOW)
    assert groups.version == version


def test_reading_is_forbidden_topic_by_topic(groups: GroupTable) -> None:
    groups.set_readable("g", "T", False, NOW)
    groups.set_readable("g", "U", False, NOW)
    groups.set_readable("g", "T", True, NOW)

    assert groups.may_read("g", "T")
    assert not groups.may_read("g", "U")
    assert groups.may_read("h", "U")
    assert groups.snapshot().forbidden_table == {"g": {"U": 4}}
    assert groups.version.counter == 3

    groups.set_readable("g", "U", True, NOW)
    assert groups.snapshot().forbidden_table == {}


def test_repeated_forbids_and_allows_change_nothing(groups: GroupTable) -> None:
    groups.set_readable("g", "T", True, NOW)
    assert groups.version.counter == 0

    groups.set_readable("g", "T", False, NOW)
    groups.set_readable("g", "T", False, NOW)
    assert groups.version.counter == 1


def test_other_bits_of_the_forbidden_table_are_kept(groups: GroupTable) -> None:
    groups.restore(bodies.GroupTable(forbidden_table={"g": {"T": 2}, "h": {}}))

    assert groups.may_read("g", "T")
    groups.set_readable("g", "T", False, NOW)
    groups.set_readable("g", "T", True, NOW)
    assert groups.snapshot().forbidden_table == {"g": {"T": 2}}


@pytest.mark.parametrize(("group", "topic"), [("bad*group", "T"), ("g", "bad*topic"), ("", "T")])
def test_forbidden_topics_need_valid_names(groups: GroupTable, group: str, topic: str) -> None:
    with pytest.raises(InvalidName):
        groups.set_readable(group, topic, False, NOW)


def test_the_number_of_forbidden_pairs_is_limited() -> None:
    groups = GroupTable(max_forbidden=3)

    for topic in ("A", "B", "C"):
        groups.set_readable("g", topic, False, NOW)
    with pytest.raises(InvalidParameter, match="the limit is 3 pairs"):
        groups.set_readable("h", "D", False, NOW)

    groups.set_readable("g", "A", True, NOW)
    groups.set_readable("h", "D", False, NOW)
    assert not groups.may_read("h", "D")


# keeping


def test_a_restored_table_continues_with_the_saved_rows(groups: GroupTable) -> None:
    groups.ensure("g", NOW)
    groups.set_readable("g", "T", False, NOW)
    again = GroupTable()

    again.restore(groups.snapshot())

    assert again.snapshot() == groups.snapshot()
    again.set_readable("g", "U", False, NOW)
    assert groups.may_read("g", "U")


@needs_golden
@pytest.mark.parametrize("kind", ["clean", "live"])
def test_the_table_of_an_apache_broker_is_saved_unchanged(kind: str) -> None:
    data = (GOLDEN / "store" / "5.3.3" / kind / "config" / "subscriptionGroup.json").read_bytes()
    groups = GroupTable()

    groups.restore(bodies.GroupTable.decode(data))

    assert read_json(write_pretty_json(groups.snapshot())) == read_json(data)


@needs_golden
@pytest.mark.parametrize("kind", ["clean", "live"])
def test_the_table_of_an_older_broker_gets_the_new_fields(kind: str) -> None:
    data = (GOLDEN / "store" / "4.9.7" / kind / "config" / "subscriptionGroup.json").read_bytes()
    groups = GroupTable()

    groups.restore(bodies.GroupTable.decode(data))

    saved = read_json(write_pretty_json(groups.snapshot()))["subscriptionGroupTable"]
    was = read_json(data)["subscriptionGroupTable"]
    new = {
        "attributes": {},
        "consumeMessageOrderly": False,
        "consumeTimeoutMinute": 15,
        "groupRetryPolicy": {"type": "CUSTOMIZED"},
        "groupSysFlag": 0,
    }
    assert {name: saved[name] for name in was} == {name: new | row for name, row in was.items()}
    assert saved.keys() - was.keys() == {"CID_RMQ_SYS_TRANS"}


@needs_golden
def test_mqadmin_creates_what_it_reports() -> None:
    groups = GroupTable()
    asked: list[SubscriptionGroupConfig] = []
    for frame in captured("mqadmin/5.3.3/wire/*-updateSubGroup*.jsonl"):
        command = frame.command
        if frame.answers is None and command.code == RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP:
            asked.append(SubscriptionGroupConfig.decode(command.body))
        elif frame.answers is None and command.code == RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST:
            asked += GroupConfigList.decode(command.body).group_config_list

    groups.put(asked, NOW)

    assert [config.group_name for config in asked] == [
        "AdminGroup",
        "AdminGroup2",
        "AdminListGroup1",
        "AdminListGroup2",
    ]
    assert list(groups)[len(BUILT_IN_GROUPS) :] == asked
