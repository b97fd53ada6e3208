"""Consumer groups: requests of administrators that create, change, list, forbid and delete groups, and query subscriptions.

Changes are saved before they are answered. Deleting a group leaves its retry and dead-letter topics: tools delete those
as topics, if requested.
"""

import asyncio
import logging
from collections.abc import Callable

from msgspec.structs import replace

from pocketmq.broker.handlers.topics import CachedTable, Page
from pocketmq.broker.state import BrokerState
from pocketmq.codes import RequestCode
from pocketmq.model import Subscription, parse_group
from pocketmq.net import Address, Handler, PlainRequest, Reply, Request
from pocketmq.protocol.api.administration import (
    AllGroupsReply,
    DeleteGroup,
    ForGroup,
    GetAllGroups,
    QuerySubscriptionByConsumer,
    UpdateGroupForbidden,
)
from pocketmq.protocol.bodies.clients import GroupConfigList, GroupForbidden, GroupSubscription, SubscriptionGroupConfig
from pocketmq.protocol.bodies.topics import TopicList

log = logging.getLogger("pocketmq.broker")


class GroupHandlers:
    """Requests about consumer groups. `address` returns the address for clients."""

    def __init__(self, state: BrokerState, address: Callable[[], Address]) -> None:
        self._state = state
        self._address = address
        self._cached_table = CachedTable()

    def table(self) -> dict[RequestCode, Handler]:
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self.create,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: self.create_list,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self.delete,
            RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: self.forbid,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self.get,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.get_all,
            RequestCode.QUERY_TOPICS_BY_CONSUMER: self.topics,
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: self.subscription,
        }

    # changing

    async def create(self, request: PlainRequest) -> Reply:
        return await self._put(request, (SubscriptionGroupConfig.decode(request.command.body),))

    async def create_list(self, request: PlainRequest) -> Reply:
        return await self._put(request, GroupConfigList.decode(request.command.body).group_config_list)

    async def _put(self, request: PlainRequest, configs: tuple[SubscriptionGroupConfig, ...]) -> Reply:
        self._state.groups.put(configs, self._state.clock.now_ms())
        for config in configs:
            log.info("Set group %s, as requested by %s: %s", config.group_name, request.peer.address, config)
        await self._state.snapshots.save_groups()
        return Reply()

    async def delete(self, request: Request[DeleteGroup]) -> Reply:
        """Delete a group. If it does not exist, its offsets may still be deleted."""
        header, group = request.header, request.header.group_name
        if group not in self._state.groups:
            parse_group(group)
        if self._state.groups.delete(group, self._state.clock.now_ms()):
            log.info("Deleted group %s, as requested by %s", group, request.peer.address)
            self._state.forget_group(group)
        saving = [self._state.snapshots.save_groups()]
        if header.clean_offset or header.remove_offset:
            self._state.offsets.delete_group(group)
            log.info("Deleted the offsets of group %s, as requested by %s", group, request.peer.address)
            saving.append(self._state.snapshots.save_offsets())
        await asyncio.gather(*saving)
        return Reply()

    async def forbid(self, request: Request[UpdateGroupForbidden]) -> Reply:
        """Forbid or allow a group to read a topic, or only query it."""
        header = request.header
        if header.readable is not None:
            self._state.groups.set_readable(header.group, header.topic, header.readable, self._state.clock.now_ms())
            word = "allowed" if header.readable else "forbade"
            log.info("%s %s group %s to read topic %s", request.peer.address, word, header.group, header.topic)
            await self._state.snapshots.save_groups()
        readable = self._state.groups.may_read(header.group, header.topic)
        return Reply(body=GroupForbidden(header.group, header.topic, readable).encode())

    # queries

    async def get(self, request: Request[ForGroup]) -> Reply:
        """The group, created if it is new and automatic creation is on, as in RocketMQ."""
        is_new = request.header.group not in self._state.groups
        config = self._state.groups.ensure(request.header.group, self._state.clock.now_ms())
        if is_new:
            await self._state.snapshots.save_groups()
        return Reply(body=config.encode())

    def get_all(self, request: Request[GetAllGroups]) -> Reply:
        header, count = request.header, AllGroupsReply(len(self._state.groups))
        page = Page(header.group_seq, header.max_group_num, header.data_version)
        if page.is_whole:
            return Reply(
                count,
                self._cached_table.body(self._state.groups.version, lambda: self._state.groups.snapshot().encode()),
            )
        table = self._state.groups.snapshot()
        rows = page.of(table.subscription_group_table, table.data_version)
        return Reply(count, replace(table, subscription_group_table=rows).encode())

    def topics(self, request: Request[ForGroup]) -> Reply:
        """Topics in which the group has an offset."""
        topics = tuple(self._state.offsets.topics_of(request.header.group))
        return Reply(body=TopicList(topics, str(self._address())).encode())

    def subscription(self, request: Request[QuerySubscriptionByConsumer]) -> Reply:
        """The group's subscription of a topic: of its members, else of its recent pulls."""
        group, topic = request.header.group, request.header.topic
        found = self._subscription(group, topic) if topic else None
        return Reply(body=GroupSubscription(group, topic, found).encode())

    def _subscription(self, group: str, topic: str) -> Subscription | None:
        members = self._state.members.group(group)
        return (members and members.subscriptions.get(topic)) or self._state.subscriptions.find(group, topic)
