"""Registration: every name server is told where this broker is and which topics it has.

    topics ── announce ──┐                          ┌──► Registry ──► name server
    permission ──────────┼──► once per loop turn ───┼──► Registry ──► name server      each with a task of its own, so one
    orders of an answer ─┘                          └──► Registry ──► name server      that is dead keeps no other waiting

Where clients find us: as the settings say; else where we listen, if that is one address; else at the address by which we reach
the name server. That is looked at again with every connection: a machine may get another one.

One name server: what it knows of this broker, and the task that keeps it so.

    ┌──► connected ── knows nothing of us, or it is time ──► all topics ──┬─► known ── a few changed ──► each of these ─┐
    │        │        many topics changed meanwhile                       │     ▲                                       │
    │        └─ no connection ──────────────┐                             │     └───────────────────────────────────────┤
    │                                       ▼                             │                                             │
    └── a second, two, four … later ── unknown ◄── refused, no answer ────┘                                             │
    └── at once ◄────────── the line was lost: the name server forgot us with it ◄──────────────────────────────────────┘

Whatever fails, all topics are told next, so nothing that was to be told has to be remembered.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from pocketmq.broker.registration_data import RegistrationData
from pocketmq.broker.settings import SettingsInUse
from pocketmq.broker.topics import TopicTable
from pocketmq.clock import Clock
from pocketmq.errors import ConnectFailed, NetworkError, PocketMQError
from pocketmq.net.address import Address, resolved
from pocketmq.net.connection import ConnectionSettings
from pocketmq.net.network import Network
from pocketmq.net.peer import Peer, PeerSettings
from pocketmq.net.pool import Pool, PoolSettings
from pocketmq.protocol.bodies.topics import TopicConfig
from pocketmq.protocol.command import Command

log = logging.getLogger("pocketmq.broker")

SECOND_TELLING_S: Final = 10.0
"""All is told again so soon after the first time, as RocketMQ does."""
RETRY_S: Final = 1.0
RETRY_MAX_S: Final = 10.0
"""How long after a failure it is tried again; each time twice as long, up to the second number."""
UNREGISTER_S: Final = 1.0
"""How long stopping waits for a name server, which also notices that the line is gone."""


class Registry:
    """A name server and its task.

    `locate(host)` says where clients find us, if this machine is `host` to the name server; `on_located` is called when `own`
    is another. `gather` brings what changed, by `note`: a version must not be told without a change that it stands for.
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
        on_located: "Callable[[Registry], None]",
    ) -> None:
        self.address = address
        self.own: Address | None = None
        """Where it tells clients to find us; None before it was reached."""
        self.tried = asyncio.Event()
        """Set when the first try is over, well or not."""
        self.rejected = 0
        """Topics of the last request to it that it has no space for."""
        self._pool = pool
        self._data = data
        self._settings = settings
        self._locate = locate
        self._gather = gather
        self._on_located = on_located
        self._peer: Peer | None = None
        self._known_by: Peer | None = None
        """The line by which it was told everything; None while something is missing."""
        self._changed: dict[str, TopicConfig] = {}
        self._all_changed = False
        self._due_at = 0.0
        self._failures = 0
        self._woken = asyncio.Event()
        self._answered = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._watches: set[asyncio.Task[None]] = set()

    @property
    def is_known(self) -> bool:
        """Whether it knows everything that it was to be told up to now."""
        return self._known_by is not None and self._known_by.is_open and not self._changed and not self._all_changed

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(self._keep_telling(), name=f"pocketmq registration with {self.address}")

    async def stop(self) -> None:
        """Say good-bye, if there is a line to say it by."""
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
                log.info("name server %s was not told that this broker stops: %s", self.address, error)

    def note(self, changed: Iterable[TopicConfig], *, all_changed: bool = False) -> None:
        """These topics are to be told. After a failure it waits for its next try, which tells all of them."""
        self._changed.update((row.topic_name, row) for row in changed)
        self._all_changed |= all_changed
        if not self.is_known:
            self._answered.clear()
        if (self._changed or self._all_changed) and not self._failures:
            self._woken.set()

    @property
    def is_to_be_told(self) -> bool:
        """Whether it has still to answer to something that it is being told. One that failed last is not waited for."""
        return self._task is not None and not self._failures and not self.is_known

    async def wait_answered(self) -> None:
        """Wait until it has answered the newest registration, or has failed."""
        await self._answered.wait()

    async def connect(self) -> Peer:
        """The line to the name server. Where clients find us may follow from it."""
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

    async def _keep_telling(self) -> None:
        while True:
            try:
                await self._tell()
            except Exception as error:
                self._fail(error)
            else:
                self._succeed()
            self.tried.set()
            if self.is_known or self._failures:
                self._answered.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._wait_s()):
                    await self._woken.wait()
            self._woken.clear()

    def _wait_s(self) -> float:
        if self._failures:
            return min(RETRY_S * 2.0 ** min(self._failures - 1, 62), RETRY_MAX_S)
        if not self.is_known:
            return 0.0  # something changed, or the line was lost, before the failure was over
        return max(self._due_at - asyncio.get_running_loop().time(), 0.0)

    async def _tell(self) -> None:
        peer = await self.connect()
        self._gather()
        is_due = peer is not self._known_by or asyncio.get_running_loop().time() >= self._due_at
        changed = list(self._changed.values())
        if is_due or self._all_changed or not self._data.may_tell_singly(len(changed)):
            await self._say(peer, ())
        elif changed:
            await self._say(peer, changed)
        if is_due:
            wait_s = self._settings.now.register_interval_ms / 1000 if self._due_at else SECOND_TELLING_S
            self._due_at = asyncio.get_running_loop().time() + wait_s

    async def _say(self, peer: Peer, changed: Iterable[TopicConfig]) -> None:
        """Tell these topics, or all when there are none."""
        assert self.own is not None, "it is known from the connection on"
        self._known_by, self._all_changed = None, False
        self._changed.clear()
        for command in self._data.register(self.own, changed):
            answer = await peer.call(command, self._settings.now.register_timeout_ms / 1000)
            if refusal := answer.error():
                raise refusal
            self._tell_rejected(self._data.take_answer(answer), answer)
        self._known_by = peer
        self._gather()

    def _tell_rejected(self, count: int, answer: Command) -> None:
        """It comes again with every registration, and is worth a line when it is another number."""
        if count > self.rejected:
            log.warning("name server %s gives no route to some topics of this broker: %s", self.address, answer.remark)
        self.rejected = count

    def _fail(self, error: Exception) -> None:
        self._known_by = None
        self._failures += 1
        if self._failures == 1:
            text = "name server %s cannot be told of this broker, and is tried again: %s"
            log.error(text, self.address, error, exc_info=None if isinstance(error, PocketMQError) else error)

    def _succeed(self) -> None:
        if self._failures:
            self._failures = 0
            log.info("name server %s knows this broker again", self.address)


