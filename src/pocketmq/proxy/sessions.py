"""The clients of the gRPC server. Each one has connections of its own to brokers, so that they know it as a member like any other.

    first call of a client ──► Session ──┬─ routes ───── of its account, shared by all clients of it
                                         ├─ brokers ──── one connection to each broker it uses, which starts with a heartbeat
                                         └─ streams ──── its telemetry streams: commands for the client
    heartbeats, calls, streams ──► it stays
    NotifyClientTermination, silence, lost streams ──► it ends: connections are closed, and brokers drop its memberships

Requests to brokers have the signature of the client's account and its own connection. So permissions, flow control, check-backs of
transactions, and what tools show, all work as for clients of the remoting protocol.
"""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, Final

import msgspec

from pocketmq.client.cluster.calls import Brokers
from pocketmq.client.cluster.instance import Dependencies, Instance
from pocketmq.client.cluster.routes import TopicRoute
from pocketmq.client.cluster.rpc import RpcClient
from pocketmq.client.settings import ClientSettings
from pocketmq.codes import RequestCode
from pocketmq.errors import PocketMQError, TopicNotFound
from pocketmq.model import Subscription
from pocketmq.net import Address, ConnectionSettings, Peer, PeerSettings, Pool, PoolSettings, TcpNetwork, client_context
from pocketmq.protocol.api.messages import UnregisterClient
from pocketmq.protocol.bodies.clients import ConsumerData, ConsumeType, HeartbeatData, ProducerData
from pocketmq.protocol.command import Command
from pocketmq.protocol.signing import Credentials
from pocketmq.proxy.callers import Caller
from pocketmq.proxy.messages import ClientType, Code, Settings, TelemetryCommand
from pocketmq.proxy.settings import ProxySettings
from pocketmq.proxy.statuses import Refused

log = logging.getLogger("pocketmq.grpc")

HEARTBEAT_S: Final = 20.0
"""How often brokers get a heartbeat of a client, at most: clients send theirs every 10 s."""
KNOWN_S: Final = 1.0
"""How long the answer to settings waits for brokers. Official clients wait about three seconds for it."""
MAX_COMMANDS: Final = 1_000
"""Commands that wait for one stream. Further ones are dropped: brokers repeat them."""

Write = Callable[[TelemetryCommand], Awaitable[None]]
ServeBroker = Callable[["Session", Peer, Command], Command | Coroutine[Any, Any, Command | None] | None]
"""Serves a request that a broker sends to the client of a session."""


class Stream:
    """A telemetry stream, and the commands that wait to be written to it."""

    def __init__(self, write: Write) -> None:
        self._commands: asyncio.Queue[TelemetryCommand] = asyncio.Queue(MAX_COMMANDS)
        self._write = write
        self._writing = asyncio.Lock()

    async def write(self, command: TelemetryCommand) -> None:
        """Write a command, and wait while the client does not read."""
        async with self._writing:
            await self._write(command)

    async def write_all(self) -> None:
        """Write the commands that are sent. A client that reads slowly delays only its own."""
        while True:
            await self.write(await self._commands.get())

    def send(self, command: TelemetryCommand) -> bool:
        """Write a command soon. False if too many wait."""
        try:
            self._commands.put_nowait(command)
        except asyncio.QueueFull:
            return False
        return True


