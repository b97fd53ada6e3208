"""The servers of an operation, and concurrent requests to them."""

import asyncio

import pytest
from tests.client.admin.admins import HOST, admin_of
from tests.client.kit import NAME_SERVER, cluster
from tests.client.real_cluster import real_cluster

from pocketmq.client.admin.admin import AsyncAdmin
from pocketmq.client.admin.targets import AdminSettings, Targets
from pocketmq.client.cluster.instance import Instance
from pocketmq.codes import RequestCode
from pocketmq.errors import NetworkError, TopicNotFound
from pocketmq.model.names import parse_topic
from pocketmq.protocol.bodies.topics import BrokerData, ClusterInfo
from pocketmq.testing import run


def test_concurrent_requests_are_limited() -> None:
    async def main() -> None:
        async with real_cluster() as c:
            settings = AdminSettings(name_servers="10.0.0.1:9876", client_ip=HOST, max_calls_at_once=3)
            instance = Instance.join(settings, c.dependencies(HOST))
            under_way = most = 0

            async def ask(number: int) -> int:
                nonlocal under_way, most
                under_way += 1
                most = max(most, under_way)
                await asyncio.sleep(1)
                under_way -= 1
                return number

            assert await Targets(instance, settings).gather(range(10), ask) == list(range(10))
            assert most == 3
            await instance.leave()

    run(main())


def test_the_list_of_brokers_is_requested_each_time_unless_it_may_be_reused() -> None:
    async def asked(seconds: float, brokers_good_ms: int = 0) -> int:
        """The number of requests to a name server by a client that lists brokers every half second."""
        async with cluster() as c:
            info = ClusterInfo({"broker-a": BrokerData("DefaultCluster", "broker-a", {0: str(c.broker.address)})}, {})
            c.name_server.answers[RequestCode.GET_BROKER_CLUSTER_INFO] = lambda ask: ask.reply(body=info.encode())
            made = AsyncAdmin(NAME_SERVER, dependencies=c.dependencies, client_ip=HOST, brokers_good_ms=brokers_good_ms)
            async with made as admin:
                for _ in range(int(seconds * 2)):
                    assert [place.name for place in await admin.cluster.brokers()] == ["broker-a"]
                    await asyncio.sleep(0.5)
            return len(c.name_server.requests(RequestCode.GET_BROKER_CLUSTER_INFO))

    async def main() -> None:
        assert await asked(5) == 10
        assert await asked(5, 1_000) == 5

    run(main())


def test_an_error_names_its_broker() -> None:
    async def main() -> None:
        async with real_cluster("broker-a", "broker-b", topics=()) as c, admin_of(c) as admin:
            c.add_topic("T", brokers=["broker-a"])
            parts = c.brokers["broker-a"].parts
            await admin.topics.describe("T")
            parts.state.topics.delete("T", c.clock.now_ms())

            with pytest.raises(TopicNotFound) as caught:
                await admin.topics.describe("T")

            assert "broker broker-a at 10.0.1.1:10911 failed" in caught.value.__notes__

    run(main())


def test_waiting_for_the_route_of_a_new_topic_times_out() -> None:
    async def main() -> None:
        async with cluster(topics=()) as c:
            place = BrokerData("DefaultCluster", "broker-a", {0: str(c.broker.address)})
            info = ClusterInfo({"broker-a": place}, {"DefaultCluster": ("broker-a",)})
            c.name_server.answers[RequestCode.GET_BROKER_CLUSTER_INFO] = lambda ask: ask.reply(body=info.encode())
            c.broker.answers[RequestCode.UPDATE_AND_CREATE_TOPIC] = lambda ask: ask.reply()

            async with AsyncAdmin(NAME_SERVER, dependencies=c.dependencies, client_ip=HOST) as admin:
                with pytest.raises(NetworkError, match="do not have its route yet"):
                    await admin.topics.create("orders")

    run(main())


def test_a_change_goes_to_every_name_server() -> None:
    async def main() -> None:
        async with cluster(topics=()) as c:
            second = type(c.name_server)(c.network, "10.0.0.8:9876")
            await second.start()
            for server in (c.name_server, second):
                server.answers[RequestCode.PUT_KV_CONFIG] = lambda ask: ask.reply()

            async with AsyncAdmin([NAME_SERVER, "10.0.0.8:9876"], dependencies=c.dependencies, client_ip=HOST) as admin:
                await admin.name_servers.put("app", "colour", "blue")

            assert len(c.name_server.requests(RequestCode.PUT_KV_CONFIG)) == 1
            assert len(second.requests(RequestCode.PUT_KV_CONFIG)) == 1

    run(main())


def test_the_namespace_is_added_to_names_and_removed() -> None:
    async def main() -> None:
        async with real_cluster() as c:
            settings = AdminSettings(name_servers="10.0.0.1:9876", client_ip=HOST, namespace="dev")
            instance = Instance.join(settings, c.dependencies(HOST))
            targets = Targets(instance, settings)

            assert (targets.topic("T"), targets.group("G")) == ("dev%T", "dev%G")
            assert targets.shown("%RETRY%dev%G") == "%RETRY%G"
            assert [targets.is_ours(name) for name in ("dev%T", "%DLQ%dev%G", "T", "other%T")] == [
                True,
                True,
                False,
                False,
            ]
            assert targets.topic("SCHEDULE_TOPIC_XXXX") == parse_topic("SCHEDULE_TOPIC_XXXX")
            await instance.leave()

    run(main())
