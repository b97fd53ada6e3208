"""Topics: which there are, what lies in their queues, making, changing and deleting them on all brokers and name servers."""

from collections.abc import Iterable, Mapping

import msgspec

from pocketmq.client.admin.targets import BrokerAddress, Targets
from pocketmq.codes import RequestCode
from pocketmq.errors import ImpossibleRequest, PocketMQError, RequestNotSupported, TopicNotFound, UsageError
from pocketmq.model.flags import Perm
from pocketmq.model.names import (
    AUTO_CREATE_TOPIC,
    TopicName,
    group_of,
    is_dlq,
    is_retry,
    is_system_topic,
    reply_topic,
)
from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.api.routes import DeleteKvConfig, DeleteTopicRoute
from pocketmq.protocol.api.topics import CreateTopic
from pocketmq.protocol.bodies.routes import BrokerData
from pocketmq.protocol.bodies.stats import TopicStatsTable
from pocketmq.protocol.bodies.topics import TopicConfig, TopicList
from pocketmq.protocol.java_json import read_body

DEFAULT_QUEUES = 8
"""On each broker, as `mqadmin updateTopic` makes them."""
ORDER_NAMESPACE = "ORDER_TOPIC_CONFIG"
"""Where name servers keep the fixed queues of ordered topics."""


class QueueState(msgspec.Struct, frozen=True):
    """What one queue holds: offsets from `min_offset` to below `max_offset`."""

    queue: MessageQueue
    min_offset: int
    max_offset: int
    last_store_ms: int | None
    """When its newest message was stored; None when nothing is there."""

    @property
    def messages(self) -> int:
        return self.max_offset - self.min_offset


class TopicState(msgspec.Struct, frozen=True, kw_only=True):
    """A topic: how each broker has it, where those are, and what its queues hold."""

    topic: str
    configs: Mapping[str, TopicConfig]
    """By broker."""
    brokers: tuple[BrokerData, ...]
    """As a name server tells them."""
    queues: tuple[QueueState, ...]
    order_conf: str | None = None

    @property
    def messages(self) -> int:
        return sum(queue.messages for queue in self.queues)


