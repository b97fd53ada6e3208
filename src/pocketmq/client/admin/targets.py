"""The servers of an administrator's operation, the base of all operations, and reading of queues.

    brokers        the list from a name server, at most `brokers_good_ms` old    settings, groups, statistics
    topic          its current route                                             queues, offsets, messages
    name servers   all of them, because they do not replicate                    configuration

Inside of this package, names have their namespace. `topic` and `group` add it, `shown` removes it.

Queues are read with pulls that belong to no group:

    offset ── pull ── messages ──► returned ──► next pull at the offset in the response
                 ├─ no message, or no more ──► end
                 └─ the offset is below the minimum, or in a hole ──► next pull at the offset in the response
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Protocol, TypeVar

import msgspec

from pocketmq.client.cluster.brokers import MASTER_ID
from pocketmq.client.cluster.instance import Instance
from pocketmq.client.cluster.routes import TopicRoute
from pocketmq.client.received import is_hole, readable, with_shown_topic
from pocketmq.client.settings import ClientOptions, ClientSettings
from pocketmq.codes import PullFlag, RequestCode, ResponseCode
from pocketmq.errors import InvalidSetting, NetworkError, PocketMQError, ProtocolError, TopicNotFound, UsageError
from pocketmq.model import ExpressionType, GroupName, MessageQueue, StoredMessage, TopicName
from pocketmq.model.names import TOOLS_GROUP, parse_group, parse_topic, unwrap, wrap
from pocketmq.model.subscription import ALL
from pocketmq.net import Address
from pocketmq.protocol.api.administration import DeleteTopicRoute
from pocketmq.protocol.api.messages import PullMessage
from pocketmq.protocol.bodies.topics import ClusterInfo
from pocketmq.protocol.command import Command
from pocketmq.protocol.fields import Fields
from pocketmq.protocol.record import decode_records

T = TypeVar("T")
K = TypeVar("K")


class AdminOptions(ClientOptions, total=False):
    """The keyword arguments of an administrator; see `AdminSettings`."""

    relay_timeout_ms: int
    route_timeout_ms: int
    max_calls_at_once: int
    brokers_good_ms: int
    decompress: bool


class AdminSettings(ClientSettings, frozen=True, kw_only=True):
    """The options of an administrator."""

    relay_timeout_ms: int = 15_000
    """The timeout of requests that a broker forwards to a client."""
    route_timeout_ms: int = 10_000
    """How long `create` waits until name servers return the route of the new topic."""
    max_calls_at_once: int = 32
    """The limit on concurrent requests of one call."""
    brokers_good_ms: int = 0
    """How long the client reuses a list of brokers. 0: every call requests it."""
    decompress: bool = True
    """Return decompressed bodies. False: return bodies as they are stored."""

    @property
    def instance_mark(self) -> str:
        """Separate connections: those of consumers begin with heartbeats, which must not reach brokers without their topics."""
        return "#admin"


class BrokerAddress(msgspec.Struct, frozen=True):
    """One broker. The one with id 0 is the master."""

    name: str
    cluster: str
    broker_id: int
    address: Address

    @property
    def is_master(self) -> bool:
        return self.broker_id == MASTER_ID


class Targets:
    """The connections and routes that all operations share."""

    def __init__(self, instance: Instance, settings: AdminSettings) -> None:
        self.instance = instance
        self.settings = settings
        self.brokers = instance.brokers
        self.clock = instance.clock
        self._listed: tuple[float, ClusterInfo] | None = None

    # names

    def topic(self, name: str) -> TopicName:
        return parse_topic(wrap(self.settings.namespace, name))

    def group(self, name: str) -> GroupName:
        return parse_group(wrap(self.settings.namespace, name))

    def shown(self, name: str) -> str:
        """A topic or group without the namespace."""
        return unwrap(self.settings.namespace, name)

    def shown_queue(self, queue: MessageQueue) -> MessageQueue:
        if self.settings.namespace is None:
            return queue
        topic = self.shown(queue.topic)
        return queue if topic == queue.topic else MessageQueue(topic, queue.broker_name, queue.queue_id)

    def wire_queue(self, queue: MessageQueue) -> MessageQueue:
        topic = self.topic(queue.topic)
        return queue if topic == queue.topic else MessageQueue(topic, queue.broker_name, queue.queue_id)

    def is_ours(self, name: str) -> bool:
        """Whether a name belongs to the namespace of this client. Without a namespace, every name does."""
        return self.settings.namespace is None or unwrap(self.settings.namespace, name) != name

    # brokers

    async def cluster_info(self) -> ClusterInfo:
        now, good_s = self.clock.monotonic(), self.settings.brokers_good_ms / 1000
        if self._listed is not None and now - self._listed[0] < good_s:
            return self._listed[1]
        info = await self.instance.name_servers.cluster_info()
        self._listed = now, info
        return info

    async def all_brokers(self, cluster: str | None = None) -> list[BrokerAddress]:
        """All brokers of a cluster or of all clusters, including slaves. Raises UsageError for an unknown cluster."""
        info = await self.cluster_info()
        if cluster is not None and cluster not in info.cluster_addr_table:
            known = ", ".join(sorted(info.cluster_addr_table)) or "none"
            raise UsageError(f"there is no cluster {cluster!r}; the name servers list: {known}")
        found = [
            BrokerAddress(name, data.cluster or "", number, address)
            for name, data in sorted(info.broker_addr_table.items())
            if cluster is None or name in info.cluster_addr_table[cluster]
            for number, text in sorted(data.broker_addrs.items())
            if (address := _address(text)) is not None
        ]
        self.brokers.learn_all(info.broker_addr_table.values())
        return found

    async def masters(self, cluster: str | None = None, names: Iterable[str] | None = None) -> list[BrokerAddress]:
        """All masters, or those of a cluster, or those with these names. Raises UsageError for an unknown name."""
        brokers = [broker for broker in await self.all_brokers(cluster) if broker.is_master]
        if names is not None:
            wanted = list(dict.fromkeys(names))
            by_name = {broker.name: broker for broker in brokers}
            if missing := [name for name in wanted if name not in by_name]:
                raise UsageError(f"there is no broker {missing[0]!r}; there are: {', '.join(by_name) or 'none'}")
            brokers = [by_name[name] for name in wanted]
        if not brokers:
            raise NetworkError(f"no broker is registered at the name servers {self.instance.name_servers}")
        return brokers

    async def master(self, name: str) -> BrokerAddress:
        [broker] = await self.masters(names=[name])
        return broker

    # topics

    async def route(self, topic: TopicName) -> TopicRoute:
        """The current route of a topic. Raises TopicNotFound if no broker has it."""
        return await self.instance.routes.refresh(topic)

    async def until_routed(self, topic: TopicName, names: Iterable[str]) -> None:
        """Wait until the route of `topic` has these brokers. Brokers register a new topic with a short delay."""
        wanted = set(names)
        try:
            async with asyncio.timeout(self.settings.route_timeout_ms / 1000):
                while not wanted <= await self._brokers_of(topic):  # noqa: ASYNC110 name servers do not notify clients
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise NetworkError(
                f"the topic {topic} is created, but name servers {self.instance.name_servers} do not have its route yet"
            ) from None

    async def _brokers_of(self, topic: TopicName) -> set[str]:
        try:
            return {each.broker_name for each in (await self.route(topic)).data.queue_datas}
        except TopicNotFound:
            return set()

    # concurrent requests

    async def gather(self, items: Sequence[K], call: Callable[[K], Awaitable[T]]) -> list[T]:
        """The result of `call` for each item, in order. Raises the first error."""
        outcomes = await self._all(items, call)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        return [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]

    async def gather_with_errors(
        self, items: Sequence[K], call: Callable[[K], Awaitable[T]]
    ) -> tuple[dict[K, T], dict[K, PocketMQError]]:
        """The results by item, and the errors by item."""
        found: dict[K, T] = {}
        failed: dict[K, PocketMQError] = {}
        for item, outcome in zip(items, await self._all(items, call), strict=True):
            if isinstance(outcome, PocketMQError):
                failed[item] = outcome
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                found[item] = outcome
        return found, failed

    async def _all(self, items: Sequence[K], call: Callable[[K], Awaitable[T]]) -> list[T | BaseException]:
        slots = asyncio.Semaphore(self.settings.max_calls_at_once)

        async def limited(item: K) -> T:
            async with slots:
                try:
                    return await call(item)
                except PocketMQError as error:
                    if isinstance(item, BrokerAddress):
                        error.add_note(f"broker {item.name} at {item.address} failed")
                    raise

        return await asyncio.gather(*map(limited, items), return_exceptions=True)

    async def ask_masters(self, call: Callable[[Address], Awaitable[T]]) -> dict[BrokerAddress, T]:
        """The response of each master. Raises the first error."""
        brokers = await self.masters()
        return dict(zip(brokers, await self.gather(brokers, lambda broker: call(broker.address)), strict=True))

    async def ask_name_servers(
        self, code: RequestCode, header: Fields | None = None, body: bytes = b""
    ) -> list[Command]:
        """The responses of all name servers. Raises the first error."""
        ask, addresses = self.instance.rpc.ask, self.instance.name_servers.addresses
        return await self.gather(addresses, lambda address: ask(address, code, header, body))

    async def delete_topic(self, topic: TopicName, brokers: Sequence[BrokerAddress]) -> None:
        """Delete a topic on these brokers, and in their clusters from all name servers. A broker may not have it."""

        async def delete(broker: BrokerAddress) -> None:
            with suppress(TopicNotFound):
                await self.brokers.topics.delete(broker.address, topic)

        await self.gather(brokers, delete)
        for cluster in sorted({broker.cluster for broker in brokers}):
            await self.ask_name_servers(RequestCode.DELETE_TOPIC_IN_NAMESRV, DeleteTopicRoute(topic, cluster))


class AdminClient(Protocol):
    """A client that administers a cluster."""

    @property
    def targets(self) -> Targets:
        """Raises WrongState unless the client runs."""


class Operations:
    """Base of the operations on one kind of thing."""

    def __init__(self, client: AdminClient) -> None:
        self._client = client

    @property
    def _targets(self) -> Targets:
        return self._client.targets


def _address(text: str) -> Address | None:
    try:
        return Address.parse(text)
    except InvalidSetting:
        return None  # an invalid address cannot be used


PULL_MESSAGES = 64
"""The limit for one pull. Brokers may return fewer."""


def check_limit(limit: int) -> None:
    """Raise UsageError unless the limit is positive."""
    if limit < 1:
        raise UsageError(f"limit = {limit} must be above 0")


async def read_queue(targets: Targets, queue: MessageQueue, begin: int, end: int) -> AsyncIterator[StoredMessage]:
    """The messages of `queue` with offsets from `begin` to below `end`, as they are stored."""
    offset = begin
    while offset < end:
        messages, following = await _pull(targets, queue, offset, min(end - offset, PULL_MESSAGES))
        for message in messages:
            if message.queue_offset >= end:
                return
            yield message
        if following <= offset:
            return
        offset = following


async def first_at(targets: Targets, queue: MessageQueue, offset: int) -> StoredMessage | None:
    """The message at this offset, or the next one."""
    messages, following = await _pull(targets, queue, offset, 1)
    while not messages and following > offset:
        offset = following
        messages, following = await _pull(targets, queue, offset, 1)
    return messages[0] if messages else None


def shown_message(targets: Targets, message: StoredMessage) -> StoredMessage:
    """A message without the namespace, and decompressed. A damaged body stays as it is stored, for inspection."""
    if not targets.settings.decompress:
        return with_shown_topic(message, targets.settings.namespace)
    try:
        return readable(message, targets.settings.namespace)
    except ProtocolError:
        return with_shown_topic(message, targets.settings.namespace)


async def _pull(targets: Targets, queue: MessageQueue, offset: int, limit: int) -> tuple[list[StoredMessage], int]:
    """Messages and the next offset; the same offset at the end."""
    header = PullMessage(
        consumer_group=TOOLS_GROUP,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_msg_nums=limit,
        sys_flag=PullFlag.SUBSCRIPTION,
        commit_offset=0,
        suspend_timeout_millis=0,
        sub_version=0,
        subscription=ALL,
        expression_type=ExpressionType.TAG,
    )
    address = targets.brokers.reader(queue.broker_name)
    timeout_s = targets.settings.call_timeout_ms / 1000
    pulled = await targets.brokers.messages.pull(address, queue.broker_name, header, timeout_s=timeout_s)
    if pulled.code == ResponseCode.SUCCESS:
        return decode_records(pulled.records, queue=queue), pulled.header.next_begin_offset
    following = pulled.header.next_begin_offset
    if pulled.code == ResponseCode.PULL_NOT_FOUND and not is_hole(pulled.code, following, offset):
        return [], offset
    return [], following
