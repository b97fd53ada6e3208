"""Routes and assignments, and what is cached of topics and groups.

    QueryRoute        each queue of each broker, readable, writable or both, with the types that the topic accepts. The endpoints of
                      all brokers are those by which the client has reached this server.
    QueryAssignment   one queue with number -1 for each readable broker: every member receives from all queues, and leases keep
                      members apart. A FIFO group gets every queue, each of which is received from one message group at a time.

A topic without `message.type` accepts NORMAL messages only, as in Apache RocketMQ.
"""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, TypeVar

from pocketmq.access.accounts import Action, Resource
from pocketmq.client.cluster.brokers import MASTER_ID
from pocketmq.client.cluster.calls import named
from pocketmq.client.cluster.routes import TopicRoute
from pocketmq.clock import Clock
from pocketmq.codes import Perm, RequestCode
from pocketmq.errors import GroupNotFound, NetworkError, RequestNotSupported, TopicNotFound
from pocketmq.model import is_group_topic
from pocketmq.net import Address
from pocketmq.protocol.api.administration import ForGroup
from pocketmq.protocol.bodies.clients import SubscriptionGroupConfig
from pocketmq.protocol.bodies.topics import BrokerData, QueueData
from pocketmq.protocol.command import Command
from pocketmq.proxy import messages
from pocketmq.proxy.callers import Caller
from pocketmq.proxy.conversion import group_of, topic_of
from pocketmq.proxy.messages import (
    AddressScheme,
    Assignment,
    Code,
    Endpoints,
    MessageQueue,
    MessageType,
    Permission,
    QueryAssignmentRequest,
    QueryAssignmentResponse,
    QueryRouteRequest,
    QueryRouteResponse,
)
from pocketmq.proxy.sessions import Cached, Session, Sessions
from pocketmq.proxy.statuses import OK, Refused

T = TypeVar("T")

MAX_CACHED: Final = 100_000
ALL_QUEUES: Final = -1
_MIXED: Final = (MessageType.NORMAL, MessageType.FIFO, MessageType.DELAY, MessageType.TRANSACTION)


class Facts:
    """What brokers know of topics and groups, for a short time."""

    def __init__(self, clock: Clock, cached_s: float) -> None:
        self._clock = clock
        self._cached_s = cached_s
        self._cached: dict[tuple[str, str], Cached] = {}

    async def topic_type(self, session: Session, topic: str) -> str:
        """The `message.type` of a topic that has a route. TopicNotFound."""
        if is_group_topic(topic):
            return "MIXED"
        found = self._get("topic", topic)
        if found is None:
            try:
                config = await _first_answer(session, topic, lambda name: session.brokers.topics.config(name, topic))
                found = config.attributes.get("message.type", MessageType.NORMAL.name)
            except RequestNotSupported:
                found = MessageType.NORMAL.name
            self._keep("topic", topic, found)
        return str(found)

    async def group(self, session: Session, group: str, topic: str) -> SubscriptionGroupConfig:
        """The settings of a group, by default those of a new one."""
        known: SubscriptionGroupConfig | None = self._get("group", group)
        if known is not None:
            return known

        def ask(broker_name: str) -> Awaitable[Command]:
            command = session.brokers.command(
                RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, ForGroup(group), b"", named(broker_name)
            )
            return session.brokers.ask(broker_name, command)

        try:
            answer = await _first_answer(session, topic, ask)
        except (GroupNotFound, TopicNotFound, RequestNotSupported):
            return SubscriptionGroupConfig(group)
        found = SubscriptionGroupConfig.decode(answer.body)
        self._keep("group", group, found)
        return found

    def _get(self, kind: str, name: str) -> Any:
        cached = self._cached.get((kind, name))
        return cached.value if cached is not None and self._clock.monotonic() < cached.until else None

    def _keep(self, kind: str, name: str, value: object) -> None:
        if len(self._cached) >= MAX_CACHED:
            self._cached.clear()
        self._cached[kind, name] = Cached(value, self._clock.monotonic() + self._cached_s)


async def _first_answer(session: Session, topic: str, ask: Callable[[str], Awaitable[T]]) -> T:
    """The answer of the first master of a topic that can be connected; connected ones are first."""
    route, failure = await session.route(topic), None
    masters = [one.broker_name for one in route.data.broker_datas if one.broker_name and MASTER_ID in one.broker_addrs]
    for name in sorted(masters, key=lambda name: session.brokers.live_master(name) is None):
        try:
            return await ask(name)
        except NetworkError as error:
            failure = failure or error
    raise failure or Refused(Code.FORBIDDEN, f"no master of topic {topic} is available")


