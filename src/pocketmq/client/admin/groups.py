"""Consumer groups: which there are, who is in them and owns which queue, making, changing and deleting them."""

from collections.abc import Iterable, Mapping

import msgspec
from msgspec.structs import replace

from pocketmq.client.admin.targets import BrokerAddress, Targets
from pocketmq.codes import RequestCode
from pocketmq.errors import (
    ConsumerNotOnline,
    GroupNotFound,
    ImpossibleRequest,
    PocketMQError,
    TopicNotFound,
    UsageError,
)
from pocketmq.model.names import GroupName, dlq_topic, is_internal_group, is_system_group, retry_topic
from pocketmq.model.queue import MessageQueue
from pocketmq.model.retries import MAX_RECONSUME_TIMES
from pocketmq.model.subscription import Subscription
from pocketmq.protocol.api.routes import DeleteTopicRoute
from pocketmq.protocol.bodies.clients import ConsumerConnection, ConsumeType, MessageModel
from pocketmq.protocol.bodies.groups import SubscriptionGroupConfig
from pocketmq.protocol.bodies.running_info import ConsumerRunningInfo


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A client that is a member of a group now."""

    client_id: str
    address: str | None
    language: str | None
    version: int
    brokers: tuple[str, ...]
    """The brokers that it is connected to."""


class GroupState(msgspec.Struct, frozen=True, kw_only=True):
    """A group: how each broker has it, and what its members say. Without members, what they would say is None."""

    group: str
    configs: Mapping[str, SubscriptionGroupConfig]
    """By broker; it may be missing at some."""
    members: tuple[Member, ...]
    subscriptions: Mapping[str, Subscription]
    """By topic, as the members said last."""
    consume_type: ConsumeType | None
    message_model: MessageModel | None

    @property
    def is_online(self) -> bool:
        return bool(self.members)


class Owners(msgspec.Struct, frozen=True, kw_only=True):
    """Who reads which queue, by what the members themselves say."""

    queues: Mapping[MessageQueue, tuple[str, ...]]
    """The ids of the clients: one for each queue, all of them when the group broadcasts."""
    silent: Mapping[str, str]
    """Members that did not say, and why: what they own is unknown."""


class GroupAdmin:
    """Consumer groups of the cluster."""

    def __init__(self, targets: Targets) -> None:
        self._targets = targets

    async def names(self, *, everything: bool = False) -> list[str]:
        """All groups that brokers know, sorted; with `everything` also internal ones: of RocketMQ itself, of traces, of Spark's sinks."""
        calls = self._targets.brokers.groups
        tables = await self._targets.gather(
            await self._targets.masters(), lambda place: calls.all_configs(place.address)
        )
        found = {group for table in tables for group in table.subscription_group_table}
        return sorted(
            self._targets.shown(group)
            for group in found
            if self._targets.is_ours(group) and (everything or not is_internal_group(group))
        )

    async def configs(self) -> dict[str, dict[str, SubscriptionGroupConfig]]:
        """How every broker has every group, RocketMQ's own among them: by group, then by broker."""
        places = await self._targets.masters()
        calls = self._targets.brokers.groups
        tables = await self._targets.gather(places, lambda place: calls.all_configs(place.address))
        found: dict[str, dict[str, SubscriptionGroupConfig]] = {}
        for place, table in zip(places, tables, strict=True):
            for group, config in table.subscription_group_table.items():
                if self._targets.is_ours(group):
                    found.setdefault(self._targets.shown(group), {})[place.name] = config
        return found

    async def describe(self, group: str) -> GroupState:
        """How a group is set up, and who is in it; GroupNotFound when no broker knows it."""
        name = self._targets.group(group)
        places = await self._targets.masters()
        configs = await self._configs(name, places)
        connections = await self._connections(name, places)
        if not configs and not connections:
            raise GroupNotFound(f"no broker knows the group {group!r}")
        last = next(iter(connections.values()), ConsumerConnection())
        return GroupState(
            group=group,
            configs=configs,
            members=tuple(_members(connections)),
            subscriptions={self._targets.shown(topic): one for topic, one in sorted(last.subscription_table.items())},
            consume_type=last.consume_type,
            message_model=last.message_model,
        )

    async def members(self, group: str) -> list[Member]:
        """Who is in a group now; nobody when nobody is."""
        return _members(await self._connections(self._targets.group(group), await self._targets.masters()))

    async def members_of_many(self, groups: Iterable[str]) -> dict[str, list[Member]]:
        """The same of many groups: one question for each of them and each broker."""
        calls, names = self._targets.brokers.members, list(groups)
        places = await self._targets.masters()
        asked = [(name, place) for name in names for place in places]
        found, failed = await self._targets.gather_what_goes(
            asked, lambda pair: calls.consumers(pair[1].address, self._targets.group(pair[0]))
        )
        for error in failed.values():
            if not _means_nobody(error):
                raise error
        connections: dict[str, dict[BrokerAddress, ConsumerConnection]] = {name: {} for name in names}
        for (name, place), connection in found.items():
            if connection.connection_set:
                connections[name][place] = connection
        return {name: _members(one) for name, one in connections.items()}

    async def running_info(self, group: str, client_id: str, *, stacks: bool = False) -> ConsumerRunningInfo:
        """What a member tells about itself; with `stacks` also what its threads are doing."""
        name = self._targets.group(group)
        for place, connection in (await self._connections(name, await self._targets.masters())).items():
            if any(client.client_id == client_id for client in connection.connection_set):
                return await self._running_info(place, name, client_id, stacks=stacks)
        raise ConsumerNotOnline(f"no broker knows a member {client_id!r} of the group {group!r}")

    async def owners(self, group: str) -> Owners:
        """Who reads which queue. Each member is asked through a broker that knows it."""
        name = self._targets.group(group)
        connections = await self._connections(name, await self._targets.masters())
        through = {client.client_id: place for place, one in connections.items() for client in one.connection_set}
        found, failed = await self._targets.gather_what_goes(
            sorted(through), lambda client_id: self._running_info(through[client_id], name, client_id)
        )
        owned: dict[MessageQueue, list[str]] = {}
        for client_id, info in found.items():
            for queue, state in info.mq_table.items():
                if not state.dropped:
                    owned.setdefault(self._targets.shown_queue(queue), []).append(client_id)
        return Owners(
            queues={queue: tuple(clients) for queue, clients in sorted(owned.items())},
            silent={client_id: f"{type(error).__name__}: {error}" for client_id, error in failed.items()},
        )

    async def create(
        self,
        group: str,
        *,
        max_reconsume_times: int = MAX_RECONSUME_TIMES,
        retry_queues: int = 1,
        may_consume: bool = True,
        may_broadcast: bool = True,
        ordered: bool = False,
        cluster: str | None = None,
        brokers: Iterable[str] | None = None,
    ) -> None:
        """Make a group, on all brokers, those of a cluster, or those that are named. ImpossibleRequest when one has it."""
        name = self._targets.group(group)
        places = await self._targets.masters(cluster, brokers)
        config = SubscriptionGroupConfig(
            name,
            consume_enable=may_consume,
            consume_broadcast_enable=may_broadcast,
            consume_message_orderly=ordered,
            retry_queue_nums=retry_queues,
            retry_max_times=max_reconsume_times,
        )
        _check(config)
        if there := list(await self._configs(name, places)):
            raise ImpossibleRequest(f"group {group!r} is on broker {there[0]} already; `alter` changes it")
        await self._targets.gather(places, lambda place: self._targets.brokers.groups.create(place.address, config))

    async def alter(
        self,
        group: str,
        *,
        max_reconsume_times: int | None = None,
        retry_queues: int | None = None,
        may_consume: bool | None = None,
        may_broadcast: bool | None = None,
        ordered: bool | None = None,
    ) -> None:
        """Change what is named, on all brokers that have the group."""
        places = {place.name: place for place in await self._targets.masters()}
        configs = await self._configs(self._targets.group(group), list(places.values()))
        if not configs:
            raise GroupNotFound(f"no broker knows the group {group!r}")
        wanted = {
            "retry_max_times": max_reconsume_times,
            "retry_queue_nums": retry_queues,
            "consume_enable": may_consume,
            "consume_broadcast_enable": may_broadcast,
            "consume_message_orderly": ordered,
        }
        changes = {field: value for field, value in wanted.items() if value is not None}
        changed = [(places[broker], replace(config, **changes)) for broker, config in configs.items()]
        for _, config in changed:
            _check(config)
        await self._targets.gather(changed, lambda pair: self._targets.brokers.groups.create(pair[0].address, pair[1]))

    async def delete(self, group: str, *, with_topics: bool = True) -> None:
        """Forget a group and how far it was; `with_topics` its retries and dead letters, too.

        ImpossibleRequest while it has members: they would make it anew at once.
        """
        name = self._targets.group(group)
        if is_system_group(name):
            raise ImpossibleRequest(f"group {group!r} is RocketMQ's own")
        places = await self._targets.masters()
        configs, connections = await self._configs(name, places), await self._connections(name, places)
        if members := _members(connections):
            raise ImpossibleRequest(
                f"group {group!r} has {len(members)} members, such as {members[0].client_id}: stop them"
            )
        if not configs:
            raise GroupNotFound(f"no broker knows the group {group!r}")
        if with_topics:
            for topic in (retry_topic(name), dlq_topic(name)):
                await self._delete_topic(topic, places)
        # Last, because pulls that a broker still holds for the group end with its topics, and would make it anew.
        calls = self._targets.brokers.groups
        await self._targets.gather(places, lambda place: calls.delete(place.address, name, with_offsets=True))

    async def _delete_topic(self, topic: str, places: list[BrokerAddress]) -> None:
        """On all brokers and name servers. One that does not exist is no matter."""

        async def delete(place: BrokerAddress) -> None:
            try:
                await self._targets.brokers.topics.delete(place.address, topic)
            except TopicNotFound:
                return

        await self._targets.gather(places, delete)
        for cluster in sorted({place.cluster for place in places}):
            await self._targets.tell_name_servers(RequestCode.DELETE_TOPIC_IN_NAMESRV, DeleteTopicRoute(topic, cluster))

    async def _configs(self, group: GroupName, places: list[BrokerAddress]) -> dict[str, SubscriptionGroupConfig]:
        """By broker. All are listed instead of asking for one, because a broker may make a group that it is asked for."""
        calls = self._targets.brokers.groups
        tables = await self._targets.gather(places, lambda place: calls.all_configs(place.address))
        return {
            place.name: table.subscription_group_table[group]
            for place, table in zip(places, tables, strict=True)
            if group in table.subscription_group_table
        }

    async def _connections(
        self, group: GroupName, places: list[BrokerAddress]
    ) -> dict[BrokerAddress, ConsumerConnection]:
        """What brokers know of the members, where they know any."""
        calls = self._targets.brokers.members
        found, failed = await self._targets.gather_what_goes(
            places, lambda place: calls.consumers(place.address, group)
        )
        for error in failed.values():
            if not _means_nobody(error):
                raise error
        return {place: connection for place, connection in found.items() if connection.connection_set}

    async def _running_info(
        self, place: BrokerAddress, group: GroupName, client_id: str, *, stacks: bool = False
    ) -> ConsumerRunningInfo:
        return await self._targets.brokers.members.running_info(
            place.address, group, client_id, stacks=stacks, timeout_s=self._targets.settings.relay_timeout_ms / 1000
        )


def _means_nobody(error: PocketMQError) -> bool:
    return isinstance(error, ConsumerNotOnline | GroupNotFound)


def _members(connections: Mapping[BrokerAddress, ConsumerConnection]) -> list[Member]:
    """Each client once, whatever brokers it is connected to."""
    clients = {client.client_id: client for one in connections.values() for client in one.connection_set}
    return [
        Member(
            client_id=client_id,
            address=client.client_addr,
            language=client.language,
            version=client.version,
            brokers=tuple(
                place.name
                for place, one in connections.items()
                if any(each.client_id == client_id for each in one.connection_set)
            ),
        )
        for client_id, client in sorted(clients.items())
    ]


def _check(config: SubscriptionGroupConfig) -> None:
    if config.retry_max_times < -1 or config.retry_queue_nums < 0:
        raise UsageError(
            f"group {config.group_name!r}: max_reconsume_times must be -1 (without end) or above, retry_queues 0 or above"
        )
