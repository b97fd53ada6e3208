"""Topics of a broker: making, changing, listing, counting, deleting them."""

from collections.abc import Iterable

from pocketmq.client.calls.asking import Calls, Target
from pocketmq.codes import RequestCode
from pocketmq.protocol.api.topics import CreateTopic, DeleteTopic, GetTopic, GetTopicStats
from pocketmq.protocol.bodies.stats import TopicStatsTable
from pocketmq.protocol.bodies.topics import (
    MappedTopicConfig,
    MappedTopicTable,
    TopicConfig,
    TopicConfigList,
    TopicList,
)
from pocketmq.protocol.java_json import write_body


class TopicCalls(Calls):
    __slots__ = ()

    async def create(self, target: Target, header: CreateTopic) -> None:
        """Make a topic, or change it."""
        await self._brokers.ask(target, RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    async def create_all(self, target: Target, topics: Iterable[TopicConfig]) -> None:
        body = write_body(TopicConfigList(tuple(topics)))
        await self._brokers.ask(target, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body)

    async def delete(self, target: Target, topic: str) -> None:
        """Drop a topic with its messages and all offsets in it."""
        await self._brokers.ask(target, RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopic(topic))

    async def config(self, target: Target, topic: str) -> MappedTopicConfig:
        return await self._read(target, RequestCode.GET_TOPIC_CONFIG, MappedTopicConfig, GetTopic(topic))

    async def all_configs(self, target: Target) -> MappedTopicTable:
        return await self._read(target, RequestCode.GET_ALL_TOPIC_CONFIG, MappedTopicTable)

    async def stats(self, target: Target, topic: str) -> TopicStatsTable:
        """Where each queue of the topic begins and ends."""
        return await self._read(target, RequestCode.GET_TOPIC_STATS_INFO, TopicStatsTable, GetTopicStats(topic))

    async def system_topics(self, target: Target) -> TopicList:
        return await self._read(target, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, TopicList)

    async def clean_unused(self, target: Target) -> None:
        """Drop the queues of topics that do not exist any more."""
        await self._brokers.ask(target, RequestCode.CLEAN_UNUSED_TOPIC)