class TopicAdmin:
    """Topics of the cluster."""

    def __init__(self, targets: Targets) -> None:
        self._targets = targets

    async def names(self, *, everything: bool = False) -> list[str]:
        """All topics, sorted. With `everything` also retry, dead-letter and the brokers' own topics."""
        answer = await self._targets.instance.name_servers.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        found = set(read_body(TopicList, answer.body).topic_list)
        if not everything:
            info = await self._targets.cluster_info()
            own = {*info.broker_addr_table, *info.cluster_addr_table, *map(reply_topic, info.cluster_addr_table)}
            found = {topic for topic in found - own if _is_ordinary(topic)}
        return sorted(self._targets.shown(topic) for topic in found if self._targets.is_ours(topic))

    async def configs(self) -> dict[str, dict[str, TopicConfig]]:
        """How every broker has every topic, of all kinds: by topic, then by broker. One question to each broker."""
        places = await self._targets.masters()
        calls = self._targets.brokers.topics
        tables = await self._targets.gather(places, lambda place: calls.all_configs(place.address))
        found: dict[str, dict[str, TopicConfig]] = {}
        for place, table in zip(places, tables, strict=True):
            for topic, config in table.topic_config_table.items():
                if self._targets.is_ours(topic):
                    found.setdefault(self._targets.shown(topic), {})[place.name] = config
        return found

    async def queues(self, topic: str) -> list[QueueState]:
        """What lies in the queues of a topic, and nothing else about it."""
        name = self._targets.topic(topic)
        tables = await self._targets.gather(await self._masters_with(name), lambda place: self._stats(place, name))
        return self._queue_states(tables)

    async def queues_of_many(self, brokers: Mapping[str, Iterable[str]]) -> dict[str, list[QueueState]]:
        """The same of many topics, by the brokers that have them: one question for each pair. What cannot be asked is left out."""
        places = {place.name: place for place in await self._targets.masters()}
        asked = [
            (topic, places[broker]) for topic, names in brokers.items() for broker in sorted(names) if broker in places
        ]
        found, failed = await self._targets.gather_what_goes(
            asked, lambda pair: self._stats(pair[1], self._targets.topic(pair[0]))
        )
        silent = {topic for topic, _ in failed}
        return {
            topic: self._queue_states([table for pair, table in found.items() if pair[0] == topic])
            for topic in brokers
            if topic not in silent
        }

    async def describe(self, topic: str) -> TopicState:
        """How a topic is set up, and what lies in its queues; TopicNotFound when there is none."""
        name = self._targets.topic(topic)
        data = (await self._targets.route(name)).data
        places = await self._masters_with(name)
        configs = await self._targets.gather(places, lambda place: self._config(place, name))
        tables = await self._targets.gather(places, lambda place: self._stats(place, name))
        return TopicState(
            topic=topic,
            configs={place.name: config for place, config in zip(places, configs, strict=True)},
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
        """The consumer groups that read a topic, or have read it."""
        name = self._targets.topic(topic)
        calls = self._targets.brokers.groups
        places = await self._masters_with(name)
        answers = await self._targets.gather(places, lambda place: calls.reading(place.address, name))
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
        """Make a topic with so many queues on each broker, and return when producers can find it.

        On all brokers, those of a cluster, or those that are named. ImpossibleRequest when one of them has it already. A broker
        that fails does not undo what others did: the error says where it is made.
        """
        name = self._targets.topic(topic)
        places = await self._targets.masters(cluster, brokers)
        config = TopicConfig(name, queues, queues, perm, order=ordered)
        _check(config)
        having = {place.name for place in await self._masters_with(name, missing_ok=True)}
        if there := [place.name for place in places if place.name in having]:
            raise ImpossibleRequest(f"topic {topic!r} is on broker {there[0]} already; `alter` changes it")
        added = {f"+{key}": value for key, value in (attributes or {}).items()}
        made, failed = await self._targets.gather_what_goes(places, lambda place: self._put(place, config, added))
        for place, error in failed.items():
            if not made:
                raise error
            where = ", ".join(one.name for one in made)
            raise PocketMQError(f"topic {topic!r} is made on {where}, but not on {place.name}: {error}") from error
        await self._targets.until_routed(name, [place.name for place in places])

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
        """Change what is named, on all brokers that have the topic; an attribute that is None is removed.

        To have fewer queues without losing messages, first lower `write_queues`, and `read_queues` when all is read.
        """
        name = self._targets.topic(topic)
        places = await self._masters_with(name)
        if brokers is not None:
            places = _only(places, set(brokers), topic)
        configs = await self._targets.gather(places, lambda place: self._config(place, name))
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
        pairs = list(zip(places, changed, strict=True))
        await self._targets.gather(pairs, lambda pair: self._put(*pair, edits))

    async def delete(self, topic: str) -> None:
        """Drop a topic with its messages and everybody's offsets in it, on all brokers and name servers."""
        name = self._targets.topic(topic)
        if is_system_topic(name):
            raise ImpossibleRequest(f"topic {topic!r} is the brokers' own")
        places = await self._masters_with(name)
        await self._targets.gather(places, lambda place: self._targets.brokers.topics.delete(place.address, name))
        for cluster in sorted({place.cluster for place in places}):
            await self._targets.tell_name_servers(RequestCode.DELETE_TOPIC_IN_NAMESRV, DeleteTopicRoute(name, cluster))
        await self._targets.tell_name_servers(RequestCode.DELETE_KV_CONFIG, DeleteKvConfig(ORDER_NAMESPACE, name))

    async def _put(self, place: BrokerAddress, config: TopicConfig, attributes: Mapping[str, str]) -> None:
        header = CreateTopic(
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
        await self._targets.brokers.topics.create(place.address, header)

    async def _config(self, place: BrokerAddress, topic: TopicName) -> TopicConfig:
        calls = self._targets.brokers.topics
        try:
            return await calls.config(place.address, topic)
        except RequestNotSupported:  # RocketMQ 4.9 tells all of them or none
            config = (await calls.all_configs(place.address)).topic_config_table.get(topic)
            if config is None:
                raise TopicNotFound(f"topic {topic} is not on broker {place.name}") from None
            return config

    async def _stats(self, place: BrokerAddress, topic: TopicName) -> TopicStatsTable:
        return await self._targets.brokers.topics.stats(place.address, topic)

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
        """The brokers that have a topic, by what a name server says."""
        try:
            route = await self._targets.route(topic)
        except TopicNotFound:
            if missing_ok:
                return []
            raise
        having = {each.broker_name for each in route.data.queue_datas}
        return [place for place in await self._targets.masters() if place.name in having]


def _is_ordinary(topic: str) -> bool:
    return not (is_system_topic(topic) or is_retry(topic) or is_dlq(topic) or group_of(topic))


def _only(places: list[BrokerAddress], names: set[str], topic: str) -> list[BrokerAddress]:
    having = {place.name for place in places}
    if missing := sorted(names - having):
        raise UsageError(f"topic {topic!r} is not on broker {missing[0]!r}; it is on: {', '.join(sorted(having))}")
    return [place for place in places if place.name in names]


def _plain(config: TopicConfig, changes: Mapping[str, object]) -> TopicConfig:
    """Without what only a broker can say, and changed."""
    kept = {field: getattr(config, field) for field in TopicConfig.__struct_fields__}
    return TopicConfig(**{**kept, **changes})


def _check(config: TopicConfig) -> None:
    if config.read_queue_nums < 1 or config.write_queue_nums < 1:
        raise UsageError(f"topic {config.topic_name!r} needs at least one queue to read from and one to write to")
    if not 0 <= config.perm <= Perm.READ_WRITE | Perm.INHERIT:
        raise UsageError(f"perm = {config.perm} is none: 6 is read and write, 4 read, 2 write")
