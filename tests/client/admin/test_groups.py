"""Consumer groups: list, describe, create, alter, delete."""

import asyncio

import pytest
from tests.client.admin.admins import admin_of
from tests.client.real_cluster import Basket, real_cluster, until

from pocketmq.errors import ConsumerNotOnline, GroupNotFound, ImpossibleRequest, NetworkError, UsageError
from pocketmq.model.queue import MessageQueue
from pocketmq.net.address import Address
from pocketmq.protocol.bodies.clients import ConsumeType, MessageModel
from pocketmq.testing import run


def test_a_group_is_created_altered_and_described() -> None:
    async def main() -> None:
        async with real_cluster("broker-a", "broker-b") as c, admin_of(c) as admin:
            await admin.groups.create("billing", max_reconsume_times=3)
            await admin.groups.alter("billing", retry_queues=2)

            state = await admin.groups.describe("billing")

            assert await admin.groups.names() == ["billing"]
            assert "TOOLS_CONSUMER" in await admin.groups.names(everything=True)
            assert {(config.retry_max_times, config.retry_queue_nums) for config in state.configs.values()} == {(3, 2)}
            assert sorted(state.configs) == ["broker-a", "broker-b"]
            assert (state.members, state.consume_type, state.is_online) == ((), None, False)

    run(main())


def test_creating_an_existing_group_and_altering_a_missing_one_are_refused() -> None:
    async def main() -> None:
        async with real_cluster() as c, admin_of(c) as admin:
            await admin.groups.create("billing")

            with pytest.raises(ImpossibleRequest, match="'billing' is on broker broker-a already"):
                await admin.groups.create("billing")
            for work in (admin.groups.alter("other"), admin.groups.describe("other"), admin.groups.delete("other")):
                with pytest.raises(GroupNotFound):
                    await work
            with pytest.raises(UsageError, match="max_reconsume_times"):
                await admin.groups.alter("billing", max_reconsume_times=-2)

    run(main())


def test_members_and_the_owners_of_queues_are_listed() -> None:
    async def main() -> None:
        async with real_cluster() as c, admin_of(c) as admin:
            consumers = [c.push_consumer(host=host) for host in ("10.0.2.1", "10.0.2.2")]
            for consumer in consumers:
                consumer.on("T")(Basket())
                await consumer.start()
            async with asyncio.timeout(60):
                while [len(await consumer.queues()) for consumer in consumers] != [2 + 1, 2]:  # noqa: ASYNC110 one more: the retry queue
                    await asyncio.sleep(1)

            state = await admin.groups.describe("G")
            owners = await admin.groups.owners("G")

            ids = [consumer.client_id for consumer in consumers]
            assert [member.client_id for member in state.members] == sorted(ids)
            assert {member.brokers for member in state.members} == {("broker-a",)}
            assert (state.consume_type, state.message_model) == (ConsumeType.CONSUME_PASSIVELY, MessageModel.CLUSTERING)
            assert sorted(state.subscriptions) == ["%RETRY%G", "T"]
            assert owners.silent == {}
            assert {queue: owner for queue, owner in owners.queues.items() if queue.topic == "T"} == {
                MessageQueue("T", "broker-a", number): (ids[number // 2],) for number in range(4)
            }
            for consumer in consumers:
                await consumer.stop()

    run(main())


def test_members_of_many_groups_need_one_request_for_each() -> None:
    async def main() -> None:
        async with real_cluster("broker-a", "broker-b") as c, admin_of(c) as admin:
            await admin.groups.create("empty")
            consumer = c.push_consumer()
            consumer.on("T")(Basket())
            await consumer.start()
            await until(lambda: bool(c.members("G", "broker-a") and c.members("G", "broker-b")))

            found = await admin.groups.members_of_many(["G", "empty", "nobody"])

            assert [(one.client_id, one.brokers) for one in found["G"]] == [
                (consumer.client_id, ("broker-a", "broker-b"))
            ]
            assert found == {"G": await admin.groups.members("G"), "empty": [], "nobody": []}
            await consumer.stop()

    run(main())


def test_members_of_many_groups_fail_if_a_broker_does_not_answer() -> None:
    async def main() -> None:
        async with real_cluster("broker-a", "broker-b") as c, admin_of(c) as admin:
            c.network.refuse(Address(c.place("broker-b"), 10911))

            with pytest.raises(NetworkError):
                await admin.groups.members_of_many(["G"])

    run(main())


def test_a_member_that_does_not_answer_is_reported_as_silent() -> None:
    async def main() -> None:
        async with real_cluster() as c, admin_of(c) as admin:
            consumer = c.push_consumer()
            consumer.on("T")(Basket())
            async with consumer:
                c.network.partition("10.0.2.1", c.place("broker-a"))

                owners = await admin.groups.owners("G")

                assert owners.queues == {}
                assert "ConsumeTimedOut" in owners.silent[consumer.client_id]
                c.network.heal()

    run(main())


def test_running_info_comes_from_the_member_itself() -> None:
    async def main() -> None:
        async with real_cluster() as c, admin_of(c) as admin:
            consumer = c.push_consumer()
            consumer.on("T")(Basket())
            async with consumer:
                info = await admin.groups.running_info("G", consumer.client_id, stacks=True)

                assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
                assert info.jstack
                with pytest.raises(ConsumerNotOnline, match="'nobody'"):
                    await admin.groups.running_info("G", "nobody")

    run(main())


def test_only_a_group_without_members_is_deleted_with_its_topics() -> None:
    async def main() -> None:
        async with real_cluster() as c, admin_of(c) as admin:
            consumer = c.push_consumer()
            consumer.on("T")(Basket())
            async with consumer:
                with pytest.raises(ImpossibleRequest, match="has 1 members"):
                    await admin.groups.delete("G")
            await until(lambda: not c.members("G"))

            await admin.groups.delete("G")

            assert await admin.groups.names() == []
            assert "%RETRY%G" not in await admin.topics.names(everything=True)
            assert c.committed("G", "T", 0) is None

    run(main())


def test_a_system_group_is_not_deleted() -> None:
    async def main() -> None:
        async with real_cluster() as c, admin_of(c) as admin:
            with pytest.raises(ImpossibleRequest, match="is a system group"):
                await admin.groups.delete("TOOLS_CONSUMER")

    run(main())


def test_the_configurations_of_all_groups_are_listed() -> None:
    async def main() -> None:
        async with real_cluster() as c, admin_of(c) as admin:
            await admin.groups.create("G", max_reconsume_times=3)

            configs = await admin.groups.configs()

            assert configs["G"]["broker-a"].retry_max_times == 3

    run(main())
