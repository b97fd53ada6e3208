"""Requests of administrators about groups: an acknowledged change is done and on the disk; the answers are Apache's."""

import errno

import pytest
from tests.broker.handlers.administrated import ADDRESS, Administrated, conversations, json_of
from tests.golden import needs_golden

from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.model.subscription import Subscription
from pocketmq.protocol.api.administration import (
    DeleteGroup,
    ForGroup,
    GetAllGroups,
    QuerySubscriptionByConsumer,
    UpdateGroupForbidden,
)
from pocketmq.protocol.bodies import clients as bodies
from pocketmq.protocol.bodies.clients import GroupConfigList, GroupForbidden, GroupSubscription, SubscriptionGroupConfig
from pocketmq.protocol.bodies.topics import TopicList
from pocketmq.testing import run

CREATE = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
LIST = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
DELETE = RequestCode.DELETE_SUBSCRIPTIONGROUP
FORBID = RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN
VERSIONS = pytest.mark.parametrize("version", ["5.3.3", "4.9.7"])


# changing


def test_a_group_that_was_acknowledged_survives_a_power_loss() -> None:
    async def main() -> None:
        broker = Administrated()
        config = SubscriptionGroupConfig("g", consume_enable=False, retry_queue_nums=2, retry_max_times=3)

        await broker.done(CREATE, body=config.encode())

        assert broker.groups.get("g") == config
        assert broker.after_crash().groups.get("g") == config

    run(main())


def test_a_disk_error_is_reported_and_the_group_is_kept_and_saved_later() -> None:
    async def main() -> None:
        broker = Administrated()
        with broker.disk.fail("write", errno.EIO, "*subscriptionGroup.json*"):
            answer = await broker.ask(CREATE, body=SubscriptionGroupConfig("g").encode())

        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "subscriptionGroup.json cannot be saved" in (answer.remark or "")
        assert "g" in broker.groups
        await broker.snapshots.save_changed()
        assert "g" in broker.after_crash().groups

    run(main())


def test_a_list_of_groups_is_created_completely_or_not_at_all() -> None:
    async def main() -> None:
        broker = Administrated()
        good, bad = SubscriptionGroupConfig("g"), SubscriptionGroupConfig("h h")

        refused = await broker.ask(LIST, body=GroupConfigList((good, bad)).encode())
        assert refused.code == ResponseCode.INVALID_PARAMETER
        assert "g" not in broker.groups

        await broker.done(LIST, body=GroupConfigList((good, SubscriptionGroupConfig("h"))).encode())
        assert {"g", "h"} <= {row.group_name for row in broker.after_crash().groups}

    run(main())


@pytest.mark.parametrize(
    ("body", "code", "remark"),
    [
        (SubscriptionGroupConfig("").encode(), 29, "empty"),
        (SubscriptionGroupConfig("g g").encode(), 29, "contains ' '"),
        (SubscriptionGroupConfig("g" * 121).encode(), 29, "121 characters"),
        (SubscriptionGroupConfig("g", retry_queue_nums=70_000).encode(), 29, "70000 retry queues"),
        (SubscriptionGroupConfig("g", attributes={"+colour": "red"}).encode(), 1, "'colour' is not supported"),
        (b"{}", 1, "groupName"),
        (b"", 1, "the body is missing"),
        (b"{]", 1, "SubscriptionGroupConfig"),
    ],
)
def test_an_invalid_group_is_refused_and_changes_nothing(body: bytes, code: int, remark: str) -> None:
    async def main() -> None:
        broker = Administrated()
        before = broker.groups.snapshot()

        answer = await broker.ask(CREATE, body=body)

        assert answer.code == code
        assert remark in (answer.remark or "")
        assert broker.groups.snapshot() == before

    run(main())


