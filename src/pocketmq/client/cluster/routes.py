"""Routes: the queues of a topic and their brokers. Name servers answer route queries; a route is cached and refreshed every 30 s.

    find(topic) ── cached ──────────────────────────────────────────────► that route
                ├─ a name server has a route ───────────────────────────► its route
                └─ unknown ── the template topic has a route ───────────► its brokers, with the requested number of queues:
                                                      │                   the first message creates the topic there
                                                      └─ no ────────────► TopicNotFound
    poll ── a response ──► replaces the cached route, and reports a change
         └─ a failure, or "unknown" ──► the cached route stays: a name server that has just started has no routes yet

A route that is not used for some polls is deleted, unless a consumer of this client reads its topic.

`QueueNames` converts queues between their names on the wire, which include the namespace, and the names that users see.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from shlex import quote

import msgspec

from pocketmq.client.cluster.brokers import MASTER_ID, BrokerConnections
from pocketmq.client.cluster.name_servers import NameServers
from pocketmq.codes import Perm
from pocketmq.errors import PocketMQError, TopicNotFound, UsageError
from pocketmq.model import MessageQueue
from pocketmq.model.names import unwrap
from pocketmq.protocol.bodies.topics import QueueData, TopicRouteData

log = logging.getLogger("pocketmq.client")

OnChange = Callable[["TopicRoute"], None]


class TopicRoute(msgspec.Struct, frozen=True):
    """The queues of a topic, to write and to read. `from_template`: no broker has the topic yet."""

    topic: str
    data: TopicRouteData
    writable: tuple[MessageQueue, ...]
    readable: tuple[MessageQueue, ...]
    ordered: bool = False
    from_template: bool = False


class _Known:
    """A cached route, and the number of polls since its last use."""

    __slots__ = ("idle_polls", "route")

    def __init__(self, route: TopicRoute) -> None:
        self.route = route
        self.idle_polls = 0


class Routes:
    """The routes of the topics that this client uses. `wanted` returns the topics that its consumers read."""

    def __init__(
        self,
        name_servers: NameServers,
        brokers: BrokerConnections,
        *,
        wanted: Callable[[], Iterable[str]] = tuple,
        on_change: OnChange = lambda _: None,
        on_forget: Callable[[str], None] = lambda _: None,
        idle_polls: int = 20,
    ) -> None:
        self.name_servers = name_servers
        self._brokers = brokers
        self._wanted = wanted
        self._on_change = on_change
        self._on_forget = on_forget
        self._idle_polls = idle_polls
        self._known: dict[str, _Known] = {}
        self._refreshing: dict[str, asyncio.Task[TopicRoute]] = {}
        self._logged_failure = ""

    def get(self, topic: str) -> TopicRoute | None:
        """The cached route."""
        known = self._known.get(topic)
        if known is None:
            return None
        known.idle_polls = 0
        return known.route

    async def find(self, topic: str) -> TopicRoute:
        """The route of a topic that exists; TopicNotFound when no broker has it."""
        route = self.get(topic)
        return route if route is not None and not route.from_template else await self.refresh(topic)

    async def find_or_template(self, topic: str, template: str, queues: int) -> TopicRoute:
        """The route for sends: of the topic, else of the brokers that create topics from `template`."""
        route = self.get(topic)
        if route is not None:
            return route
        try:
            return await self.refresh(topic)
        except TopicNotFound:
            return await self._by_template(topic, template, queues)

    async def refresh(self, topic: str) -> TopicRoute:
        """Query a name server now. Concurrent calls for a topic share one query."""
        task = self._refreshing.get(topic)
        if task is None:
            task = self._refreshing[topic] = asyncio.get_running_loop().create_task(self._ask(topic))
            task.add_done_callback(partial(self._refreshed, topic))
        # The task is not awaited directly: a cancelled caller must not cancel the query of the others.
        await asyncio.wait((task,))
        return task.result()

    def _refreshed(self, topic: str, task: asyncio.Task[TopicRoute]) -> None:
        self._refreshing.pop(topic, None)
        if not task.cancelled():
            task.exception()  # marks the error as retrieved: all callers may be cancelled

    async def poll(self) -> None:
        """Refresh the routes of all topics in use."""
        wanted = set(self._wanted())
        for topic in [topic for topic in self._known if topic not in wanted]:
            known = self._known[topic]
            known.idle_polls += 1
            if known.idle_polls > self._idle_polls:
                del self._known[topic]
                self._on_forget(topic)
        for topic in list(dict.fromkeys([*self._known, *sorted(wanted)])):
            try:
                await self.refresh(topic)
            except TopicNotFound:
                continue
            except PocketMQError as error:
                self._log_failure(f"{type(error).__name__}: {error}")
                return  # no name server answers: queries for the other topics would fail too
        self._log_failure("")
        self._brokers.keep_only(
            broker.broker_name
            for known in self._known.values()
            for broker in known.route.data.broker_datas
            if broker.broker_name
        )

    async def close(self) -> None:
        """Cancel running queries."""
        tasks = list(self._refreshing.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _ask(self, topic: str) -> TopicRoute:
        data = await self.name_servers.route(topic)
        return self._remember(route_of(topic, data))

    async def _by_template(self, topic: str, template: str, queues: int) -> TopicRoute:
        try:
            data = await self.name_servers.route(template)
        except TopicNotFound:
            raise TopicNotFound(
                f"No route info of this topic: {topic!r}, and brokers do not create topics automatically (no {template!r}); "
                f"create it with `pocketmq topic create {topic} -n {quote(str(self.name_servers))}`"
            ) from None
        # A concurrent refresh may have found the route meanwhile.
        known = self._known.get(topic)
        return known.route if known is not None else self._remember(template_route(topic, data, queues))

    def _remember(self, route: TopicRoute) -> TopicRoute:
        self._brokers.learn(route.data.broker_datas)
        known = self._known.get(route.topic)
        if known is None:
            self._known[route.topic] = _Known(route)
        elif known.route != route:
            known.route = route
        else:
            return known.route
        self._on_change(route)
        return route

    def _log_failure(self, failure: str) -> None:
        """Log a failure once until it changes; an empty text means that a refresh succeeded."""
        if failure and failure != self._logged_failure:
            log.warning("route refresh failed: %s; keeping the known routes and retrying", failure)
        elif self._logged_failure and not failure:
            log.info("route refresh succeeds again")
        self._logged_failure = failure


def route_of(topic: str, data: TopicRouteData) -> TopicRoute:
    """The route in a name server's response."""
    return TopicRoute(topic, data, _writable(topic, data), _readable(topic, data), ordered=bool(data.order_topic_conf))


