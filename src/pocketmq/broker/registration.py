"""Registration: registers this broker's address and topics with every name server.

    changed topics ──────┐                          ┌──► NameServerRegistration ──► name server
    changed permission ──┼──► once per loop step ───┼──► NameServerRegistration ──► name server
    order config ────────┘                          └──► NameServerRegistration ──► name server

Each name server has a task of its own, so one that does not answer does not delay the others.

The address for clients is the configured one; else the listen address, if it is a single one; else the local address
of the connection to the name server, which is read again for every connection because it may change.

    ┌──► connected ── unknown, or interval over ──► register all topics ──┬─► registered ── few changed ──► each of these ─┐
    │        │        or many topics changed                              │       ▲                                        │
    │        └─ no connection ──────────────┐                             │       └────────────────────────────────────────┤
    │                                       ▼                             │                                                │
    └── after 1, 2, 4 … s ─────────────── unknown ◄── error, no answer ───┘                                                │
    └── at once ◄────────── connection lost: the name server has removed this broker ◄─────────────────────────────────────┘

After any failure all topics are registered next, so changes need not be kept.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from pocketmq.broker.reads.replicas import KnownMaster
from pocketmq.broker.registration_data import RegistrationData
from pocketmq.broker.settings import SettingsInUse
from pocketmq.broker.topics import TopicTable
from pocketmq.clock import Clock
from pocketmq.errors import ConnectFailed, NetworkError, PocketMQError
from pocketmq.net import Address, ConnectionSettings, Network, Peer, PeerSettings, Pool, PoolSettings, resolved
from pocketmq.protocol.bodies.topics import TopicConfig
from pocketmq.protocol.command import Command

log = logging.getLogger("pocketmq.broker")

SECOND_REGISTRATION_S: Final = 10.0
"""The second registration follows this soon after the first, as in RocketMQ."""
RETRY_S: Final = 1.0
RETRY_MAX_S: Final = 10.0
"""Retry delay after a failure. It doubles up to the second number."""
UNREGISTER_S: Final = 1.0
"""How long stopping waits for a name server, which also notices the closed connection."""


class NameServerRegistration:
    """The registration with one name server, and its task.

    `locate(host)` returns the address for clients, if this machine is `host` to the name server. `on_located` is called
    when `own` changes. `gather` collects changes with `add_changes`: a version must be sent with all changes that it
    includes.
    """

    def __init__(
        self,
        address: Address,
        pool: Pool,
        data: RegistrationData,
        settings: SettingsInUse,
        *,
        locate: Callable[[str], Address],
        gather: Callable[[], None],
        on_located: "Callable[[NameServerRegistration], None]",
    ) -> None:
        self.address = address
        self.own: Address | None = None
        """The registered address; None before the first connection."""
        self.tried = asyncio.Event()
        """Set after the first attempt."""
        self.rejected = 0
        """Topics of the last registration that the name server rejected."""
        self._pool = pool
        self._data = data
        self._settings = settings
        self._locate = locate
        self._gather = gather
        self._on_located = on_located
        self._peer: Peer | None = None
        self._known_by: Peer | None = None
        """The connection of the last complete registration; None if one is due."""
        self._changed: dict[str, TopicConfig] = {}
        self._all_changed = False
        self._due_at = 0.0
        self._failures = 0
        self._woken = asyncio.Event()
        self._answered = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._watches: set[asyncio.Task[None]] = set()

    @property
    def is_registered(self) -> bool:
        """Whether the name server has answered the registration of all changes."""
        return self._known_by is not None and self._known_by.is_open and not self._changed and not self._all_changed

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(self._run(), name=f"pocketmq registration with {self.address}")

    async def stop(self) -> None:
        """Unregister, if there is a connection."""
        if self._task is None:
            return
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        self._task = None
        if self._peer is not None and self.own is not None and self._peer.is_open:
            try:
                await self._peer.call(self._data.unregister(self.own), UNREGISTER_S)
            except PocketMQError as error:
                log.info(
                    "Cannot unregister from name server %s, which removes this broker later: %s", self.address, error
                )

    def add_changes(self, changed: Iterable[TopicConfig], *, all_changed: bool = False) -> None:
        """Register these topics. After a failure, the next attempt registers all topics."""
        self._changed.update((row.topic_name, row) for row in changed)
        self._all_changed |= all_changed
        if not self.is_registered:
            self._answered.clear()
        if (self._changed or self._all_changed) and not self._failures:
            self._woken.set()

    @property
    def is_pending(self) -> bool:
        """Whether an answer is expected. Not after a failure, so that no send waits for this name server."""
        return self._task is not None and not self._failures and not self.is_registered

    async def wait_answered(self) -> None:
        """Wait until the newest registration is answered or has failed."""
        await self._answered.wait()

    async def connect(self) -> Peer:
        """The connection to the name server, which may determine the address for clients."""
        peer = await self._pool.peer(self.address)
        own = self._locate(peer.connection.own_address.host)
        if own != self.own:
            self.own = own
            self._on_located(self)
        if peer is not self._peer:
            self._peer = peer
            watch = asyncio.get_running_loop().create_task(peer.wait_lost())
            self._watches.add(watch)
            watch.add_done_callback(self._lost)
        return peer

    def _lost(self, watch: asyncio.Task[None]) -> None:
        self._watches.discard(watch)
        if not self._failures:
            self._woken.set()

    async def _run(self) -> None:
        while True:
            try:
                await self._register()
            except Exception as error:
                self._fail(error)
            else:
                self._succeed()
            self.tried.set()
            if self.is_registered or self._failures:
                self._answered.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._wait_s()):
                    await self._woken.wait()
            self._woken.clear()

    def _wait_s(self) -> float:
        if self._failures:
            return min(RETRY_S * 2.0 ** min(self._failures - 1, 62), RETRY_MAX_S)
        if not self.is_registered:
            return 0.0  # something changed, or the connection was lost, during the registration
        return max(self._due_at - asyncio.get_running_loop().time(), 0.0)

    async def _register(self) -> None:
        peer = await self.connect()
        self._gather()
        is_due = peer is not self._known_by or asyncio.get_running_loop().time() >= self._due_at
        changed = list(self._changed.values())
        if is_due or self._all_changed or not self._data.are_single_requests_cheaper(len(changed)):
            await self._send(peer, ())
        elif changed:
            await self._send(peer, changed)
        if is_due:
            wait_s = self._settings.now.register_interval_ms / 1000 if self._due_at else SECOND_REGISTRATION_S
            self._due_at = asyncio.get_running_loop().time() + wait_s

    async def _send(self, peer: Peer, changed: Iterable[TopicConfig]) -> None:
        """Register these topics, or all if none are named."""
        assert self.own is not None, "the connection has set it"
        self._known_by, self._all_changed = None, False
        self._changed.clear()
        for command in self._data.register(self.own, changed):
            answer = await peer.call(command, self._settings.now.register_timeout_ms / 1000)
            if refusal := answer.error():
                raise refusal
            self._log_rejected(self._data.apply_answer(answer, self.address), answer)
        self._known_by = peer
        self._gather()

    def _log_rejected(self, count: int, answer: Command) -> None:
        """Every registration has the same number, so it is logged only if it increases."""
        if count > self.rejected:
            log.warning("Name server %s rejected some topics of this broker: %s", self.address, answer.remark)
        self.rejected = count

    def _fail(self, error: Exception) -> None:
        self._known_by = None
        self._failures += 1
        if self._failures == 1:
            text = "Registration with name server %s failed: %s; retrying"
            log.error(text, self.address, error, exc_info=None if isinstance(error, PocketMQError) else error)

    def _succeed(self) -> None:
        if self._failures:
            self._failures = 0
            log.info("Registered with name server %s again", self.address)


_ANY_HOST: Final = ("", "0.0.0.0", "::")  # noqa: S104 nothing is bound here


class Registration:
    """The registrations with all name servers.

    `on_address` is called with the address for clients, first and after every change: as an IP address, for records.
    """

    def __init__(
        self,
        settings: SettingsInUse,
        topics: TopicTable,
        clock: Clock,
        *,
        network: Network | None = None,
        on_address: Callable[[Address], None] | None = None,
        master: KnownMaster | None = None,
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._data = RegistrationData(settings, topics, clock, master=master)
        self._on_address = on_address
        self._listening = settings.now.address
        self._start_s = settings.now.register_timeout_ms / 1000
        # A connection on which a call times out is closed: the next attempt gets a new one.
        peer = PeerSettings(connection=ConnectionSettings(pause_reading=False), silence_s=self._start_s / 2)
        tls = settings.now.name_server_tls
        if tls.enabled and not tls.verify:
            log.warning("Certificates of name servers are not verified: tls.client.authServer=false")
        self._pool = Pool(network=network, tls=tls.load(), settings=PoolSettings(peer=peer))
        self._registries = [self._registry(address) for address in dict.fromkeys(settings.now.name_servers)]
        self._reported_address: Address | None = None
        self._is_resolved = False
        self._advertised_ip: str | None = None
        self._scheduled: asyncio.Handle | None = None
        self._waits: set[asyncio.Task[None]] = set()

    def _registry(self, address: Address) -> NameServerRegistration:
        return NameServerRegistration(
            address,
            self._pool,
            self._data,
            self._settings,
            locate=self._locate,
            gather=self._distribute,
            on_located=self._located,
        )

    # the address for clients

    @property
    def address(self) -> Address:
        """The address for clients, as far as it is known: the one registered with the first connected name server."""
        for registry in self._registries:
            if registry.own is not None:
                return self._locate(registry.own.host)
        return self._locate(self._fallback_host)

    async def find_address(self, listening: Address) -> Address:
        """The address for clients of a broker with this listen address. Connects to the name servers if that is necessary.

        If none can be reached, it is the loopback address until one is. A second call, with the actual port for port 0, does
        not resolve it again.
        """
        self._listening = listening
        if not self._is_resolved:
            self._is_resolved = True
            await self._resolve()
        self._report_address()
        return self.address

    async def _resolve(self) -> None:
        advertised = self._settings.now.advertised_host
        if advertised is not None:
            try:
                self._advertised_ip = (await resolved(Address(advertised, self._listening.port))).host
            except ConnectFailed as error:
                self._advertised_ip = self._fallback_host
                log.warning(
                    "Cannot resolve the advertised host; clients get it, but records and message ids contain %s: %s",
                    self._advertised_ip,
                    error,
                )
        elif self._own_host is None:
            await asyncio.gather(*map(_connect, self._registries))

    @property
    def _fallback_host(self) -> str:
        listening = self._listening.host
        if listening in _ANY_HOST:
            return "::1" if listening == "::" else "127.0.0.1"
        return listening

    @property
    def _own_host(self) -> str | None:
        """The configured host for clients; None if the connection to a name server determines it."""
        listening = self._listening.host
        return self._settings.now.advertised_host or (None if listening in _ANY_HOST else listening)

    def _locate(self, host: str) -> Address:
        return Address(self._own_host or host, self._settings.now.advertised_port or self._listening.port)

    def _located(self, registry: NameServerRegistration) -> None:
        own = registry.own
        assert own is not None
        if own.is_loopback and self._own_host is None:
            log.warning(
                "Registered with name server %s as %s, which only this machine can reach; set brokerIP1 (advertised_host) for "
                "clients on other machines",
                registry.address,
                own,
            )
        self._report_address()

    def _report_address(self) -> None:
        address = self.address
        if address != self._reported_address:
            self._reported_address = address
            log.info("Address for clients: %s", address)
            if self._on_address is not None:
                self._on_address(Address(self._advertised_ip or address.host, address.port))

    # registration

    @property
    def registered(self) -> list[Address]:
        """The name servers with a complete registration."""
        return [registry.address for registry in self._registries if registry.is_registered]

    async def start(self, listening: Address) -> None:
        """Begin to register. Returns after the first attempt with each name server, or after `register_timeout_ms`."""
        self._listening = listening
        self._report_address()
        for registry in self._registries:
            registry.start()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._start_s):
                for registry in self._registries:
                    await registry.tried.wait()

    def announce(self) -> None:
        """Topics or the broker's permission may have changed: register them soon. Does not wait."""
        if self._scheduled is None:
            self._scheduled = asyncio.get_running_loop().call_soon(self._distribute)

    def announced(self) -> asyncio.Future[None] | None:
        """Register changes. Done when every reachable name server has answered, or after `route_wait_ms`.

        None if there is nothing to wait for. No send waits for a name server whose last registration failed.
        """
        self._distribute()
        waiting = [registry for registry in self._registries if registry.is_pending]
        if not waiting:
            return None
        task = asyncio.get_running_loop().create_task(self._wait_answered(waiting))
        self._waits.add(task)
        task.add_done_callback(self._waits.discard)
        return task

    async def _wait_answered(self, waiting: list[NameServerRegistration]) -> None:
        wait_ms = self._settings.now.route_wait_ms
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await asyncio.gather(*(registry.wait_answered() for registry in waiting))
        except TimeoutError:
            late = ", ".join(str(registry.address) for registry in waiting if registry.is_pending)
            log.warning(
                "Name server %s did not answer the registration of a new topic within %d ms; continuing without it",
                late,
                wait_ms,
            )

    def _distribute(self) -> None:
        if self._scheduled is not None:
            self._scheduled.cancel()
            self._scheduled = None
        all_changed = self._data.permission_changed()
        changed = self._topics.pop_changed()
        for registry in self._registries:
            registry.add_changes(changed, all_changed=all_changed)

    async def stop(self) -> None:
        """Unregister and close the connections. Harmless if called twice."""
        if self._scheduled is not None:
            self._scheduled.cancel()
        for wait in self._waits:
            wait.cancel()
        await asyncio.gather(*(registry.stop() for registry in self._registries))
        await self._pool.close()


async def _connect(registry: NameServerRegistration) -> None:
    # The registration reports the error.
    with suppress(NetworkError):
        await registry.connect()
