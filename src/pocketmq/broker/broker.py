"""A broker: starts and stops its parts.

    start ──► store recovered, tables restored ──► listening ──► registered ──► serving
    stop  ──► no new requests, held pulls answered, running requests finished ──► connections closed ──► unregistered
              ──► decisions and tables saved ──► store closed: everything on disk

Periodic tasks run from start to stop. If a step of stopping fails, the error is logged and the next steps run.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from typing import Self

from msgspec.structs import replace

from pocketmq.access.accounts_file import FOLLOW_S
from pocketmq.broker.metrics import BrokerMetrics
from pocketmq.broker.parts import BrokerParts
from pocketmq.broker.replication.metadata import Metadata
from pocketmq.broker.replication.serving import SlaveServer
from pocketmq.broker.settings import BrokerSettings
from pocketmq.broker.stats import SAMPLE_SECONDS
from pocketmq.clock import Clock, SteadyClock, SystemClock
from pocketmq.errors import ListenFailed, PocketMQError, WrongState
from pocketmq.files import DiskFiles, Files
from pocketmq.metrics.page import Collect, MetricsPage
from pocketmq.net import (
    AcceptSettings,
    Address,
    ConnectionSettings,
    Network,
    PeerSettings,
    Repeating,
    Server,
    ServerCounters,
    ServerSettings,
    ServerTls,
    TcpNetwork,
)

log = logging.getLogger("pocketmq.broker")

VIP_PORT_DISTANCE = 2
QUIET_TICKS = 10
"""Factor of the tick interval while nothing must be written or indexed, so that an idle machine can sleep."""


class Broker:
    """Use it as `async with Broker(settings) as broker:`; `broker.address` is its listen address. A broker runs once."""

    def __init__(
        self,
        settings: BrokerSettings | None = None,
        *,
        clock: Clock | None = None,
        network: Network | None = None,
        files: Files | None = None,
        more_metrics: Collect | None = None,
    ) -> None:
        """`more_metrics` are further metrics for the same page."""
        self.settings = settings or BrokerSettings()
        self._clock: Clock = clock or SystemClock()
        self._network = network
        self._tls: ServerTls | None = None
        self._files = files or DiskFiles()
        self._parts: BrokerParts | None = None
        self._server: Server | None = None
        self._vip_server: Server | None = None
        self._slave_server: SlaveServer | None = None
        self._more_metrics = more_metrics
        self._metrics_page: MetricsPage | None = None
        self._repeating: list[Repeating] = []
        self._ticking: asyncio.TimerHandle | None = None
        self._changing = asyncio.Lock()  # one start or stop at a time; taken before the one of Snapshots
        self._shutdown: asyncio.Task[None] | None = None

    @property
    def address(self) -> Address:
        """The listen address, with the actual port for port 0."""
        return self._started_server.address

    @property
    def advertised_address(self) -> Address:
        """The address for clients."""
        return self.parts.registration.address

    @property
    def metrics_address(self) -> Address | None:
        """The address of the metrics page; None without one."""
        return None if self._metrics_page is None else self._metrics_page.address

    @property
    def counters(self) -> ServerCounters:
        return self._started_server.counters

    @property
    def parts(self) -> BrokerParts:
        if self._parts is None:
            raise WrongState("the broker is not started: use `async with`, or `await start()`")
        return self._parts

    @property
    def _started_server(self) -> Server:
        if self._server is None:
            raise WrongState("the broker is not started: use `async with`, or `await start()`")
        return self._server

    async def start(self) -> None:
        """Recover, listen, register. StoreLocked, StoreDamaged or ListenFailed; then everything is stopped again."""
        if self._parts is not None:
            raise WrongState("a broker can be started only once; create another one for the same folder")
        self._tls = self.settings.tls.load()
        post = asyncio.get_running_loop().call_soon_threadsafe
        self._clock = SteadyClock(self._clock, self.settings.clock_step_confirm_ms)
        self._parts = parts = BrokerParts(self.settings, self._clock, self._files, self._network, post)
        async with self._changing:
            parts.recover()
            async with AsyncExitStack() as undo:
                undo.push_async_callback(self._shut_down, parts)
                self._tick()
                await self._listen(parts)
                await self._open_metrics_page(parts)
                await parts.registration.start(self.address)
                self._repeating = self._periodic_tasks()
                for work in self._repeating:
                    work.start()
                undo.pop_all()

    async def _listen(self, parts: BrokerParts) -> None:
        settings = self.settings
        self._server = server = self._new_server(settings.address)
        if settings.port:
            await parts.registration.find_address(settings.address)
        await server.start()
        # Queries of the settings return the actual port instead of port 0.
        parts.state.settings.now = replace(parts.state.settings.now, port=server.address.port)
        await self._open_vip_channel(server.address)
        await self._serve_slaves(parts, server.address)
        await parts.registration.find_address(server.address)

    def _new_server(self, address: Address) -> Server:
        parts, settings = self.parts, self.settings
        return Server(
            address,
            serve=parts.dispatcher.serve,
            on_turn=parts.turns.handle,
            on_lost=parts.lost,
            tls=self._tls,
            must_sign=bool(settings.accounts),
            network=self._network or TcpNetwork(AcceptSettings(backlog=settings.backlog)),
            settings=_server_settings(settings),
        )

    async def _open_vip_channel(self, listening: Address) -> None:
        """Some clients send to a second port, two below the first. If it is in use, the broker runs without it."""
        port = listening.port - VIP_PORT_DISTANCE
        if not self.settings.vip_channel or port <= 0:
            return
        server = self._new_server(Address(listening.host, port))
        try:
            await server.start()
        except ListenFailed as error:
            log.info("VIP channel is off: %s; clients use the main port", error)
            return
        self._vip_server = server

    async def _serve_slaves(self, parts: BrokerParts, listening: Address) -> None:
        in_use = parts.state.settings
        if parts.following is not None:
            parts.following.start()
        if in_use.now.is_slave or not in_use.now.replication.serves:
            return
        slaves = SlaveServer(parts.state.store, parts.state.replicas, in_use, self._network)
        above = in_use.now.port + 1 if in_use.now.port else 0
        actual = await slaves.start(Address(listening.host, in_use.now.replication.port or above))
        self._slave_server = slaves
        in_use.now = replace(in_use.now, replication=replace(in_use.now.replication, port=actual.port))

    @property
    def slave_address(self) -> Address | None:
        """The address for slaves; None if the broker serves none."""
        if self._slave_server is None:
            return None
        return Address(self.address.host, self.parts.state.settings.now.replication.port)

    async def _open_metrics_page(self, parts: BrokerParts) -> None:
        if not self.settings.metrics.enabled:
            return
        collect = BrokerMetrics(parts, self._files, lambda: self.counters, self._more_metrics).collect
        admits = parts.authentication.may_read_metrics if parts.authentication else None
        page = MetricsPage(self.settings.metrics, collect, network=self._network, tls=self._tls, admits=admits)
        await page.start()
        self._metrics_page = page

    async def _close_metrics_page(self) -> None:
        if self._metrics_page is not None:
            await self._metrics_page.stop()

    async def _save_progress(self) -> None:
        """Progress is saved up to the synced end of the log, so the log is synced first."""
        parts = self.parts
        await parts.delays.settle()
        await parts.timers.settle()
        await parts.state.snapshots.save_parts()

    def _periodic_tasks(self) -> list[Repeating]:
        parts, settings, in_use = self.parts, self.settings, self.parts.state.settings
        following = Repeating("reloading accounts", FOLLOW_S, parts.follow_accounts, log)
        return [
            *([following] if parts.authentication is not None else []),
            *([self._copying(parts.metadata)] if parts.metadata is not None else self._tasks_of_master()),
            Repeating("saving progress", lambda: in_use.now.progress_save_interval_ms / 1000, self._save_progress, log),
            Repeating(
                "saving offsets", lambda: in_use.now.save_interval_ms / 1000, parts.state.snapshots.save_changed, log
            ),
            Repeating("removing expired clients", settings.expiry_scan_ms / 1000, parts.clients.expire, log),
            Repeating("sampling statistics", SAMPLE_SECONDS, self._sample, log),
        ]

    def _copying(self, metadata: Metadata) -> Repeating:
        in_use = self.parts.state.settings
        return Repeating(
            "copying tables", lambda: in_use.now.replication.metadata_ms / 1000, metadata.copy, log, first_s=0
        )

    def _tasks_of_master(self) -> list[Repeating]:
        """What adds messages to the log."""
        parts, settings, in_use = self.parts, self.settings, self.parts.state.settings
        return [
            Repeating("delivering delayed messages", settings.delay_poll_ms / 1000, parts.delays.run_all, log),
            Repeating("delivering timed messages", settings.delay_poll_ms / 1000, parts.timers.run_all, log),
            Repeating("ending leases", settings.delay_poll_ms / 1000, parts.revival.run_all, log),
            Repeating(
                "checking transactions",
                lambda: in_use.now.transaction.check_interval_ms / 1000,
                parts.transactions.checks.run,
                log,
            ),
            Repeating(
                "writing op messages of transactions",
                lambda: in_use.now.transaction.op_batch_ms / 1000,
                parts.transactions.ledger.write_ops,
                log,
            ),
        ]

    def _sample(self) -> None:
        parts = self.parts
        parts.state.stats.sample(
            self._clock.monotonic(), self._clock.now_ms(), parts.state.store.facts.messages_accepted
        )

    def _tick(self) -> None:
        """The store's tick. It is scheduled first, so that no failure can stop it."""
        store = self.parts.state.store
        is_quiet = not store.facts.unsynced_bytes and not store.facts.behind_bytes and not store.is_flushing
        wait_s = self.settings.tick_ms / 1000 * (QUIET_TICKS if is_quiet else 1)
        self._ticking = asyncio.get_running_loop().call_later(wait_s, self._tick)
        store.tick()

    async def stop(self) -> None:
        """Finish running requests, unregister, and close the store. Harmless if called twice.

        It continues if the caller is cancelled. StoreError if the disk fails.
        """
        if self._parts is None:
            return
        async with self._changing:  # a start in progress is finished first
            if self._ticking is None:
                return
            if self._shutdown is None:
                shutdown = self._shut_down(self._parts)
                self._shutdown = asyncio.get_running_loop().create_task(shutdown, name="pocketmq stopping the broker")
        await asyncio.shield(self._shutdown)

    async def _shut_down(self, parts: BrokerParts) -> None:
        steps: tuple[Callable[[], Awaitable[None] | None], ...] = (
            self._stop_periodic_tasks,
            self._close_metrics_page,
            self._stop_serving,
            parts.registration.stop,
            parts.transactions.ledger.try_write_ops,
            parts.transactions.settle,
            parts.delays.settle,
            parts.timers.settle,
            parts.revival.settle,
            parts.state.snapshots.stop,
        )
        try:
            for step in steps:
                await _run_step(step)
        finally:
            assert self._ticking is not None
            self._ticking.cancel()  # the current one: it is replaced with every tick
            self._ticking = None
            parts.state.store.close()

    async def _stop_periodic_tasks(self) -> None:
        for work in self._repeating:
            await work.stop()

    async def _stop_serving(self) -> None:
        parts = self.parts
        servers = [server for server in (self._vip_server, self._server) if server is not None]
        for server in servers:
            server.close_listener()
        for held in (parts.state.arrivals, parts.state.waiting_pops, parts.state.waiting_notifications):
            held.stop()
        parts.turns.stop()
        # Sends that wait for the disk are answered before their connections are closed.
        with suppress(TimeoutError, PocketMQError):
            async with asyncio.timeout(self.settings.drain_s):
                await parts.state.appender.written()
                await parts.state.appender.safe()
        if self._slave_server is not None:
            self._slave_server.stop()
        if parts.following is not None:
            await parts.following.stop()
        if parts.metadata is not None:
            await parts.metadata.stop()
        await asyncio.gather(*(server.stop() for server in servers))

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()


async def _run_step(step: Callable[[], Awaitable[None] | None]) -> None:
    """Run a step of stopping; an error is logged."""
    try:
        outcome = step()
        if outcome is not None:
            await outcome
    except Exception:
        log.exception("A step of the shutdown failed; continuing with the next one")


def _server_settings(settings: BrokerSettings) -> ServerSettings:
    # A client that is slow to answer a forwarded request must not lose its connection, and with it its queues.
    silence_s = settings.client_expiry_ms / 1000
    connection = ConnectionSettings(idle_s=settings.idle_s, linger_s=settings.linger_s)
    return ServerSettings(
        peer=PeerSettings(connection=connection, silence_s=silence_s),
        max_connections=settings.max_connections,
        max_connections_per_host=settings.max_connections_per_host,
        unfinished=settings.unfinished,
        drain_s=settings.drain_s,
    )