def template_route(topic: str, data: TopicRouteData, queues: int) -> TopicRoute:
    """The route of a topic that does not exist yet, from that of its template: at most `queues` on each broker."""
    limited = tuple(
        msgspec.structs.replace(
            each,
            read_queue_nums=min(queues, each.read_queue_nums),
            write_queue_nums=min(queues, each.read_queue_nums),
        )
        for each in data.queue_datas
    )
    data = msgspec.structs.replace(data, queue_datas=limited)
    return TopicRoute(topic, data, _writable(topic, data), _readable(topic, data), from_template=True)


def _writable(topic: str, data: TopicRouteData) -> tuple[MessageQueue, ...]:
    """The writable queues of brokers with a master, or the queues that the order configuration lists."""
    if data.order_topic_conf:
        return _configured(topic, data.order_topic_conf)
    masters = {broker.broker_name for broker in data.broker_datas if MASTER_ID in broker.broker_addrs}
    return tuple(
        MessageQueue(topic, each.broker_name, number)
        for each in _sorted(data)
        if each.perm & Perm.WRITE and each.broker_name in masters
        for number in range(each.write_queue_nums)
    )


def _readable(topic: str, data: TopicRouteData) -> tuple[MessageQueue, ...]:
    return tuple(
        MessageQueue(topic, each.broker_name, number)
        for each in _sorted(data)
        if each.perm & Perm.READ
        for number in range(each.read_queue_nums)
    )


def _sorted(data: TopicRouteData) -> list[QueueData]:
    return sorted(data.queue_datas, key=lambda each: each.broker_name)


def _configured(topic: str, conf: str) -> tuple[MessageQueue, ...]:
    """Parses `broker-a:4;broker-b:2`; other parts are skipped."""
    queues = []
    for word in conf.split(";"):
        name, _, count = word.partition(":")
        if name and count.isdecimal():
            queues += [MessageQueue(topic, name, number) for number in range(int(count))]
    return tuple(queues)


class QueueNames:
    """Converts names of queues. Without a namespace both are the same object."""

    __slots__ = ("_namespace", "_shown")

    def __init__(self, namespace: str | None) -> None:
        self._namespace = namespace
        self._shown: dict[str, dict[MessageQueue, MessageQueue]] = {}

    def shown(self, queue: MessageQueue) -> MessageQueue:
        """A queue of the wire with the name that users see."""
        if self._namespace is None:
            return queue
        of_topic = self._shown.setdefault(queue.topic, {})
        found = of_topic.get(queue)
        if found is None:
            topic = unwrap(self._namespace, queue.topic)
            found = of_topic[queue] = MessageQueue(topic, queue.broker_name, queue.queue_id)
        return found

    def on_the_wire(self, queue: MessageQueue, topic: str) -> MessageQueue:
        """A user's queue with its name on the wire; UsageError when it is not a queue of `topic`."""
        if queue.topic == topic:
            return queue
        if queue.topic != unwrap(self._namespace, topic):
            raise UsageError(f"a message to topic {topic!r} cannot be sent to {queue}, a queue of another topic")
        return MessageQueue(topic, queue.broker_name, queue.queue_id)

    def forget(self, topic: str) -> None:
        self._shown.pop(topic, None)
