"""Topics: list, describe, create, alter, delete."""

from typing import Any

import pytest
from tests.client.admin.admins import admin_of
from tests.client.real_cluster import real_cluster

from pocketmq.client.admin.targets import BrokerAddress
from pocketmq.client.admin.topics import TopicAdmin
from pocketmq.codes import Perm
from pocketmq.errors import ConnectionLost, ImpossibleRequest, InvalidName, PocketMQError, TopicNotFound, UsageError
from pocketmq.model.queue import MessageQueue
from pocketmq.testing import run


def test_a_new_topic_is_on_every_broker_and_can_be_used_at_once() -> None:
    async def main() -> None:
        async with real_cluster("broker-a", "broker-b", topics=()) as c, admin_of(c) as admin:
            await admin.topics.create("orders", queues=3, attributes={"message.type": "NORMAL"})

            state = await admin.topics.describe("orders")
            async with c.producer() as producer:
                assert len(await producer.queues("orders")) == 6
            assert sorted(state.configs) == ["broker-a", "broker-b"]
            assert all(config.attributes == {"message.type": "NORMAL"} for config in state.configs.values())
            assert state.messages == 0
            assert all(queue.last_store_ms is None for queue in state.queues)

    run(main())


def test_a_topic_can_be_created_on_some_brokers_only() -> None:
    async def main() -> None:
        async with real_cluster("broker-a", "broker-b", topics=()) as c, admin_of(c) as admin:
            await admin.topics.create("orders", brokers=["broker-b"])

            assert sorted((await admin.topics.describe("orders")).configs) == ["broker-b"]
            await admin.topics.create("orders", brokers=["broker-a"])
            assert sorted((await admin.topics.describe("orders")).configs) == ["broker-a", "broker-b"]

    run(main())


def test_creating_an_existing_topic_is_refused() -> None:
    async def main() -> None:
        async with real_cluster() as c, admin_of(c) as admin:
            with pytest.raises(ImpossibleRequest, match="'T' is on broker broker-a already"):
                await admin.topics.create("T", queues=1)

            assert len((await admin.topics.describe("T")).queues) == 4

    run(main())


@pytest.mark.parametrize("wrong", [{"queues": 0}, {"perm": 99}])
def test_an_invalid_topic_is_refused(wrong: dict[str, Any]) -> None:
    async def main() -> None:
        async with real_cluster() as c, admin_of(c) as admin:
            with pytest.raises(UsageError):
                await admin.topics.create("orders", **wrong)
            with pytest.raises(InvalidName):
                await admin.topics.create("no blanks")
            assert not await admin.topics.exists("orders")

    run(main())


def test_only_user_topics_are_listed_by_default() -> None:
    async def main() -> None:
        async with real_cluster(topics=("b", "a")) as c, admin_of(c) as admin:
            assert await admin.topics.names() == ["a", "b"]
            assert {"a", "SCHEDULE_TOPIC_XXXX", "DefaultCluster", "broker-a"} <= set(
                await admin.topics.names(everything=True)
            )

    run(main())


def test_the_offsets_of_each_queue_are_reported() -> None:
    async def main() -> None:
        async with real_cluster(queues=2) as c, admin_of(c) as admin:
            await c.send("T", b"1", b"2", queue=1)

            first, second = (await admin.topics.describe("T")).queues

            assert (first.messages, first.last_store_ms) == (0, None)
            assert second.queue == MessageQueue("T", "broker-a", 1)
            assert (second.min_offset, second.max_offset) == (0, 2)
            assert second.last_store_ms is not None

    run(main())


