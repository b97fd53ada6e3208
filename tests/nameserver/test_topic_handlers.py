"""Requests about topics over a connection: routes in both kinds of JSON, lists, topics by hand."""

import asyncio

import pytest
from tests.nameserver.talk import CLUSTER, MASTER, SLAVE, ask, done, register_command, route, started

from pocketmq.codes import HeaderEncoding, RequestCode, ResponseCode, TopicFlag, Version
from pocketmq.nameserver.settings import NameServerSettings
from pocketmq.net.peer import Peer
from pocketmq.protocol.api.administration import (
    DeleteTopicRoute,
    ForBroker,
    ForTopic,
    GetRoute,
    GetTopicsByCluster,
    PutKvConfig,
)
from pocketmq.protocol.bodies.topics import QueueData, TopicConfig, TopicList, TopicRouteData
from pocketmq.protocol.command import Command
from pocketmq.testing import FakeClock, run


async def topic_list(peer: Peer, code: RequestCode, cluster: str | None = None) -> set[str]:
    answer = await ask(peer, code, None if cluster is None else GetTopicsByCluster(cluster))
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return set(TopicList.decode(answer.body).topic_list)


@pytest.mark.parametrize(
    ("version", "standard", "is_strict"),
    [
        (0, None, False),
        (Version.V4_9_3, None, False),
        (Version.V4_9_4 - 1, False, False),
        (Version.V4_9_4, None, True),
        (Version.V5_3_3, False, True),
        (0, True, True),
    ],
)
@pytest.mark.parametrize("encoding", HeaderEncoding)
def test_a_route_has_the_json_that_the_client_reads(
    version: int, standard: bool | None, is_strict: bool, encoding: HeaderEncoding
) -> None:
    async def main() -> None:
        async with started() as (_, peer):
            await done(peer, register_command(TopicConfig("A", 4, 8), "B"))
            header = GetRoute("A", standard).encode()

            answer = await done(
                peer, Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, header, version=version, encoding=encoding)
            )

            assert answer.encoding is encoding
            assert answer.body == (
                b'{"brokerDatas":[{"brokerAddrs":{%b:"%b"},"brokerName":"broker-a","cluster":"%b",'
                b'"enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a","perm":6,'
                b'"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":8}]}'
                % (b'"0"' if is_strict else b"0", MASTER.encode(), CLUSTER.encode())
            )

    run(main())


def test_a_topic_without_a_route_is_reported_in_rocketmqs_words() -> None:
    async def main() -> None:
        async with started() as (_, peer):
            answer = await ask(peer, RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRoute("None"))

            assert answer.code == ResponseCode.TOPIC_NOT_EXIST
            assert answer.remark == (
                "No topic route info in name server for the topic: None\n"
                "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
            )
            assert answer.body == b""

    run(main())


@pytest.mark.parametrize(("enabled", "order"), [(True, "broker-a:4"), (False, None)])
def test_a_route_contains_the_order_config_if_the_switch_is_on(enabled: bool, order: str | None) -> None:
    async def main() -> None:
        async with started(NameServerSettings(order_message_enable=enabled)) as (_, peer):
            await done(peer, register_command("A", "B"))
            await ask(peer, RequestCode.PUT_KV_CONFIG, PutKvConfig("ORDER_TOPIC_CONFIG", "A", "broker-a:4"))

            with_order, without = await route(peer, "A"), await route(peer, "B")

            assert with_order is not None
            assert without is not None
            assert with_order.order_topic_conf == order
            assert without.order_topic_conf is None

    run(main())


@pytest.mark.parametrize(("supported", "wanted"), [(True, {0: SLAVE}), (False, {1: SLAVE})])
def test_a_slave_acts_for_its_master_if_the_switch_is_on(supported: bool, wanted: dict[int, str]) -> None:
    async def main() -> None:
        async with started(NameServerSettings(support_acting_master=supported)) as (_, peer):
            await done(peer, register_command("A", "B", acting=True))
            await done(peer, register_command(number=1, address=SLAVE, acting=True))
            await ask(peer, RequestCode.UNREGISTER_BROKER, ForBroker("broker-a", MASTER, CLUSTER, 0))

            found = await route(peer, "A")

            assert found is not None
            assert found.broker_datas[0].broker_addrs == wanted

    run(main())


