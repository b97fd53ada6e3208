"""State, statistics and settings of brokers."""

import asyncio

import pytest
from tests.client.admin.admins import admin_of
from tests.client.real_cluster import Basket, real_cluster, until

from pocketmq.client.admin.cluster import COUNTED, read_state
from pocketmq.client.admin.targets import BrokerAddress
from pocketmq.errors import NetworkError, NoPermission, UsageError
from pocketmq.net.address import Address
from pocketmq.testing import run


def test_every_broker_reports_its_state() -> None:
    async def main() -> None:
        async with real_cluster("broker-a", "broker-b") as c, admin_of(c) as admin:
            await c.send("T", b"1", b"2")

            states = await admin.cluster.describe()

            assert [state.broker.name for state in states] == ["broker-a", "broker-b"]
            assert all(state.version == "V5_3_3" and not state.problem for state in states)
            assert sum(state.put_today or 0 for state in states) == 2
            assert await admin.cluster.clusters() == {"DefaultCluster": ["broker-a", "broker-b"]}

    run(main())


def test_brokers_count_changes_of_topics_groups_and_members() -> None:
    async def main() -> None:
        async with real_cluster() as c, admin_of(c) as admin:

            async def changes(what: str) -> int:
                [state] = await admin.cluster.describe()
                return state.changes[what]

            members, topics, groups = [await changes(what) for what in COUNTED]
            await admin.topics.create("new")
            assert await changes("topic") > topics
            await admin.groups.create("new")
            assert await changes("group") > groups
            consumer = c.push_consumer()
            consumer.on("T")(Basket())
            await consumer.start()
            await until(lambda: bool(c.members("G")))
            joined = await changes("member")
            assert joined > members
            await asyncio.sleep(60)
            assert await changes("member") == joined, "heartbeats say nothing new"
            await consumer.stop()
            await until(lambda: not c.members("G"))
            assert await changes("member") > joined

    run(main())


def test_the_field_names_of_a_4_9_broker_are_understood() -> None:
    place = BrokerAddress("broker-a", "DefaultCluster", 0, Address("10.0.1.1", 10911))

    old = read_state(place, {"putTps": "3.5 0.0 0.0", "getTransferedTps": "7.0 0.0 0.0"})
    new = read_state(place, {"putTps": "3.5 0.0 0.0", "getTransferredTps": "8.0 0.0 0.0", "getTransferedTps": "7.0"})

    assert (old.put_per_s, old.got_per_s) == (3.5, 7.0)
    assert new.got_per_s == 8.0
    assert old.changes == {}


def test_an_unreachable_broker_has_a_problem_and_the_others_have_a_state() -> None:
    async def main() -> None:
        async with real_cluster("broker-a", "broker-b") as c, admin_of(c) as admin:
            c.network.refuse(Address(c.place("broker-b"), 10911))

            well, ill = await admin.cluster.describe()

            assert (well.problem, well.version) == ("", "V5_3_3")
            assert ill.broker.name == "broker-b"
            assert ill.problem
            assert ill.put_today is None

    run(main())


def test_settings_are_read_and_changed_at_run_time() -> None:
    async def main() -> None:
        async with real_cluster() as c, admin_of(c) as admin:
            await admin.cluster.change_settings(
                "broker-a", {"transactionCheckMax": 7, "useServerSideResetOffset": False}
            )

            settings = await admin.cluster.settings("broker-a")

            assert settings["transactionCheckMax"] == "7"
            assert settings["useServerSideResetOffset"] == "false"
            with pytest.raises(NoPermission):
                await admin.cluster.change_settings("broker-a", {"storePathRootDir": "/elsewhere"})

    run(main())


def test_an_unknown_broker_is_refused_with_the_known_ones() -> None:
    async def main() -> None:
        async with real_cluster() as c, admin_of(c) as admin:
            with pytest.raises(UsageError, match="'nobody'; there are: broker-a"):
                await admin.cluster.settings("nobody")
            with pytest.raises(UsageError, match="no cluster 'other'; the name servers list: DefaultCluster"):
                await admin.cluster.brokers("other")

    run(main())


def test_a_missing_statistic_is_none() -> None:
    async def main() -> None:
        async with real_cluster() as c, admin_of(c) as admin:
            await c.send("T", b"1")

            assert await admin.cluster.statistic("broker-a", "TOPIC_PUT_NUMS", "T") is not None
            assert await admin.cluster.statistic("broker-a", "TOPIC_PUT_NUMS", "nothing") is None

    run(main())


def test_producers_of_a_group_are_found_at_any_broker() -> None:
    async def main() -> None:
        async with real_cluster("broker-a", "broker-b") as c, admin_of(c) as admin:
            async with c.producer(group="shop") as producer:
                await producer.send("T", b"1")

                [client] = await admin.cluster.producers("shop")

                assert client.client_id == producer.client_id
            assert await admin.cluster.producers("shop") == []

    run(main())


def test_producers_avoid_a_broker_whose_writes_are_stopped() -> None:
    async def main() -> None:
        async with real_cluster("broker-a", "broker-b") as c, admin_of(c) as admin:
            assert await admin.cluster.stop_writes("broker-a") > 0

            async with c.producer() as producer:
                assert {queue.broker_name for queue in await producer.queues("T")} == {"broker-b"}
            assert await admin.cluster.allow_writes("broker-a") > 0
            async with c.producer() as producer:
                assert {queue.broker_name for queue in await producer.queues("T")} == {"broker-a", "broker-b"}

    run(main())


def test_a_clean_up_keeps_all_messages() -> None:
    async def main() -> None:
        async with real_cluster() as c, admin_of(c) as admin:
            await c.send("T", b"1")

            await admin.cluster.clean_up("broker-a")

            assert (await admin.topics.describe("T")).messages == 1

    run(main())


def test_a_cluster_without_brokers_is_reported() -> None:
    async def main() -> None:
        async with real_cluster() as c, admin_of(c) as admin:
            await c.broker.stop()

            assert await admin.cluster.brokers() == []
            with pytest.raises(NetworkError, match="no broker is registered"):
                await admin.groups.names()

    run(main())


def test_all_producers_are_listed_by_group() -> None:
    async def main() -> None:
        async with real_cluster() as c, admin_of(c) as admin:
            await c.send("T", b"1")

            found = await admin.cluster.all_producers()

            assert any(one.client_id for clients in found.values() for one in clients)

    run(main())