@pytest.mark.parametrize(
    ("header", "offsets_left"),
    [
        (DeleteGroup("g"), True),
        (DeleteGroup("g", clean_offset=False), True),
        (DeleteGroup("g", clean_offset=True), False),
        (DeleteGroup("g", remove_offset=True), False),
    ],
)
def test_a_group_is_deleted_with_or_without_its_offsets(header: DeleteGroup, offsets_left: bool) -> None:
    async def main() -> None:
        broker = Administrated()
        await broker.done(CREATE, body=SubscriptionGroupConfig("g").encode())
        await broker.done(FORBID, UpdateGroupForbidden("g", "T", False))
        broker.offsets.commit("g", "T", 0, 5)
        await broker.snapshots.save_changed()

        await broker.done(DELETE, header)

        for one in (broker, broker.after_crash()):
            assert "g" not in one.groups
            assert one.groups.may_read("g", "T")
            assert bool(one.offsets.topics_of("g")) is offsets_left

    run(main())


def test_deleting_a_missing_group_still_deletes_its_offsets() -> None:
    async def main() -> None:
        broker = Administrated()
        broker.offsets.commit("gone", "T", 0, 5)

        await broker.done(DELETE, DeleteGroup("gone", clean_offset=True))

        assert broker.offsets.topics_of("gone") == []
        assert (await broker.ask(DELETE, DeleteGroup("g/g"))).code == ResponseCode.INVALID_PARAMETER

    run(main())


def test_a_group_of_an_older_broker_with_a_too_long_name_can_be_deleted() -> None:
    async def main() -> None:
        broker, name = Administrated(), "g" * 200
        broker.groups.restore(bodies.GroupTable(subscription_group_table={name: SubscriptionGroupConfig(name)}))

        await broker.done(DELETE, DeleteGroup(name))

        assert name not in broker.groups

    run(main())


def test_reading_a_topic_is_forbidden_allowed_and_queried() -> None:
    async def main() -> None:
        broker = Administrated()

        async def readable(change: bool | None = None) -> bool | None:
            answer = await broker.done(FORBID, UpdateGroupForbidden("g", "T", change))
            told = GroupForbidden.decode(answer.body)
            assert (told.group, told.topic) == ("g", "T")
            return told.readable

        assert [await readable(), await readable(False), await readable()] == [True, False, False]
        assert not broker.after_crash().groups.may_read("g", "T")
        assert [await readable(True), await readable()] == [True, True]
        assert broker.after_crash().groups.may_read("g", "T")
        assert (await broker.ask(FORBID, UpdateGroupForbidden("g g", "T", False))).code == 29

    run(main())


# looking


def test_a_query_of_a_new_group_creates_it() -> None:
    async def main() -> None:
        broker = Administrated()

        answer = await broker.done(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, ForGroup("new"))

        assert SubscriptionGroupConfig.decode(answer.body) == SubscriptionGroupConfig("new")
        assert "new" in broker.after_crash().groups
        assert (await broker.done(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, ForGroup("new"))).body == answer.body

    run(main())


def test_a_query_of_a_group_that_may_not_be_created_finds_nothing() -> None:
    async def main() -> None:
        broker = Administrated(auto_create_group=False)

        answer = await broker.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, ForGroup("new"))

        assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert "new" not in broker.groups

    run(main())


def test_all_groups_are_returned_at_once_or_in_pages() -> None:
    async def main() -> None:
        broker = Administrated()
        await broker.done(FORBID, UpdateGroupForbidden("g", "T", False))

        whole = await broker.done(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, GetAllGroups())
        assert bodies.GroupTable.decode(whole.body) == broker.groups.snapshot()
        assert whole.ext == {"totalGroupNum": "8"}

        version, names = broker.groups.version.encode().decode(), set[str]()
        for start in (0, 3, 6):
            header = GetAllGroups(start, version, 3)
            page = await broker.done(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, header)
            names |= bodies.GroupTable.decode(page.body).subscription_group_table.keys()
        assert names == {row.group_name for row in broker.groups}

    run(main())


def test_the_list_of_all_groups_is_always_current() -> None:
    async def main() -> None:
        broker = Administrated()

        async def told() -> bodies.GroupTable:
            answer = await broker.done(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, GetAllGroups())
            return bodies.GroupTable.decode(answer.body)

        before = await told()
        broker.groups.put([SubscriptionGroupConfig("new")], 1)
        assert (await told()).subscription_group_table.keys() - before.subscription_group_table.keys() == {"new"}
        await broker.done(FORBID, UpdateGroupForbidden("new", "T", False))
        assert "new" in (await told()).forbidden_table
        broker.groups.delete("new", 2)
        assert (await told()) == broker.groups.snapshot()

    run(main())