def test_only_given_settings_are_altered() -> None:
    async def main() -> None:
        async with real_cluster("broker-a", "broker-b", queues=4) as c, admin_of(c) as admin:
            await admin.topics.alter("T", write_queues=2, attributes={"message.type": "NORMAL"})
            await admin.topics.alter("T", perm=Perm.READ, brokers=["broker-b"])

            configs = (await admin.topics.describe("T")).configs
            assert {(config.read_queue_nums, config.write_queue_nums) for config in configs.values()} == {(4, 2)}
            assert {name: config.perm for name, config in configs.items()} == {"broker-a": 6, "broker-b": 4}
            await admin.topics.alter("T", attributes={"message.type": None})
            assert (await admin.topics.describe("T")).configs["broker-a"].attributes == {}
            with pytest.raises(UsageError, match="not on broker 'broker-c'"):
                await admin.topics.alter("T", queues=1, brokers=["broker-c"])

    run(main())


def test_a_topic_is_deleted_on_all_servers() -> None:
    async def main() -> None:
        async with real_cluster("broker-a", "broker-b") as c, admin_of(c) as admin:
            await c.send("T", b"1")
            await admin.name_servers.put_order("T", {"broker-a": 4})

            await admin.topics.delete("T")

            assert not await admin.topics.exists("T")
            assert all(broker.parts.state.topics.get("T") is None for broker in c.brokers.values())
            assert await admin.name_servers.order("T") == {}
            for gone in (admin.topics.describe("T"), admin.topics.delete("T")):
                with pytest.raises(TopicNotFound):
                    await gone

    run(main())


def test_a_system_topic_is_not_deleted() -> None:
    async def main() -> None:
        async with real_cluster() as c, admin_of(c) as admin:
            with pytest.raises(ImpossibleRequest, match="is a system topic"):
                await admin.topics.delete("SCHEDULE_TOPIC_XXXX")

    run(main())


def test_readers_are_the_groups_that_have_read_a_topic() -> None:
    async def main() -> None:
        async with real_cluster() as c, admin_of(c) as admin:
            assert await admin.topics.readers("T") == []

            async with c.pull_consumer("audit") as consumer:
                [queue, *_] = await consumer.queues("T")
                await consumer.commit({queue: 0})

            assert await admin.topics.readers("T") == ["audit"]

    run(main())


def test_in_a_namespace_only_its_own_topics_are_seen() -> None:
    async def main() -> None:
        async with real_cluster(topics=("T",)) as c, admin_of(c, namespace="dev") as admin, admin_of(c) as outside:
            await admin.topics.create("orders")

            assert await admin.topics.names() == ["orders"]
            assert await outside.topics.names() == ["T", "dev%orders"]
            assert {queue.queue.topic for queue in (await admin.topics.describe("orders")).queues} == {"orders"}

    run(main())


def test_many_topics_need_few_requests() -> None:
    async def main() -> None:
        async with real_cluster(queues=2) as c, admin_of(c) as admin:
            await c.send("T", b"1", b"2", queue=1)

            configs = await admin.topics.configs()
            queues = await admin.topics.queues_of_many({"T": ["broker-a"], "nowhere": ["broker-a"], "U": ["no-broker"]})

            assert configs["T"]["broker-a"].read_queue_nums == 2
            assert [one.messages for one in queues["T"]] == [0, 2]
            assert "nowhere" not in queues, "what cannot be asked is left out"
            assert queues["U"] == []
            assert await admin.topics.queues("T") == queues["T"]

    run(main())


def test_a_topic_that_one_broker_refuses_is_reported_as_created_on_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with real_cluster("broker-a", "broker-b", topics=()) as c, admin_of(c) as admin:
            put = TopicAdmin._put

            async def failing(self: TopicAdmin, place: BrokerAddress, *rest: Any) -> None:
                if place.name == "broker-b":
                    raise ConnectionLost("it is gone")
                await put(self, place, *rest)

            monkeypatch.setattr(TopicAdmin, "_put", failing)
            with pytest.raises(PocketMQError, match="'orders' is created on broker-a, but not on broker-b: it is gone"):
                await admin.topics.create("orders")
            with pytest.raises(ConnectionLost, match="it is gone"):
                await admin.topics.create("alone", brokers=["broker-b"])

    run(main())