class Session:
    """One client."""

    def __init__(
        self,
        caller: Caller,
        instance: Instance,
        settings: ProxySettings,
        dependencies: Dependencies,
        tls: ssl.SSLContext | None,
        serve: ServeBroker,
    ) -> None:
        self.caller = caller
        self.settings: Settings | None = None
        """What the client sent by telemetry."""
        self.streams: list[Stream] = []
        """The newest is last."""
        self.answers: dict[str, asyncio.Future[TelemetryCommand]] = {}
        """Commands that wait for the answer of the client, by nonce."""
        self.receives = 0
        """Receives that are served now."""
        self.popped_ms: dict[tuple[str, str], int] = {}
        """When messages were last received, by topic and broker."""
        self.seen = 0.0
        self._clock = dependencies.clock
        self._instance = instance
        self._call_s = float(settings.call_s)
        self._learned: dict[str, TopicRoute] = {}
        self._heartbeat_at = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._first_heartbeats: dict[Address, asyncio.Future[Command]] = {}
        self._subscribed_ms = 0
        self._pool = Pool(
            network=dependencies.network or TcpNetwork(),
            serve=lambda peer, command: serve(self, peer, command),
            tls=tls,
            settings=PoolSettings(
                peer=PeerSettings(connection=ConnectionSettings(pause_reading=False), call_s=self._call_s),
                connect_s=self._call_s,
            ),
            dice=dependencies.dice,
        )
        self._rpc = RpcClient(self._pool, credentials=caller.credentials, call_timeout_s=self._call_s)
        self.brokers = Brokers(self._rpc, self._connected)

    def __repr__(self) -> str:
        return f"<Session {self.caller.client_id}>"

    def use(self, caller: Caller) -> None:
        """The client made a call, perhaps with a new secret of its account."""
        self.caller = caller
        self._rpc.credentials = caller.credentials
        self.touch()

    def touch(self) -> None:
        """The client made a call."""
        self.seen = self._clock.monotonic()

    async def route(self, topic: str) -> TopicRoute:
        """The route of a topic, whose brokers can be called then. TopicNotFound."""
        route = await self._instance.routes.find(topic)
        if self._learned.get(topic) is not route:
            self._learned[topic] = route
            self.brokers.learn(route.data.broker_datas)
        return route

    def sources(self) -> Iterator[tuple[str, str]]:
        """The subscribed topics, each on the brokers from which the client receives its messages."""
        for one in self.subscriptions:
            route = self._learned.get(one.topic)
            for name in dict.fromkeys(queue.broker_name for queue in route.readable) if route else ():
                yield one.topic, name

    # membership

    @property
    def kind(self) -> str:
        """The type of the client, for metrics."""
        number = 0 if self.settings is None else self.settings.client_type
        return next((one.name.lower() for one in ClientType if one and one == number), "unknown")

    @property
    def group(self) -> str | None:
        """The consumer group."""
        if self.settings is None or self.settings.WhichOneof("pub_sub") != "subscription":
            return None
        return self.settings.subscription.group.name

    @property
    def published_topics(self) -> list[str]:
        if self.settings is None or self.settings.WhichOneof("pub_sub") != "publishing":
            return []
        return list(dict.fromkeys(topic.name for topic in self.settings.publishing.topics))

    @property
    def subscriptions(self) -> tuple[Subscription, ...]:
        if self.group is None or self.settings is None:
            return ()
        return tuple(
            Subscription.parse(
                one.topic.name, one.expression.expression or "*", filter_type(one.expression.type), self._subscribed_ms
            )
            for one in self.settings.subscription.subscriptions
        )

    async def adopt(self, settings: Settings) -> None:
        """Use new settings of the client, and send them to all brokers of its topics. Those that answer soon know them then."""
        changed = self.settings is None or self.settings.SerializeToString() != settings.SerializeToString()
        self.settings = settings
        if not changed:
            return
        self._subscribed_ms = max(self._clock.now_ms(), self._subscribed_ms + 1)
        topics = [one.topic for one in self.subscriptions] or self.published_topics
        for topic in topics:
            try:
                await self.route(topic)
            except TopicNotFound:
                continue  # an administrator may create it later
        await asyncio.wait((self._send_heartbeats(),), timeout=KNOWN_S)

    def send_heartbeats_if_due(self) -> None:
        """Send heartbeats without waiting for the brokers."""
        if self._clock.monotonic() - self._heartbeat_at >= HEARTBEAT_S:
            self._send_heartbeats()

    def _send_heartbeats(self) -> asyncio.Task[None]:
        """Send a heartbeat to each known master. A failure is logged; the next heartbeat repeats it."""
        self._heartbeat_at = self._clock.monotonic()
        task = asyncio.get_running_loop().create_task(self._send_to_all())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _send_to_all(self) -> None:
        await asyncio.gather(*map(self._send_to, self.brokers.all_addresses(masters_only=True)))

    async def _send_to(self, address: Address) -> None:
        try:
            peer = self.brokers.live(address)
            if peer is not None:
                await self._rpc.ask_peer(peer, self._heartbeat())
                return
            await self.brokers.peer(address)  # a new connection begins with a heartbeat
            if (first := self._first_heartbeats.get(address)) is not None:
                await asyncio.wait((first,))
        except PocketMQError as error:
            log.warning("Heartbeat of client %s to broker %s failed: %s", self.caller.client_id, address, error)

    def _heartbeat(self) -> Command:
        group = self.group
        producers = tuple(ProducerData(topic) for topic in self.published_topics)
        consumers = (
            ()
            if group is None
            else (ConsumerData(group, ConsumeType.CONSUME_POP, subscription_data_set=self.subscriptions),)
        )
        body = HeartbeatData(self.caller.client_id, producers, consumers).encode()
        command = self._rpc.command(RequestCode.HEART_BEAT, body=body)
        command.language = self.caller.language
        return command

    def _connected(self, address: Address, peer: Peer) -> None:
        try:
            future = self._rpc.start(peer, self._heartbeat(), self._call_s)
        except PocketMQError as error:
            log.warning("Heartbeat of client %s to broker %s failed: %s", self.caller.client_id, address, error)
            return
        self._first_heartbeats[address] = future
        future.add_done_callback(_retrieved)

    # telemetry

    def send(self, command: TelemetryCommand) -> bool:
        """Send a command to the client. False if it has no telemetry stream, or the stream is full."""
        return bool(self.streams) and self.streams[-1].send(command)

    async def leave(self) -> None:
        """Leave all groups, and close the connections."""
        if self.group is not None:
            await asyncio.gather(*map(self._unregister, self.brokers.all_addresses()))
        for task in self._tasks:
            task.cancel()
        await self._pool.close()
        for future in self.answers.values():
            future.cancel()

    async def _unregister(self, address: Address) -> None:
        header = UnregisterClient(self.caller.client_id, None, self.group)
        try:
            if (peer := self.brokers.live(address)) is not None:
                await self._rpc.ask_peer(peer, self._rpc.command(RequestCode.UNREGISTER_CLIENT, header))
        except PocketMQError:
            return  # the broker notices the end of the connection


