"""Whom an administrator asks: all brokers, the brokers of a topic, all name servers.

    brokers        as a name server lists them now, or did     settings, groups, statistics
                   a moment ago, if `brokers_good_ms` allows
    a topic        its route, asked afresh                     queues, offsets, messages
    name servers   each of them: they share nothing, so what one of them is told the others do not know

Names are those of the wire in here; `topic`, `group` and `shown` lead there and back.

Reading queues without being anybody's member: straight pulls, from one offset to another.

offset ── pull ── messages ──► handed out ──► pull again from where the broker says
             ├─ nothing there, or nothing more ──► the end
             └─ the queue begins later, or has a hole ──► go on there
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

import msgspec

from pocketmq.client.cluster.brokers import MASTER_ID
from pocketmq.client.cluster.instance import Instance
from pocketmq.client.cluster.message_calls import is_hole
from pocketmq.client.cluster.routes import TopicRoute
from pocketmq.client.received import readable, with_shown_topic
from pocketmq.client.settings import ClientOptions, ClientSettings
from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.errors import InvalidSetting, NetworkError, PocketMQError, ProtocolError, TopicNotFound, UsageError
from pocketmq.model.flags import PullFlag
from pocketmq.model.message import StoredMessage
from pocketmq.model.names import TOOLS_GROUP, GroupName, TopicName, parse_group, parse_topic, unwrap, wrap
from pocketmq.model.queue import MessageQueue
from pocketmq.model.subscription import ALL, ExpressionType
from pocketmq.net.address import Address
from pocketmq.protocol.api.pulling import PullMessage
from pocketmq.protocol.bodies.routes import ClusterInfo
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
        """A client of its own: the lines of consumers begin with heartbeats, which must not reach brokers they do not read."""
        return "#admin"


class BrokerAddress(msgspec.Struct, frozen=True):
    """One broker: where it is. Id 0 is the master of its name."""

    name: str
    cluster: str
    broker_id: int
    address: Address

    @property
    def is_master(self) -> bool:
        return self.broker_id == MASTER_ID


class Targets:
    """The ways to servers that all families share."""

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
        """A topic or group of the wire, as users of the namespace call it."""
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
        """Whether a name of the wire is one of this namespace; every name is, when there is none."""
        return self.settings.namespace is None or unwrap(self.settings.namespace, name) != name

    # brokers

    async def cluster_info(self) -> ClusterInfo:
        now, good_s = self.clock.monotonic(), self.settings.brokers_good_ms / 1000
        if self._listed is not None and now - self._listed[0] < good_s:
            return self._listed[1]
        info = await self.instance.name_servers.cluster_info()
        self._listed = now, info
        return info

    async def places(self, cluster: str | None = None) -> list[BrokerAddress]:
        """All brokers, slaves too, of one cluster or of all; UsageError when there is no such cluster."""
        info = await self.cluster_info()
        if cluster is not None and cluster not in info.cluster_addr_table:
            known = ", ".join(sorted(info.cluster_addr_table)) or "none"
            raise UsageError(f"there is no cluster {cluster!r}; name servers know: {known}")
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
        """All masters, or those of a cluster, or those of these names; UsageError for a name that is none."""
        places = [place for place in await self.places(cluster) if place.is_master]
        if names is not None:
            wanted = list(dict.fromkeys(names))
            by_name = {place.name: place for place in places}
            if missing := [name for name in wanted if name not in by_name]:
                raise UsageError(f"there is no broker {missing[0]!r}; there are: {', '.join(by_name) or 'none'}")
            places = [by_name[name] for name in wanted]
        if not places:
            raise NetworkError(f"no broker is registered at the name servers {self.instance.name_servers}")
        return places

    async def master(self, name: str) -> BrokerAddress:
        [place] = await self.masters(names=[name])
        return place

    # topics

    async def route(self, topic: TopicName) -> TopicRoute:
        """Where a topic is now; TopicNotFound when no broker has it."""
        return await self.instance.routes.refresh(topic)

    async def until_routed(self, topic: TopicName, names: Iterable[str]) -> None:
        """Return when name servers tell of `topic` on these brokers. They are told by brokers, a moment later."""
        wanted = set(names)
        try:
            async with asyncio.timeout(self.settings.route_timeout_ms / 1000):
                while not wanted <= await self._brokers_of(topic):  # noqa: ASYNC110 name servers tell nobody
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise NetworkError(
                f"brokers made the topic {topic}, but name servers do not tell of it yet; asked: {self.instance.name_servers}"
            ) from None

    async def _brokers_of(self, topic: TopicName) -> set[str]:
        try:
            return {each.broker_name for each in (await self.route(topic)).data.queue_datas}
        except TopicNotFound:
            return set()

    # asking many

    async def gather(self, asked: Sequence[K], ask: Callable[[K], Awaitable[T]]) -> list[T]:
        """What each comes to, in their order; the first failure when one fails."""
        outcomes = await self._all(asked, ask)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        return [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]

    async def gather_what_goes(
        self, asked: Sequence[K], ask: Callable[[K], Awaitable[T]]
    ) -> tuple[dict[K, T], dict[K, PocketMQError]]:
        """What those say that can be asked, and why the others cannot."""
        found: dict[K, T] = {}
        failed: dict[K, PocketMQError] = {}
        for one, outcome in zip(asked, await self._all(asked, ask), strict=True):
            if isinstance(outcome, PocketMQError):
                failed[one] = outcome
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                found[one] = outcome
        return found, failed

    async def _all(self, asked: Sequence[K], ask: Callable[[K], Awaitable[T]]) -> list[T | BaseException]:
        turns = asyncio.Semaphore(self.settings.max_calls_at_once)

        async def in_turn(one: K) -> T:
            async with turns:
                try:
                    return await ask(one)
                except PocketMQError as error:
                    if isinstance(one, BrokerAddress):
                        error.add_note(f"broker {one.name} at {one.address} was asked")
                    raise

        return await asyncio.gather(*map(in_turn, asked), return_exceptions=True)

    # name servers

    async def tell_name_servers(self, code: RequestCode, header: Fields | None = None, body: bytes = b"") -> None:
        """Tell each of them; the first failure when one could not be told."""

        async def tell(address: Address) -> None:
            await self.instance.rpc.ask(address, code, header, body)

        await self.gather(self.instance.name_servers.addresses, tell)


def _address(text: str) -> Address | None:
    try:
        return Address.parse(text)
    except InvalidSetting:
        return None  # nobody can reach it


PULL_MESSAGES = 64
"""Of one pull. Brokers give fewer when they like."""


def check_limit(limit: int) -> None:
    """UsageError for one that lets nothing through."""
    if limit < 1:
        raise UsageError(f"limit = {limit} must be above 0")


async def read_queue(targets: Targets, queue: MessageQueue, begin: int, end: int) -> AsyncIterator[StoredMessage]:
    """The messages of `queue`, of the wire, with offsets from `begin` to below `end`, as they are stored."""
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
    """The message at this offset, or the next one that is there."""
    messages, following = await _pull(targets, queue, offset, 1)
    while not messages and following > offset:
        offset = following
        messages, following = await _pull(targets, queue, offset, 1)
    return messages[0] if messages else None


def shown_message(targets: Targets, message: StoredMessage) -> StoredMessage:
    """A message as users see it; one whose body is damaged stays as it is stored, so that it can be looked at."""
    if not targets.settings.decompress:
        return with_shown_topic(message, targets.settings.namespace)
    try:
        return readable(message, targets.settings.namespace)
    except ProtocolError:
        return with_shown_topic(message, targets.settings.namespace)


async def _pull(targets: Targets, queue: MessageQueue, offset: int, limit: int) -> tuple[list[StoredMessage], int]:
    """Messages, and where to go on; the same offset when there is nothing more."""
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
