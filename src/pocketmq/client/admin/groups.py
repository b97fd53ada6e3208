"""Consumer groups: list, describe, create, alter, delete; their members and the owners of queues."""

from collections.abc import Iterable, Mapping

import msgspec
from msgspec.structs import replace

from pocketmq.client.admin.targets import BrokerAddress, Operations
from pocketmq.errors import (
    ConsumerNotOnline,
    GroupNotFound,
    ImpossibleRequest,
    PocketMQError,
    UsageError,
)
from pocketmq.model import GroupName, MessageQueue, Subscription
from pocketmq.model.names import dlq_topic, is_internal_group, is_system_group, retry_topic
from pocketmq.model.retries import MAX_RECONSUME_TIMES
from pocketmq.protocol.bodies.clients import (
    ConsumerConnection,
    ConsumerRunningInfo,
    ConsumeType,
    MessageModel,
    RequestMode,
    SubscriptionGroupConfig,
)


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A connected member of a group."""

    client_id: str
    address: str | None
    language: str | None
    version: int
    brokers: tuple[str, ...]
    """The brokers to which it is connected."""


class GroupState(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of a group and what its members report. `consume_type` and `message_model` come from the members."""

    group: str
    configs: Mapping[str, SubscriptionGroupConfig]
    """By broker. A broker may not have the group."""
    members: tuple[Member, ...]
    subscriptions: Mapping[str, Subscription]
    """By topic, from the last heartbeat."""
    consume_type: ConsumeType | None
    message_model: MessageModel | None

    @property
    def is_online(self) -> bool:
        return bool(self.members)


class Owners(msgspec.Struct, frozen=True, kw_only=True):
    """The owners of queues, as the members report them."""

    queues: Mapping[MessageQueue, tuple[str, ...]]
    """Client ids: one for each queue; all members if the group broadcasts, or those that pop it. Queue -1 of a broker, which
    only groups that pop have, means all its queues."""
    silent: Mapping[str, str]
    """Members that did not answer, with the error: their queues are unknown."""

    def of(self, queue: MessageQueue) -> tuple[str, ...]:
        """The owners of a queue; those that pop all queues of its broker, too."""
        whole = MessageQueue(queue.topic, queue.broker_name, -1)
        return tuple(dict.fromkeys((*self.queues.get(queue, ()), *self.queues.get(whole, ()))))


