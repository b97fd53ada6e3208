"""An instance: one client of a cluster. Its lines, its routes, its heartbeats; producers and consumers are members of it.

    first member ──► joins, or makes ──► Instance ──┬─ name servers ── routes, asked again every 30 s
    other members with the same name ────────────►  ├─ brokers ─────── one line to each, greeted with a heartbeat
    last member leaves ──► all lines are closed     ├─ heartbeats ──── every 30 s, and when a member comes
                                                    └─ serving ─────── what brokers ask, given to the member it concerns

An instance lives on the event loop on which its first member was started, and is found again by that loop, the name servers and
the client id: so all clients of a loop share their connections unless they are told not to. Instances that are not shared have
client ids of their own, see `identity`.
"""

import asyncio
import logging
import os
import random
import ssl
from collections.abc import Coroutine, Hashable
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from pocketmq.client.brokers import Brokers
from pocketmq.client.comebacks import Comebacks
from pocketmq.client.heartbeats import Heartbeats
from pocketmq.client.identity import client_id, client_ip, free_client_id, take_client_id, unique_ids
from pocketmq.client.links import STREAM_MARKS, Links
from pocketmq.client.members import ConsumerMember, Members, ProducerMember
from pocketmq.client.name_servers import NameServers, parse_name_servers
from pocketmq.client.replies import WaitingReplies
from pocketmq.client.routes import Routes, TopicRoute
from pocketmq.client.serving import BrokerRequests
from pocketmq.client.settings import ClientSettings
from pocketmq.clock import Clock, SystemClock
from pocketmq.errors import PocketMQError
from pocketmq.files import DiskFiles, Files
from pocketmq.model.names import INNER_PRODUCER_GROUP
from pocketmq.net.line import LineSettings
from pocketmq.net.network import Network, TcpNetwork
from pocketmq.net.peer import PeerSettings
from pocketmq.net.pool import Pool, PoolSettings
from pocketmq.net.repeating import Repeating
from pocketmq.net.tls import client_context

log = logging.getLogger("pocketmq.client")

FIRST_HEARTBEAT_S = 1.0
BACKOFF_S = 0.1
BACKOFF_MAX_S = 0.5
"""Between two tries of an address: a server that restarts is used again within half a second."""

_instances: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Hashable, "Instance"]] = WeakKeyDictionary()


class Surroundings(msgspec.Struct, frozen=True):
    """What a client takes from outside: time, network, disk and chance. Tests give their own."""

    clock: Clock = msgspec.field(default_factory=SystemClock)
    network: Network | None = None
    files: Files = msgspec.field(default_factory=DiskFiles)
    dice: random.Random = msgspec.field(default_factory=random.Random)


