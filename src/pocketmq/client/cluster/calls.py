"""Calls to brokers about groups, group members, topics, and the broker itself.

    GroupCalls    settings, subscriptions and lag of consumer groups
    MemberCalls   connected clients, queue locks, and requests that a broker forwards to a client
    StateCalls    settings and statistics of the broker, and its cleanup
    TopicCalls    create, change, list and delete topics

Each call sends one request and decodes the response. `message_calls` has the calls about messages and offsets.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar

from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.errors import ServerFailed
from pocketmq.model.queue import MessageQueue
from pocketmq.net.address import Address
from pocketmq.protocol.api.administration import (
    CreateTopic,
    DeleteGroup,
    ForGroup,
    ForProducerGroup,
    ForTopic,
    GetBrokerConsumeStats,
    GetConsumeStats,
    QuerySubscriptionByConsumer,
    UpdateGroupForbidden,
    ViewBrokerStats,
)
from pocketmq.protocol.api.messages import (
    ConsumeMessageDirectly,
    ForConsumerGroup,
    GetConsumerRunningInfo,
    UnregisterClient,
)
from pocketmq.protocol.bodies.body import KVTable
from pocketmq.protocol.bodies.clients import (
    CheckClientConfig,
    ConsumerConnection,
    ConsumerIdList,
    ConsumerRunningInfo,
    DirectConsumption,
    GroupConfigList,
    GroupForbidden,
    GroupList,
    GroupSubscription,
    GroupTable,
    LockedQueues,
    ProducerConnection,
    ProducerTable,
    QueueLocks,
    SubscriptionGroupConfig,
)
from pocketmq.protocol.bodies.properties_text import read_properties, write_properties
from pocketmq.protocol.bodies.topics import (
    BrokerStatsData,
    ConsumerOffsets,
    ConsumeStats,
    ConsumeStatsList,
    DelayOffsets,
    MappedTopicConfig,
    MappedTopicTable,
    ReplicationStatus,
    TopicConfig,
    TopicConfigList,
    TopicList,
    TopicStatsTable,
)
from pocketmq.protocol.command import Command
from pocketmq.protocol.fields import Fields
from pocketmq.protocol.java_json import read_body, write_body

T = TypeVar("T")

Target = str | Address
"""A broker's name, meaning its master, or an address."""


