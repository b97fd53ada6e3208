"""An instance: one client of a cluster, with its connections, routes and heartbeats. Producers and consumers are its members.

    first member ──► join, creates it ───────► Instance ──┬─ name servers ── routes, refreshed every 30 s
    other members with the same settings ──► join ──────► ├─ brokers ─────── one connection to each, starting with a heartbeat
    last member leaves ──► connections are closed         ├─ heartbeats ──── every 30 s, and for a new member
                                                          └─ serving ─────── requests from brokers, passed to a member

An instance belongs to the event loop on which its first member started. Clients on the same loop with the same name servers and
client id share it, unless their settings differ; see `_key`. Instances that are not shared have different client ids, see `identity`.

Sends wait here for a broker or name server that restarts:

    send ── no connection, nothing was sent ──► wait(topic) ──┐
    send ── no connection ────────────────────► wait(topic) ──┼──► one search for all of them
                                                              │       ├─ connect to the masters of the topic
    a master is connected, or the deadline has passed ◄───────┘       └─ refresh the route, once a second

All sends to a topic share one search, so ten thousand waiting messages need no more connections than one. The search ends at the
latest deadline. The pool decides how often it tries an address, see `net.pool`.
"""

import asyncio
import logging
import os
import random
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Any, Final
from weakref import WeakKeyDictionary

import msgspec

from pocketmq.client.cluster.calls import Brokers
from pocketmq.client.cluster.heartbeats import ConsumerMember, Heartbeats, Members, ProducerMember
from pocketmq.client.cluster.identity import client_id, client_ip, release_client_id, reserve_client_id, unique_ids
from pocketmq.client.cluster.name_servers import NameServers, parse_name_servers
from pocketmq.client.cluster.routes import Routes, TopicRoute
from pocketmq.client.cluster.rpc import STREAM_MARKS, RpcClient
from pocketmq.client.cluster.serving import BrokerRequests, WaitingReplies
from pocketmq.client.settings import ClientSettings
from pocketmq.clock import Clock, SystemClock
from pocketmq.errors import NetworkError, PocketMQError, TopicNotFound
from pocketmq.files import DiskFiles, Files
from pocketmq.model.names import INNER_PRODUCER_GROUP
from pocketmq.net import (
    ConnectionSettings,
    Network,
    PeerSettings,
    Pool,
    PoolSettings,
    Repeating,
    TcpNetwork,
    client_context,
)

PAUSE_S: Final = 0.05
"""Pause between two checks of the connections. A check sends nothing while the pool backs off."""
CHECK_S: Final = 0.5
"""Time limit of a check; connecting continues in the background."""
REFRESH_S: Final = 1.0
"""A search refreshes a known route this often: the broker may return with another address."""


class _Search:
    """One search, and the latest deadline of its waiters."""

    __slots__ = ("task", "until")

    def __init__(self, until: float, search: "Callable[[_Search], Coroutine[Any, Any, bool]]") -> None:
        self.until = until
        self.task = asyncio.get_running_loop().create_task(search(self))