def test_topics_of_a_group_are_those_in_which_it_has_an_offset() -> None:
    async def main() -> None:
        broker = Administrated()
        broker.offsets.commit("g", "T", 0, 1)
        broker.offsets.commit("other", "U", 0, 1)

        answer = await broker.done(RequestCode.QUERY_TOPICS_BY_CONSUMER, ForGroup("g"))

        assert TopicList.decode(answer.body) == TopicList(("T",), str(ADDRESS))

    run(main())


def test_a_subscription_is_that_of_the_members_or_of_the_last_pulls() -> None:
    async def main() -> None:
        broker = Administrated()
        subscriptions = Subscription("U", sub_string="TagA", sub_version=7)
        broker.join("g", "T")
        broker.subscriptions.record("g", subscriptions, 0.0)
        broker.subscriptions.record("g", Subscription("T", sub_string="stale", sub_version=3), 0.0)

        async def told(group: str, topic: str | None) -> Subscription | None:
            header = QuerySubscriptionByConsumer(group, topic)
            answer = await broker.done(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, header)
            found = GroupSubscription.decode(answer.body)
            assert (found.group, found.topic) == (group, topic)
            return found.subscription_data

        assert await told("g", "T") == Subscription("T", sub_version=1)
        assert await told("g", "U") == subscriptions
        assert await told("g", "V") is None
        assert await told("g", None) is None
        assert await told("nobody", "T") is None

    run(main())


# as Apache's broker says it


@needs_golden
@VERSIONS
@pytest.mark.parametrize("code", [CREATE, LIST, DELETE])
def test_changes_by_mqadmin_have_the_same_result_as_with_apache(code: RequestCode, version: str) -> None:
    async def main() -> None:
        broker = Administrated()

        for asked, theirs, ours in await broker.replay(code, version):
            assert (ours.code, ours.remark, ours.body) == (theirs.code, theirs.remark, theirs.body)
            if code == CREATE:
                wanted = SubscriptionGroupConfig.decode(asked.body)
                assert broker.groups.get(wanted.group_name) == wanted

    run(main())


@needs_golden
@VERSIONS
def test_one_group_is_returned_as_by_apache(version: str) -> None:
    async def main() -> None:
        for _, theirs, ours in await Administrated().replay(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, version):
            assert (ours.code, ours.remark, ours.body) == (theirs.code, theirs.remark, theirs.body)

    run(main())


@needs_golden
@VERSIONS
def test_all_groups_are_returned_as_by_apache(version: str) -> None:
    async def main() -> None:
        for asked, theirs in conversations(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, version):
            broker = Administrated()
            table = bodies.GroupTable.decode(theirs.body)
            broker.groups.restore(table)

            ours = await broker.serve(asked)

            assert ours.code == theirs.code
            told = bodies.GroupTable.decode(ours.body)
            assert (told.data_version, told.forbidden_table) == (table.data_version, table.forbidden_table)
            assert table.subscription_group_table.items() <= told.subscription_group_table.items()
            assert json_of(theirs).keys() <= json_of(ours).keys()

    run(main())


@needs_golden
def test_topics_and_subscriptions_are_returned_as_by_apache() -> None:
    async def main() -> None:
        broker = Administrated()
        broker.offsets.commit("CG_raw", "RawTopic", 0, 1)
        for _, theirs in conversations(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, "5.3.3"):
            told = GroupSubscription.decode(theirs.body)
            assert told.subscription_data is not None
            broker.subscriptions.record("CG_raw", told.subscription_data, 0.0)

        for code in (RequestCode.QUERY_TOPICS_BY_CONSUMER, RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER):
            for _, theirs, ours in await broker.replay(code, "5.3.3"):
                assert (ours.code, ours.remark, ours.body) == (theirs.code, theirs.remark, theirs.body)

    run(main())
