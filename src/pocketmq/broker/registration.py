"""Registration: every name server is told where this broker is and which topics it has.

    topics ── announce ──┐                          ┌──► Registry ──► name server
    permission ──────────┼──► once per loop turn ───┼──► Registry ──► name server      each with a task of its own, so one
    orders of an answer ─┘                          └──► Registry ──► name server      that is dead keeps no other waiting

Where clients find us: as the settings say; else where we listen, if that is one address; else at the address by which we reach
the name server. That is looked at again with every connection: a machine may get another one.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from pocketmq.broker.introduction import Introduction
from pocketmq.broker.registry import Registry
from pocketmq.broker.settings import SettingsInUse
from pocketmq.broker.topics import TopicTable
from pocketmq.clock import Clock
from pocketmq.errors import ConnectFailed, NetworkError
from pocketmq.net.address import Address
from pocketmq.net.line import LineSettings
from pocketmq.net.network import Network
from pocketmq.net.peer import PeerSettings
from pocketmq.net.pool import Pool, PoolSettings
from pocketmq.net.resolving import resolved

log = logging.getLogger("pocketmq.broker")

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
        self._introduction = Introduction(settings, topics, clock)
        self._on_address = on_address
        self._listening = settings.now.address
        self._start_s = settings.now.register_timeout_ms / 1000
        # A line that leaves a call without an answer is taken for dead: the next try gets a new one.
        peer = PeerSettings(line=LineSettings(pause_reading=False), silence_s=self._start_s / 2)
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
            self._introduction,
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
        all_changed = self._introduction.note_permission()
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