class GroupAdmin(Operations):
    """Consumer groups of the cluster."""

    async def names(self, *, everything: bool = False) -> list[str]:
        """All groups, sorted. With `everything` also the internal groups of RocketMQ, traces and Spark sinks."""
        tables = await self._targets.ask_masters(self._targets.brokers.groups.all_configs)
        found = {group for table in tables.values() for group in table.subscription_group_table}
        return sorted(
            self._targets.shown(group)
            for group in found
            if self._targets.is_ours(group) and (everything or not is_internal_group(group))
        )

    async def configs(self) -> dict[str, dict[str, SubscriptionGroupConfig]]:
        """The configurations of all groups, including internal ones: by group, then by broker."""
        tables = await self._targets.ask_masters(self._targets.brokers.groups.all_configs)
        found: dict[str, dict[str, SubscriptionGroupConfig]] = {}
        for broker, table in tables.items():
            for group, config in table.subscription_group_table.items():
                if self._targets.is_ours(group):
                    found.setdefault(self._targets.shown(group), {})[broker.name] = config
        return found

    async def describe(self, group: str) -> GroupState:
        """The configuration and the members of a group. Raises GroupNotFound if no broker has it."""
        name = self._targets.group(group)
        brokers = await self._targets.masters()
        configs = await self._configs(name, brokers)
        connections = await self._connections(name, brokers)
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
        """The connected members of a group; empty without any."""
        return _members(await self._connections(self._targets.group(group), await self._targets.masters()))

    async def members_of_many(self, groups: Iterable[str]) -> dict[str, list[Member]]:
        """`members` of many groups, with one request for each group and broker."""
        calls, names = self._targets.brokers.members, list(groups)
        brokers = await self._targets.masters()
        pairs = [(name, broker) for name in names for broker in brokers]
        found, failed = await self._targets.gather_with_errors(
            pairs, lambda pair: calls.consumers(pair[1].address, self._targets.group(pair[0]))
        )
        for error in failed.values():
            if not _has_no_members(error):
                raise error
        connections: dict[str, dict[BrokerAddress, ConsumerConnection]] = {name: {} for name in names}
        for (name, broker), connection in found.items():
            if connection.connection_set:
                connections[name][broker] = connection
        return {name: _members(one) for name, one in connections.items()}

    async def running_info(self, group: str, client_id: str, *, stacks: bool = False) -> ConsumerRunningInfo:
        """The running info of a member; with `stacks` also the stacks of its threads."""
        name = self._targets.group(group)
        for broker, connection in (await self._connections(name, await self._targets.masters())).items():
            if any(client.client_id == client_id for client in connection.connection_set):
                return await self._running_info(broker, name, client_id, stacks=stacks)
        raise ConsumerNotOnline(f"no broker has a member {client_id!r} of the group {group!r}")

    async def owners(self, group: str) -> Owners:
        """The owners of queues. Each member is queried through a broker to which it is connected."""
        name = self._targets.group(group)
        connections = await self._connections(name, await self._targets.masters())
        through = {client.client_id: broker for broker, one in connections.items() for client in one.connection_set}
        found, failed = await self._targets.gather_with_errors(
            sorted(through), lambda client_id: self._running_info(through[client_id], name, client_id)
        )
        owned: dict[MessageQueue, list[str]] = {}
        for client_id, info in found.items():
            kept = [queue for queue, state in info.mq_table.items() if not state.dropped]
            kept += [queue for queue, popped in info.mq_pop_table.items() if not popped.dropped]
            for queue in kept:
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
        """Create a group on all brokers, on those of `cluster`, or on `brokers`. Raises ImpossibleRequest if one has it."""
        name = self._targets.group(group)
        masters = await self._targets.masters(cluster, brokers)
        config = SubscriptionGroupConfig(
            name,
            consume_enable=may_consume,
            consume_broadcast_enable=may_broadcast,
            consume_message_orderly=ordered,
            retry_queue_nums=retry_queues,
            retry_max_times=max_reconsume_times,
        )
        _check(config)
        if there := list(await self._configs(name, masters)):
            raise ImpossibleRequest(f"group {group!r} is on broker {there[0]} already; `alter` changes it")
        await self._targets.gather(masters, lambda broker: self._targets.brokers.groups.create(broker.address, config))

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
        """Change settings of a group on all brokers that have it."""
        brokers = {master.name: master for master in await self._targets.masters()}
        configs = await self._configs(self._targets.group(group), list(brokers.values()))
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
        changed = [(brokers[broker], replace(config, **changes)) for broker, config in configs.items()]
        for _, config in changed:
            _check(config)
        await self._targets.gather(changed, lambda pair: self._targets.brokers.groups.create(pair[0].address, pair[1]))

    async def set_mode(
        self,
        group: str,
        topic: str,
        mode: str,
        *,
        shared_with: int = 0,
        cluster: str | None = None,
        brokers: Iterable[str] | None = None,
    ) -> None:
        """Set how members that let brokers assign queues get the messages of a topic: `"PULL"` or `"POP"`. `shared_with`: with
        how many other members each one shares its part of the queues in mode POP; 0 means with all of them.
        """
        if mode not in ("PULL", "POP"):
            raise UsageError(f"mode = {mode!r} must be 'PULL' or 'POP'")
        wanted = RequestMode(self._targets.topic(topic), self._targets.group(group), mode, shared_with)
        calls = self._targets.brokers.groups
        masters = await self._targets.masters(cluster, brokers)
        await self._targets.gather(masters, lambda broker: calls.set_mode(broker.address, wanted))

    async def modes(self, group: str) -> dict[str, dict[str, RequestMode]]:
        """The modes that were set for a group: by topic, then by broker."""
        name = self._targets.group(group)
        tables = await self._targets.ask_masters(self._targets.brokers.groups.modes)
        found: dict[str, dict[str, RequestMode]] = {}
        for broker, table in tables.items():
            for topic, groups in table.message_request_mode_map.items():
                if name in groups:
                    found.setdefault(self._targets.shown(topic), {})[broker.name] = groups[name]
        return found

    async def delete(self, group: str, *, with_topics: bool = True) -> None:
        """Delete a group and its offsets; `with_topics` also its retry and dead-letter topics.

        Raises ImpossibleRequest if it has members, because their heartbeats would create it again.
        """
        name = self._targets.group(group)
        if is_system_group(name):
            raise ImpossibleRequest(f"group {group!r} is a system group; it cannot be deleted")
        brokers = await self._targets.masters()
        configs, connections = await self._configs(name, brokers), await self._connections(name, brokers)
        if members := _members(connections):
            raise ImpossibleRequest(
                f"group {group!r} has {len(members)} members, such as {members[0].client_id}: stop them first"
            )
        if not configs:
            raise GroupNotFound(f"no broker knows the group {group!r}")
        if with_topics:
            for topic in (retry_topic(name), dlq_topic(name)):
                await self._targets.delete_topic(topic, brokers)
        # Last, because pulls that a broker still holds for the group end with its topics, and would create it again.
        calls = self._targets.brokers.groups
        await self._targets.gather(brokers, lambda broker: calls.delete(broker.address, name, with_offsets=True))

    async def _configs(self, group: GroupName, brokers: list[BrokerAddress]) -> dict[str, SubscriptionGroupConfig]:
        """The configurations of a group by broker. Lists all groups, because a query for one group may create it."""
        calls = self._targets.brokers.groups
        tables = await self._targets.gather(brokers, lambda broker: calls.all_configs(broker.address))
        return {
            broker.name: table.subscription_group_table[group]
            for broker, table in zip(brokers, tables, strict=True)
            if group in table.subscription_group_table
        }

    async def _connections(
        self, group: GroupName, brokers: list[BrokerAddress]
    ) -> dict[BrokerAddress, ConsumerConnection]:
        """The connected members at each broker that has any."""
        calls = self._targets.brokers.members
        found, failed = await self._targets.gather_with_errors(
            brokers, lambda broker: calls.consumers(broker.address, group)
        )
        for error in failed.values():
            if not _has_no_members(error):
                raise error
        return {broker: connection for broker, connection in found.items() if connection.connection_set}

    async def _running_info(
        self, broker: BrokerAddress, group: GroupName, client_id: str, *, stacks: bool = False
    ) -> ConsumerRunningInfo:
        return await self._targets.brokers.members.running_info(
            broker.address, group, client_id, stacks=stacks, timeout_s=self._targets.settings.relay_timeout_ms / 1000
        )


def _has_no_members(error: PocketMQError) -> bool:
    return isinstance(error, ConsumerNotOnline | GroupNotFound)


def _members(connections: Mapping[BrokerAddress, ConsumerConnection]) -> list[Member]:
    """Each client once, even if it is connected to several brokers."""
    clients = {client.client_id: client for one in connections.values() for client in one.connection_set}
    return [
        Member(
            client_id=client_id,
            address=client.client_addr,
            language=client.language,
            version=client.version,
            brokers=tuple(
                broker.name
                for broker, one in connections.items()
                if any(each.client_id == client_id for each in one.connection_set)
            ),
        )
        for client_id, client in sorted(clients.items())
    ]


def _check(config: SubscriptionGroupConfig) -> None:
    if config.retry_max_times < -1 or config.retry_queue_nums < 0:
        raise UsageError(
            f"group {config.group_name!r}: max_reconsume_times must be at least -1 (no limit), and retry_queues at least 0"
        )
