"""The administrator: topics, groups, members, settings, and what it can have done."""

from typing import Final

from conformance.python.stage import Basket, Programme, Stage
from pocketmq.errors import ImpossibleRequest, TopicNotFound

ADMINISTRATION: Final = Programme("administration")


@ADMINISTRATION.act("topics are created, described, changed and deleted")
async def topics(stage: Stage) -> None:
    name = stage.name("Topic")
    async with stage.admin() as admin, stage.producer() as producer:
        await admin.topics.create(name, queues=3)
        stage.true("it is listed", name in await admin.topics.names())
        stage.same("queues", len((await admin.topics.describe(name)).queues), 3)
        await stage.refused("made twice", ImpossibleRequest, admin.topics.create(name))
        await producer.send(name, b"x")
        stage.same("messages", (await admin.topics.describe(name)).messages, 1)
        await admin.topics.alter(name, queues=5)

        async def has_grown() -> bool:
            return len((await admin.topics.describe(name)).queues) == 5

        await stage.comes("five queues", has_grown)
        await admin.topics.delete(name)
        await stage.refused("described after it is gone", TopicNotFound, admin.topics.describe(name))


@ADMINISTRATION.act("groups are created, described, changed and deleted")
async def groups(stage: Stage) -> None:
    name = stage.name("Group")
    async with stage.admin() as admin:
        await admin.groups.create(name, max_reconsume_times=5)
        state = await admin.groups.describe(name)
        stage.same("who is there", (state.is_online, await admin.groups.members(name)), (False, []))
        stage.same("attempts", {one.retry_max_times for one in state.configs.values()}, {5})
        await admin.groups.alter(name, max_reconsume_times=7)
        changed = await admin.groups.describe(name)
        stage.same("attempts after a change", {one.retry_max_times for one in changed.configs.values()}, {7})
        await admin.groups.delete(name)
        stage.true("it is not listed any more", name not in await admin.groups.names())


@ADMINISTRATION.act("a running consumer is listed: its client, its subscriptions, its state")
async def members(stage: Stage) -> None:
    topic, group, basket = await stage.topic(queues=2), stage.name("CG"), Basket()
    consumer = stage.push(group)
    consumer.on(topic, tags="a || b")(basket)
    async with stage.producer() as producer, stage.admin() as admin, consumer:
        await stage.owns(consumer, 2)
        sent = await producer.send(topic, b"seen", tags="a")
        await stage.until("a message", lambda: len(basket) == 1)
        found = await admin.groups.members(group)
        stage.same("members", [member.client_id for member in found], [consumer.client_id])
        info = await admin.groups.running_info(group, consumer.client_id)
        stage.same("queues", len([queue for queue in info.mq_table if queue.topic == topic]), 2)
        stage.true("its subscription", any(one.topic == topic for one in info.subscription_set))
        owners = await admin.groups.owners(group)
        stage.same("owner of a queue", owners.queues.get(sent.queue), (consumer.client_id,))
        stage.true("the group reads the topic", group in await admin.topics.readers(topic))
        message = await admin.messages.by_offset_id(sent.offset_id)
        outcome = await admin.messages.consume_directly(group, consumer.client_id, message)
        stage.same("consumed once more, by order", (len(basket), basket.bodies[-1]), (2, b"seen"))
        stage.true(f"its listener succeeded: {outcome}", "SUCCESS" in str(outcome))


@ADMINISTRATION.act("brokers and their settings are shown; one that may be changed is changed")
async def settings(stage: Stage) -> None:
    async with stage.admin() as admin:
        brokers = await admin.cluster.brokers()
        name = brokers[0].name
        stage.same("brokers", len(brokers), 1)
        info = await admin.cluster.runtime_info(name)
        stage.true("its version is reported", "brokerVersionDesc" in info)
        before = (await admin.cluster.settings(name))["longPollingEnable"]
        await admin.cluster.change_settings(name, {"shortPollingTimeMills": 1001})
        after = await admin.cluster.settings(name)
        stage.same("what was not changed", after["longPollingEnable"], before)
        stage.same("what was changed", after["shortPollingTimeMills"], "1001")


@ADMINISTRATION.act("a name server keeps values")
async def name_server(stage: Stage) -> None:
    space = stage.name("Space")
    async with stage.admin() as admin:
        await admin.name_servers.put(space, "colour", "red")
        stage.same("one value", await admin.name_servers.value(space, "colour"), "red")
        stage.same("all values", await admin.name_servers.values(space), {"colour": "red"})
        await admin.name_servers.delete(space, "colour")
        stage.same("after it is deleted", await admin.name_servers.value(space, "colour"), None)