class Reconnects:
    """The searches of one client for brokers that can be connected."""

    def __init__(self, routes: Routes, brokers: Brokers) -> None:
        self._routes = routes
        self._brokers = brokers
        self._searches: dict[tuple[str, str | None], _Search] = {}

    async def wait(self, topic: str, broker_name: str | None, until: float) -> bool:
        """Wait until a master is connected, of `broker_name` or of any broker of the topic. False when `until` passes."""
        key = topic, broker_name
        search = self._searches.get(key)
        if search is None or search.task.done():  # its callback may not have run yet
            search = self._searches[key] = _Search(until, partial(self._search, topic, broker_name))
            search.task.add_done_callback(lambda task: self._forget(key, task))
        search.until = max(search.until, until)
        # The task is not awaited directly: a cancelled send must not cancel the search of the others.
        await asyncio.wait((search.task,), timeout=max(until - asyncio.get_running_loop().time(), 0))
        return search.task.done() and not search.task.cancelled() and search.task.result()

    def _forget(self, key: tuple[str, str | None], task: "asyncio.Task[bool]") -> None:
        if self._searches[key].task is task:
            del self._searches[key]

    async def close(self) -> None:
        """Cancel all searches."""
        tasks = [search.task for search in self._searches.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _search(self, topic: str, broker_name: str | None, search: _Search) -> bool:
        loop = asyncio.get_running_loop()
        refresh_at = loop.time()
        while loop.time() < search.until:
            route = self._routes.get(topic)
            names = [broker_name] if broker_name is not None else []
            if route is not None and broker_name is None:
                names = list(dict.fromkeys(queue.broker_name for queue in route.writable))
            checks: list[Awaitable[bool]] = [self._is_connected(name) for name in names] if route is not None else []
            if route is None or loop.time() >= refresh_at:
                refresh_at = loop.time() + REFRESH_S
                checks.append(self._is_answered(topic, is_known=route is not None))
            if await _any(checks):
                return True
            await asyncio.sleep(PAUSE_S)
        return False

    async def _is_connected(self, broker_name: str) -> bool:
        try:
            await self._brokers.peer(self._brokers.master(broker_name))
        except NetworkError:
            return False
        return True

    async def _is_answered(self, topic: str, *, is_known: bool) -> bool:
        """Whether name servers answer about a topic without a known route. Refreshes the route."""
        try:
            await self._routes.refresh(topic)
        except TopicNotFound:
            return not is_known
        except PocketMQError:
            return False
        return not is_known


async def _any(checks: list[Awaitable[bool]]) -> bool:
    """True as soon as one check is true; the others are cancelled."""
    tasks = [asyncio.ensure_future(check) for check in checks]
    try:
        with suppress(TimeoutError):
            for done in asyncio.as_completed(tasks, timeout=CHECK_S):
                if await done:
                    return True
        return False
    finally:
        for task in tasks:
            task.cancel()


log = logging.getLogger("pocketmq.client")

FIRST_HEARTBEAT_S = 1.0
BACKOFF_S = 0.1
BACKOFF_MAX_S = 0.5
"""Largest pause between two attempts to connect: a restarted server is used again within half a second."""

_instances: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Hashable, "Instance"]] = WeakKeyDictionary()


class Dependencies(msgspec.Struct, frozen=True):
    """The clock, network, files and randomness of a client. Tests replace them."""

    clock: Clock = msgspec.field(default_factory=SystemClock)
    network: Network | None = None
    files: Files = msgspec.field(default_factory=DiskFiles)
    dice: random.Random = msgspec.field(default_factory=random.Random)