class RouteCalls:
    """QueryRoute and QueryAssignment."""

    def __init__(self, sessions: Sessions, facts: Facts, own: Callable[[], Address]) -> None:
        self._sessions = sessions
        self._facts = facts
        self._own = own
        """The address in routes for clients that do not say how they reached this server."""

    async def query_route(self, caller: Caller, request: QueryRouteRequest) -> QueryRouteResponse:
        topic = topic_of(request.topic)
        caller.require(Resource.TOPIC, topic, Action.PUB, Action.SUB)
        session = self._sessions.of(caller)
        route = await _known_route(session, topic)
        wanted = await self._facts.topic_type(session, topic)
        types = _MIXED if wanted == "MIXED" else tuple(one for one in MessageType if one.name == wanted)
        endpoints = self._endpoints(request.endpoints)
        brokers = {one.broker_name: one for one in route.data.broker_datas}
        queues = [
            _queue(
                request.topic, number, permission, messages.Broker(name=name, id=broker_id, endpoints=endpoints), types
            )
            for data in sorted(route.data.queue_datas, key=lambda one: one.broker_name)
            for broker_id in sorted(_ids(brokers.get(data.broker_name)))
            for name in (data.broker_name,)
            for number, permission in _permissions(data)
        ]
        return QueryRouteResponse(status=OK, message_queues=queues)

    async def query_assignment(self, caller: Caller, request: QueryAssignmentRequest) -> QueryAssignmentResponse:
        topic, group = topic_of(request.topic), group_of(request.group)
        caller.require(Resource.TOPIC, topic, Action.SUB)
        caller.require(Resource.GROUP, group, Action.SUB)
        session = self._sessions.of(caller)
        route = await _known_route(session, topic)
        is_fifo = (await self._facts.group(session, group, topic)).consume_message_orderly
        endpoints = self._endpoints(request.endpoints)
        masters = {one.broker_name for one in route.data.broker_datas if MASTER_ID in one.broker_addrs}
        queues: list[MessageQueue] = []
        for data in sorted(route.data.queue_datas, key=lambda one: one.broker_name):
            if data.perm & Perm.READ and data.broker_name in masters:
                broker = messages.Broker(name=data.broker_name, id=MASTER_ID, endpoints=endpoints)
                numbers = range(data.read_queue_nums) if is_fifo else (ALL_QUEUES,)
                queues += [_queue(request.topic, number, Permission.READ, broker, ()) for number in numbers]
        if not queues:
            raise Refused(Code.FORBIDDEN, f"topic {topic} has no readable queue")
        return QueryAssignmentResponse(status=OK, assignments=[Assignment(message_queue=queue) for queue in queues])

    def _endpoints(self, requested: Endpoints) -> Endpoints:
        """The endpoints of all brokers for a client that reached this server by these."""
        if requested.addresses:
            return requested
        own = self._own()
        scheme = AddressScheme.IPv6 if ":" in own.host else AddressScheme.IPv4
        return Endpoints(scheme=scheme, addresses=[messages.Address(host=own.host, port=own.port)])


async def _known_route(session: Session, topic: str) -> TopicRoute:
    try:
        return await session.route(topic)
    except TopicNotFound:
        raise Refused(
            Code.TOPIC_NOT_FOUND,
            f"topic {topic} does not exist; create it, for example with `pocketmq topic create {topic}`",
        ) from None


def _ids(broker: BrokerData | None) -> Iterator[int]:
    return iter(broker.broker_addrs if broker is not None else ())


def _permissions(data: QueueData) -> Iterator[tuple[int, Permission]]:
    """The number and permission of each queue: first those that are only readable or only writable, as in Apache RocketMQ."""
    reads = data.read_queue_nums if data.perm & Perm.READ else 0
    writes = data.write_queue_nums if data.perm & Perm.WRITE else 0
    both, only = min(reads, writes), abs(reads - writes)
    for number in range(only):
        yield number, Permission.READ if reads > writes else Permission.WRITE
    for number in range(only, only + both):
        yield number, Permission.READ_WRITE


def _queue(
    topic: messages.Resource,
    number: int,
    permission: Permission,
    broker: messages.Broker,
    types: tuple[MessageType, ...],
) -> MessageQueue:
    return MessageQueue(topic=topic, id=number, permission=permission, broker=broker, accept_message_types=types)