class BrokerRpc(Protocol):
    """Sends requests to brokers; see `brokers.Brokers`."""

    def addresses_of(self, name: str) -> list[Address]:
        """Every broker of this name, the master first."""

    async def ask(
        self,
        target: Target,
        code: RequestCode,
        header: Fields | None = None,
        body: bytes = b"",
        *,
        extra: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Command: ...

    async def call(
        self,
        target: Target,
        code: RequestCode,
        header: Fields | None = None,
        body: bytes = b"",
        *,
        extra: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Command: ...

    async def send_one_way(
        self,
        target: Target,
        code: RequestCode,
        header: Fields | None = None,
        body: bytes = b"",
        *,
        extra: Mapping[str, str] | None = None,
    ) -> None: ...


class Calls:
    """Base class of the calls."""

    __slots__ = ("_brokers",)

    def __init__(self, brokers: BrokerRpc) -> None:
        self._brokers = brokers

    async def _read(
        self, target: Target, code: RequestCode, kind: type[T], header: Fields | None = None, body: bytes = b""
    ) -> T:
        """The response body as `kind`."""
        return read_body(kind, (await self._brokers.ask(target, code, header, body)).body)


def named(broker_name: str) -> dict[str, str]:
    """The ext field with the broker name, which Java sends with requests about a queue."""
    return {"bname": broker_name}


class GroupCalls(Calls):
    __slots__ = ()

    async def create(self, target: Target, group: SubscriptionGroupConfig) -> None:
        """Create or change a group."""
        body = write_body(group)
        await self._brokers.ask(target, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)

    async def create_all(self, target: Target, groups: Iterable[SubscriptionGroupConfig]) -> None:
        body = write_body(GroupConfigList(tuple(groups)))
        await self._brokers.ask(target, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body=body)

    async def delete(self, target: Target, group: str, *, with_offsets: bool) -> None:
        header = DeleteGroup(group, with_offsets, with_offsets)
        await self._brokers.ask(target, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)

    async def config(self, target: Target, group: str) -> SubscriptionGroupConfig:
        """The group's settings; GroupNotFound when it does not exist. A broker with autoCreateSubscriptionGroup creates it."""
        code = RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG
        return await self._read(target, code, SubscriptionGroupConfig, ForGroup(group))

    async def all_configs(self, target: Target) -> GroupTable:
        return await self._read(target, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, GroupTable)

    async def progress(self, target: Target, group: str, topic: str | None = None) -> ConsumeStats:
        """The committed offset of the group and the end of the queue, for each queue."""
        return await self._read(target, RequestCode.GET_CONSUME_STATS, ConsumeStats, GetConsumeStats(group, topic))

    async def reading(self, target: Target, topic: str) -> GroupList:
        """The groups that read `topic`."""
        code = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO
        return await self._read(target, code, GroupList, ForTopic(topic))

    async def topics(self, target: Target, group: str) -> TopicList:
        """The topics that `group` reads."""
        code = RequestCode.QUERY_TOPICS_BY_CONSUMER
        return await self._read(target, code, TopicList, ForGroup(group))

    async def subscription(self, target: Target, group: str, topic: str) -> GroupSubscription:
        code = RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER
        return await self._read(target, code, GroupSubscription, QuerySubscriptionByConsumer(group, topic))

    async def forbid(self, target: Target, group: str, topic: str, *, readable: bool | None = None) -> GroupForbidden:
        """Forbid or allow reading a topic; None only queries the current setting."""
        code = RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN
        return await self._read(target, code, GroupForbidden, UpdateGroupForbidden(group, topic, readable))


class MemberCalls(Calls):
    __slots__ = ()

    async def leave(
        self,
        target: Target,
        client_id: str,
        *,
        producer_group: str | None = None,
        consumer_group: str | None = None,
        timeout_s: float | None = None,
    ) -> None:
        """Unregister this client from the groups."""
        header = UnregisterClient(client_id, producer_group, consumer_group)
        await self._brokers.ask(target, RequestCode.UNREGISTER_CLIENT, header, timeout_s=timeout_s)

    async def of_group(self, target: Target, group: str) -> list[str]:
        """The client ids of all members; empty when the broker knows none."""
        try:
            found = await self._read(
                target, RequestCode.GET_CONSUMER_LIST_BY_GROUP, ConsumerIdList, ForConsumerGroup(group)
            )
        except ServerFailed as error:
            if error.response_code != ResponseCode.SYSTEM_ERROR:
                raise
            return []  # RocketMQ answers SYSTEM_ERROR for a group without members
        return list(found.consumer_id_list)

    async def lock(
        self, target: Target, group: str, client_id: str, queues: Iterable[MessageQueue]
    ) -> frozenset[MessageQueue]:
        """Lock queues for this client; returns those that are locked."""
        body = write_body(QueueLocks(group, client_id, tuple(queues)))
        answer = await self._brokers.ask(target, RequestCode.LOCK_BATCH_MQ, body=body)
        return frozenset(read_body(LockedQueues, answer.body).locked)

    async def unlock(
        self, target: Target, group: str, client_id: str, queues: Iterable[MessageQueue], *, wait: bool
    ) -> None:
        """Unlock queues; `wait` waits for the response."""
        body = write_body(QueueLocks(group, client_id, tuple(queues)))
        if wait:
            await self._brokers.ask(target, RequestCode.UNLOCK_BATCH_MQ, body=body)
        else:
            await self._brokers.send_one_way(target, RequestCode.UNLOCK_BATCH_MQ, body=body)

    async def check_config(self, target: Target, config: CheckClientConfig) -> None:
        """Check a subscription; SubscriptionUnparsable when the broker cannot parse its expression."""
        await self._brokers.ask(target, RequestCode.CHECK_CLIENT_CONFIG, body=write_body(config))

    async def consumers(self, target: Target, group: str) -> ConsumerConnection:
        """The connected members of a consumer group; ConsumerNotOnline when it has none."""
        header = ForConsumerGroup(group)
        return await self._read(target, RequestCode.GET_CONSUMER_CONNECTION_LIST, ConsumerConnection, header)

    async def producers(self, target: Target, group: str) -> ProducerConnection:
        header = ForProducerGroup(group)
        return await self._read(target, RequestCode.GET_PRODUCER_CONNECTION_LIST, ProducerConnection, header)

    async def all_producers(self, target: Target) -> ProducerTable:
        return await self._read(target, RequestCode.GET_ALL_PRODUCER_INFO, ProducerTable)

    async def running_info(
        self, target: Target, group: str, client_id: str, *, stacks: bool = False, timeout_s: float | None = None
    ) -> ConsumerRunningInfo:
        """The running info of a member. The broker forwards the request and waits 10 s."""
        header, code = GetConsumerRunningInfo(group, client_id, stacks), RequestCode.GET_CONSUMER_RUNNING_INFO
        return read_body(ConsumerRunningInfo, (await self._brokers.ask(target, code, header, timeout_s=timeout_s)).body)

    async def consume_directly(
        self, target: Target, header: ConsumeMessageDirectly, *, timeout_s: float | None = None
    ) -> DirectConsumption:
        """Let a member consume one message now. The broker forwards the request and waits 10 s."""
        code = RequestCode.CONSUME_MESSAGE_DIRECTLY
        return read_body(DirectConsumption, (await self._brokers.ask(target, code, header, timeout_s=timeout_s)).body)


class StateCalls(Calls):
    __slots__ = ()

    async def runtime_info(self, target: Target) -> Mapping[str, str]:
        """The values that `mqadmin brokerStatus` shows."""
        return (await self._read(target, RequestCode.GET_BROKER_RUNTIME_INFO, KVTable)).table

    async def settings(self, target: Target) -> dict[str, str]:
        return read_properties((await self._brokers.ask(target, RequestCode.GET_BROKER_CONFIG)).body)

    async def change_settings(self, target: Target, changes: Mapping[str, str]) -> None:
        await self._brokers.ask(target, RequestCode.UPDATE_BROKER_CONFIG, body=write_properties(changes))

    async def stats(self, target: Target, name: str, key: str) -> BrokerStatsData:
        """One statistic, such as TOPIC_PUT_NUMS of a topic, over a minute, an hour and a day."""
        code = RequestCode.VIEW_BROKER_STATS_DATA
        return await self._read(target, code, BrokerStatsData, ViewBrokerStats(name, key))

    async def consume_stats(self, target: Target, *, orderly: bool = False) -> ConsumeStatsList:
        """The lag of all groups."""
        code = RequestCode.GET_BROKER_CONSUME_STATS
        return await self._read(target, code, ConsumeStatsList, GetBrokerConsumeStats(orderly))

    async def consumer_offsets(self, target: Target) -> ConsumerOffsets:
        return await self._read(target, RequestCode.GET_ALL_CONSUMER_OFFSET, ConsumerOffsets)

    async def delay_offsets(self, target: Target) -> DelayOffsets:
        return await self._read(target, RequestCode.GET_ALL_DELAY_OFFSET, DelayOffsets)

    async def replication(self, target: Target) -> ReplicationStatus:
        return await self._read(target, RequestCode.GET_BROKER_HA_STATUS, ReplicationStatus)

    async def clean_queues(self, target: Target) -> None:
        """Delete consume queue files whose messages are deleted."""
        await self._brokers.ask(target, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)

    async def delete_expired_log(self, target: Target) -> None:
        """Delete expired commit log files now."""
        await self._brokers.ask(target, RequestCode.DELETE_EXPIRED_COMMITLOG)


class TopicCalls(Calls):
    __slots__ = ()

    async def create(self, target: Target, header: CreateTopic) -> None:
        """Create or change a topic."""
        await self._brokers.ask(target, RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    async def create_all(self, target: Target, topics: Iterable[TopicConfig]) -> None:
        body = write_body(TopicConfigList(tuple(topics)))
        await self._brokers.ask(target, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body)

    async def delete(self, target: Target, topic: str) -> None:
        """Delete a topic with its messages and offsets."""
        await self._brokers.ask(target, RequestCode.DELETE_TOPIC_IN_BROKER, ForTopic(topic))

    async def config(self, target: Target, topic: str) -> MappedTopicConfig:
        return await self._read(target, RequestCode.GET_TOPIC_CONFIG, MappedTopicConfig, ForTopic(topic))

    async def all_configs(self, target: Target) -> MappedTopicTable:
        return await self._read(target, RequestCode.GET_ALL_TOPIC_CONFIG, MappedTopicTable)

    async def stats(self, target: Target, topic: str) -> TopicStatsTable:
        """The smallest and largest offset of each queue of the topic."""
        return await self._read(target, RequestCode.GET_TOPIC_STATS_INFO, TopicStatsTable, ForTopic(topic))

    async def system_topics(self, target: Target) -> TopicList:
        return await self._read(target, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, TopicList)

    async def clean_unused(self, target: Target) -> None:
        """Delete the consume queues of deleted topics."""
        await self._brokers.ask(target, RequestCode.CLEAN_UNUSED_TOPIC)