class Instance:
    """Created by `join`, released by `leave`. Members use its parts directly."""

    def __init__(self, settings: ClientSettings, dependencies: Dependencies, key: Hashable, *, stream: bool) -> None:
        self._settings = settings
        self._key = key
        self._users = 0
        self._tasks: set[asyncio.Task[None]] = set()
        call_s = settings.call_timeout_ms / 1000
        self.clock = dependencies.clock
        self.dice = dependencies.dice
        self.unique_ids = unique_ids(client_ip(settings))
        self.members = Members(INNER_PRODUCER_GROUP)  # as in Java, also without producers
        self.replies = WaitingReplies()
        self._pool = _pool(settings, dependencies, BrokerRequests(self.members, self.replies))
        self.rpc = RpcClient(
            self._pool,
            credentials=settings.credentials,
            marks=STREAM_MARKS if stream else None,
            call_timeout_s=call_s,
            rpc_hook=settings.rpc_hook,
        )
        self.client_id = reserve_client_id(settings, asyncio.get_running_loop(), stream=stream)
        self.heartbeats = Heartbeats(self.client_id, self.members, self.rpc, timeout_s=call_s)
        self.brokers = Brokers(self.rpc, self.heartbeats.send)
        addresses = parse_name_servers(settings.name_servers, os.environ)
        self.name_servers = NameServers(
            addresses, self.rpc, dependencies.dice, timeout_s=call_s, is_plain=settings.tls is False
        )
        self.routes = Routes(
            self.name_servers,
            self.brokers,
            wanted=self.members.topics,
            on_change=self._route_changed,
            on_forget=self._route_forgotten,
            idle_polls=settings.idle_route_polls,
        )
        self.reconnects = Reconnects(self.routes, self.brokers)
        self._periodic = (
            Repeating("route polling", settings.route_poll_ms / 1000, self.routes.poll, log),
            Repeating(
                "heartbeats", settings.heartbeat_ms / 1000, self._send_heartbeats, log, first_s=FIRST_HEARTBEAT_S
            ),
        )

    @classmethod
    def join(
        cls, settings: ClientSettings, dependencies: Dependencies | None = None, *, stream: bool = False
    ) -> "Instance":
        """The instance of this loop for these settings, created and started by the first caller. May raise InvalidSetting."""
        dependencies = dependencies or Dependencies()
        key = _key(settings, dependencies, stream)
        of_loop = _instances.setdefault(asyncio.get_running_loop(), {})
        instance = of_loop.get(key)
        if instance is None:
            instance = of_loop[key] = cls(settings, dependencies, key, stream=stream)
            for each in instance._periodic:
                each.start()
        instance._users += 1
        return instance

    async def leave(self) -> None:
        """Release the instance, once per `join`. The last call closes the connections."""
        self._users -= 1
        if self._users > 0:
            return
        of_loop = _instances.get(asyncio.get_running_loop(), {})
        if of_loop.get(self._key) is self:
            del of_loop[self._key]  # the next `join` creates a new instance
        try:
            await self._end()
        finally:
            release_client_id(self.client_id)

    async def _end(self) -> None:
        async with AsyncExitStack() as undo:  # a failed or cancelled step leaves no connection open
            undo.push_async_callback(self._pool.close)
            undo.push_async_callback(self.routes.close)
            undo.push_async_callback(self.reconnects.close)
            for each in self._periodic:
                await each.stop()
            await self._unregister(producer_group=INNER_PRODUCER_GROUP)
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)

    def add_producer(self, member: ProducerMember) -> None:
        """Add a member, and send heartbeats at once."""
        self.members.add_producer(member)
        self.heartbeat_soon()

    async def remove_producer(self, member: ProducerMember) -> None:
        """Remove a member, and unregister its group if it has no other member here."""
        if self.members.remove_producer(member):
            await self._unregister(producer_group=member.wire_group)

    def add_consumer(self, member: ConsumerMember) -> None:
        """Add a member; WrongState when this client already has a consumer of its group."""
        self.members.add_consumer(member)
        self.heartbeat_soon()

    async def remove_consumer(self, member: ConsumerMember) -> None:
        """Remove a member, and unregister it, so that a rebalance assigns its queues at once."""
        if self.members.remove_consumer(member):
            await self._unregister(consumer_group=member.wire_group)

    def heartbeat_soon(self) -> None:
        """Send heartbeats to all known brokers without waiting."""
        self.start(self._send_heartbeats())

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` as a task, which is cancelled when this instance ends."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send_heartbeats(self) -> None:
        await self.heartbeats.send_to_all(self.brokers)

    async def _unregister(self, *, producer_group: str | None = None, consumer_group: str | None = None) -> None:
        """Unregister from connected brokers. The others forgot this client when its connection closed."""
        timeout_s = self._settings.stop_timeout_ms / 1000

        async def unregister(address: Any) -> None:
            with suppress(PocketMQError):
                await self.brokers.members.leave(
                    address,
                    self.client_id,
                    producer_group=producer_group,
                    consumer_group=consumer_group,
                    timeout_s=timeout_s,
                )

        live = [address for address in self.brokers.all_addresses() if self.brokers.live(address) is not None]
        await asyncio.gather(*map(unregister, live))

    def _route_changed(self, route: TopicRoute) -> None:
        for consumer in self.members.consumers:
            if route.topic in consumer.topics():
                consumer.route_changed(route.topic)

    def _route_forgotten(self, topic: str) -> None:
        for producer in self.members.producers:
            producer.topic_forgotten(topic)


def _key(settings: ClientSettings, dependencies: Dependencies, stream: bool) -> Hashable:
    """Clients that differ in one of these cannot share connections."""
    return (
        parse_name_servers(settings.name_servers, os.environ),
        client_id(settings, stream=stream),
        settings.credentials,
        settings.tls,
        settings.rpc_hook,
        dependencies.network,
    )


def _pool(settings: ClientSettings, dependencies: Dependencies, requests: BrokerRequests) -> Pool:
    peer = PeerSettings(
        connection=ConnectionSettings(pause_reading=False),
        call_s=settings.call_timeout_ms / 1000,
        max_in_flight=settings.max_in_flight_calls,
    )
    return Pool(
        network=dependencies.network or TcpNetwork(),
        serve=requests.serve,
        tls=_tls(settings.tls),
        settings=PoolSettings(
            peer=peer,
            connect_s=settings.connect_timeout_ms / 1000,
            backoff_s=BACKOFF_S,
            backoff_max_s=BACKOFF_MAX_S,
        ),
        dice=dependencies.dice,
    )


def _tls(tls: bool | ssl.SSLContext) -> ssl.SSLContext | None:
    if isinstance(tls, ssl.SSLContext):
        return tls
    return client_context() if tls else None