@pytest.mark.parametrize(
    ("zone", "names"),
    [
        ({}, {"broker-a", "broker-b"}),
        ({"__ZONE_NAME": "north"}, {"broker-a", "broker-b"}),
        ({"__ZONE_NAME": "north", "__ZONE_MODE": "false"}, {"broker-a", "broker-b"}),
        ({"__ZONE_NAME": "", "__ZONE_MODE": "true"}, {"broker-a", "broker-b"}),
        ({"__ZONE_NAME": "north", "__ZONE_MODE": "TRUE"}, {"broker-a"}),
    ],
)
def test_a_client_may_request_its_zone_only(zone: dict[str, str], names: set[str]) -> None:
    async def main() -> None:
        async with started() as (_, peer):
            for name, place in (("broker-a", "north"), ("broker-b", "south")):
                told = register_command("A", "B", name=name, address=f"{name}:1")
                told.ext = {**(told.ext or {}), "__ZONE_NAME": place}
                await done(peer, told)

            answer = await done(peer, Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "A", **zone}))

            found = TopicRouteData.decode(answer.body)
            assert {data.broker_name for data in found.broker_datas} == names

    run(main())


@pytest.mark.parametrize(("wait", "after_s", "code"), [(True, 44, 1), (True, 46, 0), (False, 1, 0)])
def test_routes_wait_for_brokers_to_register_if_the_switch_is_on(wait: bool, after_s: float, code: int) -> None:
    async def main() -> None:
        settings = NameServerSettings(need_wait_for_service=wait)
        async with started(settings, clock=FakeClock(asyncio.get_running_loop())) as (_, peer):
            await done(peer, register_command("A", "B"))
            await asyncio.sleep(after_s)

            answer = await ask(peer, RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRoute("A"))

            assert answer.code == code
            assert answer.remark == ("name server not ready" if code else None)

    run(main())


def test_topics_are_listed_by_everything_cluster_unit_and_system() -> None:
    async def main() -> None:
        async with started() as (_, peer):
            flags = {"Plain": 0, "Unit": TopicFlag.UNIT, "Sub": TopicFlag.UNIT_SUB, "Both": 3}
            await done(
                peer, register_command(*[TopicConfig(name, topic_sys_flag=flag) for name, flag in flags.items()])
            )

            assert await topic_list(peer, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER) == set(flags)
            assert await topic_list(peer, RequestCode.GET_TOPICS_BY_CLUSTER, CLUSTER) == set(flags)
            assert await topic_list(peer, RequestCode.GET_TOPICS_BY_CLUSTER, "None") == set()
            assert await topic_list(peer, RequestCode.GET_UNIT_TOPIC_LIST) == {"Unit", "Both"}
            assert await topic_list(peer, RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST) == {"Sub", "Both"}
            assert await topic_list(peer, RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST) == {"Sub"}
            assert await topic_list(peer, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS) == {CLUSTER, "broker-a"}

    run(main())


@pytest.mark.parametrize(
    ("settings", "refused"),
    [
        (NameServerSettings(enable_all_topic_list=False), [206]),
        (NameServerSettings(enable_topic_list=False), [224, 311, 312, 313]),
    ],
)
def test_lists_can_be_switched_off(settings: NameServerSettings, refused: list[int]) -> None:
    async def main() -> None:
        async with started(settings) as (_, peer):
            for code in (206, 224, 304, 311, 312, 313):
                answer = await peer.call(Command(code, {"cluster": CLUSTER}))

                assert (answer.code, answer.remark) == ((1, "disable") if code in refused else (0, None))

    run(main())


def test_a_topic_is_registered_by_hand_and_deleted() -> None:
    async def main() -> None:
        async with started() as (_, peer):
            await done(peer, register_command("A", "B"))
            body = TopicRouteData((QueueData("broker-a", 2, 2, 6),)).encode()

            await ask(peer, RequestCode.REGISTER_TOPIC_IN_NAMESRV, ForTopic("New"), body)
            added = await route(peer, "New")
            await ask(peer, RequestCode.DELETE_TOPIC_IN_NAMESRV, DeleteTopicRoute("New", "Other"))
            kept = await route(peer, "New")
            deleted = await ask(peer, RequestCode.DELETE_TOPIC_IN_NAMESRV, DeleteTopicRoute("New", CLUSTER))

            assert added is not None
            assert kept == added
            assert deleted.code == ResponseCode.SUCCESS
            assert await route(peer, "New") is None
            again = await ask(peer, RequestCode.DELETE_TOPIC_IN_NAMESRV, DeleteTopicRoute("New"))
            assert again.code == ResponseCode.SUCCESS

    run(main())


@pytest.mark.parametrize("body", [b"", b"{}", TopicRouteData((QueueData("nobody", 2, 2, 6),)).encode()])
def test_a_topic_added_by_hand_on_unknown_brokers_changes_nothing(
    body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with started() as (_, peer):
            await done(peer, register_command("A", "B"))

            answer = await ask(peer, RequestCode.REGISTER_TOPIC_IN_NAMESRV, ForTopic("New"), body)

            assert answer.code == ResponseCode.SUCCESS
            assert await route(peer, "New") is None

    run(main())
    assert ("broker 'nobody' is unknown" in caplog.text) == (b"nobody" in body)
