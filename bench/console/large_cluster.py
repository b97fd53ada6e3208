"""A large cluster: thousands of topics and groups, and many dead letters."""

from typing import Final, NamedTuple

from pocketmq.client.admin.targets import AdminSettings, BrokerAddress, Targets
from pocketmq.client.cluster.instance import Instance
from pocketmq.client.producer.producer import AsyncProducer
from pocketmq.model.message import Message
from pocketmq.model.names import TopicName
from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.bodies.clients import GroupConfigList, SubscriptionGroupConfig
from pocketmq.protocol.bodies.topics import TopicConfig, TopicConfigList

TOPIC: Final = "topic-{:05}"
GROUP: Final = "group-{:04}"
QUEUES: Final = 4
BATCH: Final = 200
DEAD: Final = f"%DLQ%{GROUP.format(0)}"


class Size(NamedTuple):
    topics: int = 5_000
    groups: int = 1_000
    letters: int = 100_000


async def fill(name_server: str, size: Size) -> None:
    """Create topics, groups with a lag of one message each, and dead letters of the first group."""
    settings = AdminSettings(name_servers=name_server, route_timeout_ms=60_000, call_timeout_ms=30_000)
    instance = Instance.join(settings)
    try:
        targets = Targets(instance, settings)
        place = await targets.master("broker-a")
        await _make(targets, place, size)
        await targets.until_routed(TopicName(DEAD), [place.name])
        async with AsyncProducer(name_server, send_timeout_ms=30_000) as producer:
            for number in range(size.groups):
                await producer.send(TOPIC.format(number), b"x" * 100)
            for at in range(0, size.letters, BATCH):
                await producer.send_many(
                    [Message(DEAD, b'{"letter": %d}' % number) for number in range(at, at + BATCH)]
                )
    finally:
        await instance.leave()


async def _make(targets: Targets, place: BrokerAddress, size: Size) -> None:
    """Hundreds at once, as no user could."""
    topics = [TopicConfig(TOPIC.format(number), QUEUES, QUEUES) for number in range(size.topics)]
    groups = [SubscriptionGroupConfig(GROUP.format(number)) for number in range(size.groups)]
    for at in range(0, len(topics), BATCH):
        await targets.brokers.topics.create_all(place.address, TopicConfigList(tuple(topics[at : at + BATCH])))
    for at in range(0, len(groups), BATCH):
        await targets.brokers.groups.create_all(place.address, GroupConfigList(tuple(groups[at : at + BATCH])))
    await targets.brokers.topics.create_all(place.address, TopicConfigList((TopicConfig(DEAD, 1, 1),)))
    for number in range(size.groups):
        for queue_id in range(QUEUES):
            queue = MessageQueue(TOPIC.format(number), place.name, queue_id)
            await targets.brokers.offsets.commit(GROUP.format(number), queue, 0)