class Instance:
    """Get one by `join`; give it back by `leave`. Whoever is a member uses its parts directly."""

    def __init__(self, settings: ClientSettings, around: Surroundings, key: Hashable, *, stream: bool) -> None:
        self._settings = settings
        self._key = key
        self._users = 0
        self._tasks: set[asyncio.Task[None]] = set()
        call_s = settings.call_timeout_ms / 1000
        self.clock = around.clock
        self.dice = around.dice
        self.unique_ids = unique_ids(client_ip(settings))
        self.members = Members()
        self.replies = WaitingReplies()
        self._pool = _pool(settings, around, BrokerRequests(self.members, self.replies))
        self.links = Links(
            self._pool,
            credentials=settings.credentials,
            marks=STREAM_MARKS if stream else None,
            call_timeout_s=call_s,
            rpc_hook=settings.rpc_hook,
        )
        self.client_id = take_client_id(settings, asyncio.get_running_loop(), stream=stream)
        self.heartbeats = Heartbeats(self.client_id, self.members, self.links, timeout_s=call_s)
        self.brokers = Brokers(self.links, self.heartbeats.say)
        addresses = parse_name_servers(settings.name_servers, os.environ)
        self.name_servers = NameServers(
            addresses, self.links, around.dice, timeout_s=call_s, is_plain=settings.tls is False
        )
        self.routes = Routes(
            self.name_servers,
            self.brokers,
            wanted=self.members.topics,
            on_change=self._route_changed,
            on_forget=self._route_forgotten,
            idle_polls=settings.idle_route_polls,
        )
        self.comebacks = Comebacks(self.routes, self.brokers)
        self._rounds = (
            Repeating("route polling", settings.route_poll_ms / 1000, self.routes.poll, log),
            Repeating("heartbeats", settings.heartbeat_ms / 1000, self._say_heartbeats, log, first_s=FIRST_HEARTBEAT_S),
        )

    @classmethod
    def join(cls, settings: ClientSettings, around: Surroundings | None = None, *, stream: bool = False) -> "Instance":
        """The instance of this loop for these settings, started if nobody has yet. InvalidSetting names a bad one."""
        around = around or Surroundings()
        key = _key(settings, around, stream)
        here = _instances.setdefault(asyncio.get_running_loop(), {})
        instance = here.get(key)
        if instance is None:
            instance = here[key] = cls(settings, around, key, stream=stream)
            for each in instance._rounds:
                each.start()
        instance._users += 1
        return instance

    async def leave(self) -> None:
        """The last one to leave closes the lines. Each who joined leaves once."""
        self._users -= 1
        if self._users > 0:
            return
        here = _instances.get(asyncio.get_running_loop(), {})
        if here.get(self._key) is self:
            del here[self._key]  # whoever joins from now on gets a new one
        try:
            await self._end()
        finally:
            free_client_id(self.client_id)

    async def _end(self) -> None:
        for each in self._rounds:
            await each.stop()
        await self._say_good_bye(producer_group=INNER_PRODUCER_GROUP)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self.comebacks.close()
        await self.routes.close()
        await self._pool.close()

    def add_producer(self, member: ProducerMember) -> None:
        """Brokers that are connected hear of it at once."""
        self.members.add_producer(member)
        self.heartbeat_soon()

    async def remove_producer(self, member: ProducerMember) -> None:
        """Brokers hear that the group has no member here any more."""
        if self.members.remove_producer(member):
            await self._say_good_bye(producer_group=member.wire_group)

    def add_consumer(self, member: ConsumerMember) -> None:
        """WrongState when this client is a member of its group already."""
        self.members.add_consumer(member)
        self.heartbeat_soon()

    async def remove_consumer(self, member: ConsumerMember) -> None:
        """Brokers hear that it left, so that others take its queues at once."""
        if self.members.remove_consumer(member):
            await self._say_good_bye(consumer_group=member.wire_group)

    def heartbeat_soon(self) -> None:
        """Tell all brokers that are known, without waiting for them."""
        self.start(self._say_heartbeats())

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something beside that ends with this instance at the latest."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _say_heartbeats(self) -> None:
        await self.heartbeats.say_to_all(self.brokers)

    async def _say_good_bye(self, *, producer_group: str | None = None, consumer_group: str | None = None) -> None:
        """To the brokers that are connected; the others have forgotten this client with its line."""
        timeout_s = self._settings.stop_timeout_ms / 1000

        async def tell(address: Any) -> None:
            with suppress(PocketMQError):
                await self.brokers.members.leave(
                    address,
                    self.client_id,
                    producer_group=producer_group,
                    consumer_group=consumer_group,
                    timeout_s=timeout_s,
                )

        live = [address for address in self.brokers.all_addresses() if self.brokers.live(address) is not None]
        await asyncio.gather(*map(tell, live))

    def _route_changed(self, route: TopicRoute) -> None:
        for consumer in self.members.consumers:
            if route.topic in consumer.topics():
                consumer.route_changed(route.topic)

    def _route_forgotten(self, topic: str) -> None:
        for producer in self.members.producers:
            producer.topic_forgotten(topic)


def _key(settings: ClientSettings, around: Surroundings, stream: bool) -> Hashable:
    """Clients that differ in one of these cannot share lines."""
    return (
        parse_name_servers(settings.name_servers, os.environ),
        client_id(settings, stream=stream),
        settings.credentials,
        settings.tls,
        settings.rpc_hook,
        around.network,
    )


def _pool(settings: ClientSettings, around: Surroundings, requests: BrokerRequests) -> Pool:
    peer = PeerSettings(
        line=LineSettings(pause_reading=False),
        call_s=settings.call_timeout_ms / 1000,
        max_in_flight=settings.max_in_flight_calls,
    )
    return Pool(
        network=around.network or TcpNetwork(),
        serve=requests.serve,
        tls=_tls(settings.tls),
        settings=PoolSettings(
            peer=peer,
            connect_s=settings.connect_timeout_ms / 1000,
            backoff_s=BACKOFF_S,
            backoff_max_s=BACKOFF_MAX_S,
        ),
        dice=around.dice,
    )


def _tls(tls: bool | ssl.SSLContext) -> ssl.SSLContext | None:
    if isinstance(tls, ssl.SSLContext):
        return tls
    return client_context() if tls else None
