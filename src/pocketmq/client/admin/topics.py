"""Topics: list, describe, create, alter and delete them on brokers and name servers."""

from collections.abc import Iterable, Mapping

import msgspec

from pocketmq.client.admin.targets import BrokerAddress, Operations
from pocketmq.codes import Perm, RequestCode
from pocketmq.errors import ImpossibleRequest, PocketMQError, RequestNotSupported, TopicNotFound, UsageError
from pocketmq.model import MessageQueue, TopicName
from pocketmq.model.names import AUTO_CREATE_TOPIC, group_of, is_dlq, is_retry, is_system_topic, reply_topic
from pocketmq.protocol.api.administration import KvKey
from pocketmq.protocol.bodies.topics import BrokerData, TopicConfig, TopicStatsTable

DEFAULT_QUEUES = 8
"""For each broker, as with `mqadmin updateTopic`."""
ORDER_NAMESPACE = "ORDER_TOPIC_CONFIG"
"""The namespace of the order configuration in name servers."""


class QueueState(msgspec.Struct, frozen=True):
    """One queue: it has offsets from `min_offset` to below `max_offset`."""

    queue: MessageQueue
    min_offset: int
    max_offset: int
    last_store_ms: int | None
    """The store time of the newest message; None for an empty queue."""

    @property
    def messages(self) -> int:
        return self.max_offset - self.min_offset


class TopicState(msgspec.Struct, frozen=True, kw_only=True):
    """A topic: its configurations, brokers and queues."""

    topic: str
    configs: Mapping[str, TopicConfig]
    """By broker."""
    brokers: tuple[BrokerData, ...]
    """As in the route."""
    queues: tuple[QueueState, ...]
    order_conf: str | None = None

    @property
    def messages(self) -> int:
        return sum(queue.messages for queue in self.queues)