def filter_type(number: int) -> str:
    """TAG and SQL of gRPC in the words of the remoting protocol."""
    return "SQL92" if number == 2 else "TAG"


def _retrieved(future: asyncio.Future[Command]) -> None:
    """A failed first heartbeat is repeated by the next one."""
    if not future.cancelled():
        future.exception()


class Sessions:
    """All clients."""

    def __init__(self, settings: ProxySettings, dependencies: Dependencies, serve: ServeBroker) -> None:
        self._settings = settings
        self._dependencies = dependencies
        self._serve = serve
        self._tls = client_context() if settings.cluster_tls is True else settings.cluster_tls or None
        self._instances: dict[Credentials | None, Instance] = {}
        self._sessions: dict[tuple[str, str], Session] = {}
        self._forgotten: dict[tuple[str, str], Session] = {}
        """Clients that were silent for too long, and whose telemetry streams are open."""
        self.expired = 0
        """Clients that ended without a termination."""

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Any:
        return iter(tuple(self._sessions.values()))

    def of(self, caller: Caller) -> Session:
        """The session of a client, a new one for its first call."""
        session = self._sessions.get(caller.key)
        if session is None:
            if len(self._sessions) >= self._settings.max_clients:
                raise Refused(
                    Code.TOO_MANY_REQUESTS,
                    f"{len(self._sessions)} clients are connected, the limit of this server (max_clients)",
                )
            session = self._sessions[caller.key] = Session(
                caller, self._instance(caller.credentials), self._settings, self._dependencies, self._tls, self._serve
            )
        session.use(caller)
        return session

    def current(self, caller: Caller) -> Session:
        """The session of a client that made its call before, perhaps with a former secret."""
        return self._sessions.get(caller.key) or self.of(caller)

    def known(self, caller: Caller) -> Session:
        """The session of a client that has sent its settings."""
        session = self.of(caller)
        if session.settings is None:
            raise Refused(Code.UNRECOGNIZED_CLIENT_TYPE, "the client has not sent its settings by telemetry yet")
        return session

    def _instance(self, credentials: Credentials | None) -> Instance:
        instance = self._instances.get(credentials)
        if instance is None:
            instance = self._instances[credentials] = Instance.join(
                ClientSettings(
                    name_servers=self._settings.name_servers,
                    credentials=credentials,
                    tls=self._settings.cluster_tls,
                    instance_name="grpc",
                    call_timeout_ms=self._settings.call_s * 1000,
                ),
                self._dependencies,
            )
        return instance

    async def end(self, session: Session) -> None:
        """Forget a client."""
        key = session.caller.key
        if self._sessions.get(key) is session:
            del self._sessions[key]
        await session.leave()

    def expire(self, session: Session) -> None:
        """A client was silent for too long."""
        self.expired += 1
        if session.streams:
            self._forgotten[session.caller.key] = session

    def forgotten(self, caller: Caller) -> Session | None:
        """The former session of a client that was silent for too long, if the client has no other stream or settings."""
        current, forgotten = self._sessions.get(caller.key), self._forgotten.pop(caller.key, None)
        is_new = current is None or (current.settings is None and not current.streams)
        return forgotten if is_new else None

    def stream_ended(self, caller: Caller) -> None:
        """A client without streams cannot be remembered by them."""
        forgotten = self._forgotten.get(caller.key)
        if forgotten is not None and not forgotten.streams:
            del self._forgotten[caller.key]

    def silent(self) -> list[Session]:
        """The clients that are gone."""
        now = self._dependencies.clock.monotonic()
        found = []
        for session in self._sessions.values():
            limit = self._settings.client_idle_s if session.streams else self._settings.lost_after_s
            if not session.receives and now - session.seen > limit:
                found.append(session)
        return found

    async def close(self) -> None:
        await asyncio.gather(*map(self.end, tuple(self._sessions.values())))
        for instance in self._instances.values():
            await instance.leave()
        self._instances.clear()


class Cached(msgspec.Struct):
    """A value until a time of the monotonic clock."""

    value: Any
    until: float