_ANY_HOST: Final = ("", "0.0.0.0", "::")  # noqa: S104 nothing is bound here


class Registration:
    """All name servers of a broker.

    `on_address` hears where clients find us, first of all and whenever it is elsewhere: as an IP address, for records.
    """

    def __init__(
        self,
        settings: SettingsInUse,
        topics: TopicTable,
        clock: Clock,
        *,
        network: Network | None = None,
        on_address: Callable[[Address], None] | None = None,
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._data = RegistrationData(settings, topics, clock)
        self._on_address = on_address
        self._listening = settings.now.address
        self._start_s = settings.now.register_timeout_ms / 1000
        # A line that leaves a call without an answer is taken for dead: the next try gets a new one.
        peer = PeerSettings(connection=ConnectionSettings(pause_reading=False), silence_s=self._start_s / 2)
        tls = settings.now.name_server_tls
        if tls.enabled and not tls.verify:
            log.warning("name servers may be anybody: tls.client.authServer=false, so certificates are not looked at")
        self._pool = Pool(network=network, tls=tls.load(), settings=PoolSettings(peer=peer))
        self._registries = [self._registry(address) for address in dict.fromkeys(settings.now.name_servers)]
        self._told_address: Address | None = None
        self._looked = False
        self._advertised_ip: str | None = None
        self._spreading: asyncio.Handle | None = None
        self._waits: set[asyncio.Task[None]] = set()

    def _registry(self, address: Address) -> Registry:
        return Registry(
            address,
            self._pool,
            self._data,
            self._settings,
            locate=self._locate,
            gather=self._spread,
            on_located=self._located,
        )

    # where we are

    @property
    def address(self) -> Address:
        """Where clients find us, as far as that is known: what the first name server is told that was reached."""
        for registry in self._registries:
            if registry.own is not None:
                return self._locate(registry.own.host)
        return self._locate(self._fallback_host)

    async def find_address(self, listening: Address) -> Address:
        """Where clients will find a broker that listens there; connects to the name servers if they have to show it.

        None of them may be there yet: then it is the loopback address, until one is reached. Asked again, with the port that
        was given for 0, it does not look again.
        """
        self._listening = listening
        if not self._looked:
            self._looked = True
            await self._look()
        self._tell_address()
        return self.address

    async def _look(self) -> None:
        advertised = self._settings.now.advertised_host
        if advertised is not None:
            try:
                self._advertised_ip = (await resolved(Address(advertised, self._listening.port))).host
            except ConnectFailed as error:
                self._advertised_ip = self._fallback_host
                log.warning(
                    "advertised_host is told to clients, but records and message ids get %s instead: %s",
                    self._advertised_ip,
                    error,
                )
        elif self._own_host is None:
            await asyncio.gather(*map(_connect, self._registries))

    @property
    def _fallback_host(self) -> str:
        """Where we are for those on this machine."""
        listening = self._listening.host
        if listening in _ANY_HOST:
            return "::1" if listening == "::" else "127.0.0.1"
        return listening

    @property
    def _own_host(self) -> str | None:
        """The host that clients are told; None when the line to a name server has to show it."""
        listening = self._listening.host
        return self._settings.now.advertised_host or (None if listening in _ANY_HOST else listening)

    def _locate(self, host: str) -> Address:
        return Address(self._own_host or host, self._settings.now.advertised_port or self._listening.port)

    def _located(self, registry: Registry) -> None:
        own = registry.own
        assert own is not None
        if own.is_loopback and self._own_host is None:
            log.warning(
                "name server %s tells clients to find this broker at %s, where only this machine reaches it; "
                "set advertised_host if others should",
                registry.address,
                own,
            )
        self._tell_address()

    def _tell_address(self) -> None:
        address = self.address
        if address != self._told_address:
            self._told_address = address
            log.info("clients find this broker at %s", address)
            if self._on_address is not None:
                self._on_address(Address(self._advertised_ip or address.host, address.port))

    # telling

    @property
    def registered(self) -> list[Address]:
        """The name servers that know all of us."""
        return [registry.address for registry in self._registries if registry.is_known]

    async def start(self, listening: Address) -> None:
        """Begin to tell. Returns when each name server was tried once, or after `register_timeout_ms`."""
        self._listening = listening
        self._tell_address()
        for registry in self._registries:
            registry.start()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._start_s):
                for registry in self._registries:
                    await registry.tried.wait()

    def announce(self) -> None:
        """Topics, or the broker's permission, may have changed: tell it at once. Cheap, and waits for nothing."""
        if self._spreading is None:
            self._spreading = asyncio.get_running_loop().call_soon(self._spread)

    def announced(self) -> asyncio.Future[None] | None:
        """Tell what changed. Done when every name server that can be reached has answered, or after `route_wait_ms`.

        None when there is nothing to wait for. A name server that failed last is tried again later, and no send waits for it.
        """
        self._spread()
        waiting = [registry for registry in self._registries if registry.is_to_be_told]
        if not waiting:
            return None
        task = asyncio.get_running_loop().create_task(self._wait_answered(waiting))
        self._waits.add(task)
        task.add_done_callback(self._waits.discard)
        return task

    async def _wait_answered(self, waiting: list[Registry]) -> None:
        wait_ms = self._settings.now.route_wait_ms
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await asyncio.gather(*(registry.wait_answered() for registry in waiting))
        except TimeoutError:
            late = ", ".join(str(registry.address) for registry in waiting if registry.is_to_be_told)
            log.warning("a new topic is in use before name server %s knows it: no answer within %d ms", late, wait_ms)

    def _spread(self) -> None:
        if self._spreading is not None:
            self._spreading.cancel()
            self._spreading = None
        all_changed = self._data.note_permission()
        changed = self._topics.take_changed()
        for registry in self._registries:
            registry.note(changed, all_changed=all_changed)

    async def stop(self) -> None:
        """Say good-bye and hang up. Harmless when done twice."""
        if self._spreading is not None:
            self._spreading.cancel()
        for wait in self._waits:
            wait.cancel()
        await asyncio.gather(*(registry.stop() for registry in self._registries))
        await self._pool.close()


async def _connect(registry: Registry) -> None:
    # What is in the way is told when the name server is to hear of us.
    with suppress(NetworkError):
        await registry.connect()