class TopicAdmin(Operations):
    """Topics of the cluster."""

    async def names(self, *, everything: bool = False) -> list[str]:
        """All topics, sorted. With `everything` also retry, dead-letter and system topics."""
        found = set(await self._targets.instance.name_servers.topics())
        if not everything:
            info = await self._targets.cluster_info()
            own = {*info.broker_addr_table, *info.cluster_addr_table, *map(reply_topic, info.cluster_addr_table)}
            found = {topic for topic in found - own if _is_ordinary(topic)}
        return sorted(self._targets.shown(topic) for topic in found if self._targets.is_ours(topic))

    async def configs(self) -> dict[str, dict[str, TopicConfig]]:
        """The configurations of all topics, with one request to each broker: by topic, then by broker."""
        tables = await self._targets.ask_masters(self._targets.brokers.topics.all_configs)
        found: dict[str, dict[str, TopicConfig]] = {}
        for broker, table in tables.items():
            for topic, config in table.topic_config_table.items():
                if self._targets.is_ours(topic):
                    found.setdefault(self._targets.shown(topic), {})[broker.name] = config
        return found

    async def queues(self, topic: str) -> list[QueueState]:
        """The queues of a topic."""
        name = self._targets.topic(topic)
        tables = await self._targets.gather(await self._masters_with(name), lambda broker: self._stats(broker, name))
        return self._queue_states(tables)

    async def queues_of_many(self, brokers: Mapping[str, Iterable[str]]) -> dict[str, list[QueueState]]:
        """`queues` of many topics with the brokers that have them, one request for each pair. Topics with an error are left out."""
        masters = {master.name: master for master in await self._targets.masters()}
        pairs = [
            (topic, masters[broker])
            for topic, names in brokers.items()
            for broker in sorted(names)
            if broker in masters
        ]
        found, failed = await self._targets.gather_with_errors(
            pairs, lambda pair: self._stats(pair[1], self._targets.topic(pair[0]))
        )
        without_answer = {topic for topic, _ in failed}
        return {
            topic: self._queue_states([table for pair, table in found.items() if pair[0] == topic])
            for topic in brokers
            if topic not in without_answer
        }

    async def describe(self, topic: str) -> TopicState:
        """The configurations, brokers and queues of a topic. Raises TopicNotFound if it does not exist."""
        name = self._targets.topic(topic)
        data = (await self._targets.route(name)).data
        brokers = await self._masters_with(name)
        configs = await self._targets.gather(brokers, lambda broker: self._config(broker, name))
        tables = await self._targets.gather(brokers, lambda broker: self._stats(broker, name))
        return TopicState(
            topic=topic,
            configs={broker.name: config for broker, config in zip(brokers, configs, strict=True)},
            brokers=data.broker_datas,
            queues=tuple(self._queue_states(tables)),
            order_conf=data.order_topic_conf,
        )

    async def exists(self, topic: str) -> bool:
        try:
            await self._targets.route(self._targets.topic(topic))
        except TopicNotFound:
            return False
        return True

    async def readers(self, topic: str) -> list[str]:
        """The consumer groups that consume a topic, or did."""
        name = self._targets.topic(topic)
        calls = self._targets.brokers.groups
        brokers = await self._masters_with(name)
        answers = await self._targets.gather(brokers, lambda broker: calls.reading(broker.address, name))
        # RocketMQ 5.3 names the topic itself as one of its groups.
        found = {group for answer in answers for group in answer.group_list} - {name}
        return sorted(map(self._targets.shown, found))

    async def create(
        self,
        topic: str,
        *,
        queues: int = DEFAULT_QUEUES,
        perm: int = Perm.READ_WRITE,
        ordered: bool = False,
        attributes: Mapping[str, str] | None = None,
        cluster: str | None = None,
        brokers: Iterable[str] | None = None,
    ) -> None:
        """Create a topic with this number of queues on each broker, and return when name servers have its route.

        The brokers are all, those of `cluster`, or `brokers`. Raises ImpossibleRequest if one of them has the topic. If some
        brokers fail, the error says on which ones the topic is created.
        """
        name = self._targets.topic(topic)
        masters = await self._targets.masters(cluster, brokers)
        config = TopicConfig(name, queues, queues, perm, order=ordered)
        _check(config)
        having = {broker.name for broker in await self._masters_with(name, missing_ok=True)}
        if there := [broker.name for broker in masters if broker.name in having]:
            raise ImpossibleRequest(f"topic {topic!r} is on broker {there[0]} already; `alter` changes it")
        added = {f"+{key}": value for key, value in (attributes or {}).items()}
        made, failed = await self._targets.gather_with_errors(masters, lambda broker: self._put(broker, config, added))
        for broker, error in failed.items():
            if not made:
                raise error
            where = ", ".join(one.name for one in made)
            raise PocketMQError(f"topic {topic!r} is created on {where}, but not on {broker.name}: {error}") from error
        await self._targets.until_routed(name, [broker.name for broker in masters])

    async def alter(
        self,
        topic: str,
        *,
        queues: int | None = None,
        read_queues: int | None = None,
        write_queues: int | None = None,
        perm: int | None = None,
        ordered: bool | None = None,
        attributes: Mapping[str, str | None] | None = None,
        brokers: Iterable[str] | None = None,
    ) -> None:
        """Change settings of a topic on all brokers that have it. An attribute with the value None is removed.

        To reduce queues without losing messages, first lower `write_queues`, then `read_queues` when all messages are consumed.
        """
        name = self._targets.topic(topic)
        masters = await self._masters_with(name)
        if brokers is not None:
            masters = _only(masters, set(brokers), topic)
        configs = await self._targets.gather(masters, lambda broker: self._config(broker, name))
        wanted: dict[str, object] = {
            "read_queue_nums": read_queues if read_queues is not None else queues,
            "write_queue_nums": write_queues if write_queues is not None else queues,
            "perm": perm,
            "order": ordered,
        }
        changes = {field: value for field, value in wanted.items() if value is not None}
        changed = [_plain(config, changes) for config in configs]
        for config in changed:
            _check(config)
        edits = {f"-{key}" if value is None else f"+{key}": value or "" for key, value in (attributes or {}).items()}
        pairs = list(zip(masters, changed, strict=True))
        await self._targets.gather(pairs, lambda pair: self._put(*pair, edits))

    async def delete(self, topic: str) -> None:
        """Delete a topic with its messages and all offsets on all brokers and name servers."""
        name = self._targets.topic(topic)
        if is_system_topic(name):
            raise ImpossibleRequest(f"topic {topic!r} is a system topic; it cannot be deleted")
        await self._targets.delete_topic(name, await self._masters_with(name))
        await self._targets.ask_name_servers(RequestCode.DELETE_KV_CONFIG, KvKey(ORDER_NAMESPACE, name))

    async def _put(self, broker: BrokerAddress, config: TopicConfig, attributes: Mapping[str, str]) -> None:
        await self._targets.brokers.topics.create(
            broker.address,
            topic=config.topic_name,
            default_topic=AUTO_CREATE_TOPIC,
            read_queue_nums=config.read_queue_nums,
            write_queue_nums=config.write_queue_nums,
            perm=config.perm,
            topic_filter_type=config.topic_filter_type,
            order=config.order,
            topic_sys_flag=config.topic_sys_flag,
            attributes=",".join(f"{key}={value}" if value else key for key, value in attributes.items()) or None,
        )

    async def _config(self, broker: BrokerAddress, topic: TopicName) -> TopicConfig:
        calls = self._targets.brokers.topics
        try:
            return await calls.config(broker.address, topic)
        except RequestNotSupported:  # RocketMQ 4.9 can only list all
            config = (await calls.all_configs(broker.address)).topic_config_table.get(topic)
            if config is None:
                raise TopicNotFound(f"topic {topic} is not on broker {broker.name}") from None
            return config

    async def _stats(self, broker: BrokerAddress, topic: TopicName) -> TopicStatsTable:
        return await self._targets.brokers.topics.stats(broker.address, topic)

    def _queue_states(self, tables: Iterable[TopicStatsTable]) -> list[QueueState]:
        return [
            QueueState(
                self._targets.shown_queue(queue),
                one.min_offset,
                one.max_offset,
                one.last_update_timestamp if one.last_update_timestamp > 0 else None,
            )
            for table in tables
            for queue, one in sorted(table.offset_table.items())
        ]

    async def _masters_with(self, topic: TopicName, *, missing_ok: bool = False) -> list[BrokerAddress]:
        """The masters in the route of a topic."""
        try:
            route = await self._targets.route(topic)
        except TopicNotFound:
            if missing_ok:
                return []
            raise
        having = {each.broker_name for each in route.data.queue_datas}
        return [broker for broker in await self._targets.masters() if broker.name in having]


def _is_ordinary(topic: str) -> bool:
    return not (is_system_topic(topic) or is_retry(topic) or is_dlq(topic) or group_of(topic))


def _only(brokers: list[BrokerAddress], names: set[str], topic: str) -> list[BrokerAddress]:
    having = {broker.name for broker in brokers}
    if missing := sorted(names - having):
        raise UsageError(f"topic {topic!r} is not on broker {missing[0]!r}; it is on: {', '.join(sorted(having))}")
    return [broker for broker in brokers if broker.name in names]


def _plain(config: TopicConfig, changes: Mapping[str, object]) -> TopicConfig:
    """A changed configuration, without the fields that only brokers report."""
    kept = {field: getattr(config, field) for field in TopicConfig.__struct_fields__}
    return TopicConfig(**{**kept, **changes})


def _check(config: TopicConfig) -> None:
    if config.read_queue_nums < 1 or config.write_queue_nums < 1:
        raise UsageError(f"topic {config.topic_name!r} needs at least one queue to read from and one to write to")
    if not 0 <= config.perm <= Perm.READ_WRITE | Perm.INHERIT:
        raise UsageError(f"perm = {config.perm} is not a permission: 6 is read and write, 4 read, 2 write")
