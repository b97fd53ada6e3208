"""Consumer groups of a broker: their settings, what they read, how far behind they are."""

from collections.abc import Iterable

from pocketmq.client.calls.asking import Calls, Target
from pocketmq.codes import RequestCode
from pocketmq.protocol.api.groups import (
    DeleteGroup,
    GetConsumeStats,
    GetGroup,
    QuerySubscriptionByConsumer,
    QueryTopicConsumers,
    QueryTopicsByConsumer,
    UpdateGroupForbidden,
)
from pocketmq.protocol.bodies.groups import (
    GroupConfigList,
    GroupForbidden,
    GroupList,
    GroupSubscription,
    GroupTable,
    SubscriptionGroupConfig,
)
from pocketmq.protocol.bodies.stats import ConsumeStats
from pocketmq.protocol.bodies.topics import TopicList
from pocketmq.protocol.java_json import write_body


class GroupCalls(Calls):
    __slots__ = ()

    async def create(self, target: Target, group: SubscriptionGroupConfig) -> None:
        """Make a group, or change it."""
        body = write_body(group)
        await self._brokers.ask(target, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)

    async def create_all(self, target: Target, groups: Iterable[SubscriptionGroupConfig]) -> None:
        body = write_body(GroupConfigList(tuple(groups)))
        await self._brokers.ask(target, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body=body)

    async def delete(self, target: Target, group: str, *, with_offsets: bool) -> None:
        header = DeleteGroup(group, with_offsets, with_offsets)
        await self._brokers.ask(target, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)

    async def config(self, target: Target, group: str) -> SubscriptionGroupConfig:
        """GroupNotFound when there is none; a broker that makes groups by itself makes this one."""
        code = RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG
        return await self._read(target, code, SubscriptionGroupConfig, GetGroup(group))

    async def all_configs(self, target: Target) -> GroupTable:
        return await self._read(target, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, GroupTable)

    async def progress(self, target: Target, group: str, topic: str | None = None) -> ConsumeStats:
        """Where the group stands in each queue, and where the queue ends."""
        return await self._read(target, RequestCode.GET_CONSUME_STATS, ConsumeStats, GetConsumeStats(group, topic))

    async def reading(self, target: Target, topic: str) -> GroupList:
        """The groups that read `topic`."""
        code = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO
        return await self._read(target, code, GroupList, QueryTopicConsumers(topic))

    async def topics(self, target: Target, group: str) -> TopicList:
        """The topics that `group` reads."""
        code = RequestCode.QUERY_TOPICS_BY_CONSUMER
        return await self._read(target, code, TopicList, QueryTopicsByConsumer(group))

    async def subscription(self, target: Target, group: str, topic: str) -> GroupSubscription:
        code = RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER
        return await self._read(target, code, GroupSubscription, QuerySubscriptionByConsumer(group, topic))

    async def forbid(self, target: Target, group: str, topic: str, *, readable: bool | None = None) -> GroupForbidden:
        """Forbid or allow reading a topic; None only asks how it stands."""
        code = RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN
        return await self._read(target, code, GroupForbidden, UpdateGroupForbidden(group, topic, readable))
