"""A name server: builds its parts, starts and stops them. Also its permissions by request code, and its metrics.

start ──► KV config read ──► listening ─── every `scan_interval_ms`: remove silent brokers, close their connections
stop  ──► no new requests, running requests finished ──► connections closed ──► KV config on disk

A code with a handler and without a row in `ACCESS` is rejected for all accounts. An account needs all permissions in
the row.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from typing import Final, Self

import msgspec

from pocketmq.access.accounts import Access, Accesses, Action, Resource
from pocketmq.access.accounts_file import FOLLOW_S
from pocketmq.access.authentication import Authentication, authentication_by
from pocketmq.clock import Clock, SystemClock
from pocketmq.codes import RequestCode
from pocketmq.errors import ConnectionLost, PocketMQError
from pocketmq.files import DiskFiles, Files
from pocketmq.metrics.families import (
    Family,
    connection_families,
    counter,
    gauge,
    labels_of,
    process_families,
    with_labels,
)
from pocketmq.metrics.page import MetricsPage
from pocketmq.model.names import AUTO_CREATE_TOPIC
from pocketmq.nameserver.handlers import BrokerHandlers, KvConfigHandlers, SettingHandlers, TopicHandlers
from pocketmq.nameserver.kv_config import KvConfig, KvLimits
from pocketmq.nameserver.routes import RouteTable
from pocketmq.nameserver.settings import NameServerSettings, SettingsInUse
from pocketmq.net import (
    AcceptSettings,
    Address,
    ConnectionSettings,
    Dispatcher,
    Network,
    Peer,
    PeerSettings,
    Repeating,
    Server,
    ServerCounters,
    ServerSettings,
    TcpNetwork,
)
from pocketmq.protocol.api.administration import GetRoute
from pocketmq.protocol.command import Command


def _routed_topic(command: Command) -> Iterable[str]:
    """Empty for the template of new topics: producers query its route first, which only contains brokers."""
    topic = GetRoute.decode(command.ext).topic
    return [] if topic == AUTO_CREATE_TOPIC else [topic]


_READ = (Access(Resource.CLUSTER, Action.GET),)
_CHANGE = (Access(Resource.CLUSTER, Action.UPDATE),)
_OWN_CLUSTER = (Access(Resource.CLUSTER, Action.UPDATE, "cluster_name"),)
_LIST_TOPICS = (Access(Resource.TOPIC, Action.LIST),)

ACCESS: Final[dict[RequestCode, Accesses]] = {
    # brokers
    RequestCode.REGISTER_BROKER: _OWN_CLUSTER,
    RequestCode.UNREGISTER_BROKER: _OWN_CLUSTER,
    RequestCode.BROKER_HEARTBEAT: _OWN_CLUSTER,
    RequestCode.QUERY_DATA_VERSION: _OWN_CLUSTER,
    RequestCode.GET_BROKER_MEMBER_GROUP: (Access(Resource.CLUSTER, Action.GET, "cluster_name"),),
    RequestCode.GET_BROKER_CLUSTER_INFO: _READ,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: _CHANGE,
    RequestCode.ADD_WRITE_PERM_OF_BROKER: _CHANGE,
    # topics
    RequestCode.GET_ROUTEINFO_BY_TOPIC: (
        Access(Resource.TOPIC, Action.GET, _routed_topic, or_to=(Action.PUB, Action.SUB)),
    ),
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: (Access(Resource.TOPIC, Action.CREATE, "topic"),),
    RequestCode.DELETE_TOPIC_IN_NAMESRV: (Access(Resource.TOPIC, Action.DELETE, "topic"),),
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: _LIST_TOPICS,
    RequestCode.GET_TOPICS_BY_CLUSTER: _LIST_TOPICS,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: _LIST_TOPICS,
    RequestCode.GET_UNIT_TOPIC_LIST: _LIST_TOPICS,
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: _LIST_TOPICS,
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: _LIST_TOPICS,
    # configuration
    RequestCode.PUT_KV_CONFIG: _CHANGE,
    RequestCode.GET_KV_CONFIG: _READ,
    RequestCode.DELETE_KV_CONFIG: _CHANGE,
    RequestCode.GET_KVLIST_BY_NAMESPACE: _READ,
    RequestCode.UPDATE_NAMESRV_CONFIG: _CHANGE,
    RequestCode.GET_NAMESRV_CONFIG: _READ,
}


class NameServerMetrics:
    """Reads the routes. `is_alone`: the page has no other metrics of the process."""

    def __init__(
        self,
        routes: RouteTable,
        counters: Callable[[], ServerCounters],
        address: Callable[[], Address],
        files: Files,
        *,
        is_alone: bool = True,
    ) -> None:
        self._routes = routes
        self._counters = counters
        self._address = address
        self._files = files
        self._is_alone = is_alone

    async def collect(self) -> list[Family]:
        """The metric families for `metrics.page`."""
        clusters = self._routes.cluster_info().cluster_addr_table
        brokers = {labels_of(cluster=cluster): len(names) for cluster, names in clusters.items()}
        families = [
            gauge("rocketmq_nameserver_brokers", "Registered broker names, by cluster", brokers),
            gauge("rocketmq_nameserver_topics", "Topics with a route", self._routes.topic_count),
            counter(
                "rocketmq_nameserver_rejected_topics",
                "Topics in registrations that got no route because a limit was reached",
                self._routes.rejected_topics,
            ),
            *connection_families(self._counters(), "rocketmq_nameserver"),
        ]
        own = labels_of(node_type="nameserver", node_id=str(self._address()))
        return with_labels([*families, *(process_families(self._files) if self._is_alone else [])], own)


log = logging.getLogger("pocketmq.nameserver")


class NameServer:
    """Use it as `async with NameServer(settings) as name_server:`; `name_server.address` is its listen address.

    Several can run in one process: they share nothing.
    """

    def __init__(
        self,
        settings: NameServerSettings | None = None,
        *,
        clock: Clock | None = None,
        network: Network | None = None,
        files: Files | None = None,
    ) -> None:
        settings = settings or NameServerSettings()
        files = files or DiskFiles()
        self._settings = SettingsInUse(settings)
        self._clock = clock or SystemClock()
        self.authentication: Authentication | None = authentication_by(
            settings.accounts, files, ACCESS, self._clock, settings.authentication
        )
        self._routes = RouteTable(settings.limits, timeout_s=settings.broker_timeout_ms / 1000)
        self._kv_config = KvConfig(files, settings.kv_config_path, _kv_limits(settings))
        self._scan: asyncio.TimerHandle | None = None
        self._following = Repeating("reloading accounts", FOLLOW_S, self._follow_accounts, log)
        tls = settings.tls.load()
        self._server = Server(
            settings.address,
            serve=self._dispatcher().serve,
            on_lost=self._forget,
            tls=tls,
            must_sign=self.authentication is not None,
            network=network or TcpNetwork(AcceptSettings(backlog=settings.backlog)),
            settings=_server_settings(settings),
        )
        self.metrics = NameServerMetrics(
            self._routes, lambda: self.counters, lambda: self.address, files, is_alone=settings.metrics.enabled
        )
        admits = self.authentication.may_read_metrics if self.authentication else None
        self._metrics_page = MetricsPage(
            settings.metrics, self.metrics.collect, network=network, tls=tls, admits=admits
        )

    @property
    def metrics_address(self) -> Address | None:
        """The address of the metrics page; None without one."""
        return self._metrics_page.address if self._settings.now.metrics.enabled else None

    @property
    def address(self) -> Address:
        """The listen address, with the actual port for port 0."""
        return self._server.address

    @property
    def counters(self) -> ServerCounters:
        return self._server.counters

    async def start(self) -> None:
        """Listen. ListenFailed if the address is in use; StoreDamaged or StoreLocked if the KV config cannot be used."""
        self._kv_config.open()
        async with AsyncExitStack() as undo:
            undo.push_async_callback(self._kv_config.close)
            undo.push_async_callback(self._server.stop)
            await self._server.start()
            if self._settings.now.metrics.enabled:
                await self._metrics_page.start()
            undo.pop_all()
        # Queries of the settings return the actual port instead of port 0.
        self._settings.now = msgspec.structs.replace(self._settings.now, port=self.address.port)
        self._scan_later()
        if self.authentication is not None:
            self._following.start()

    async def stop(self) -> None:
        """Harmless if called twice."""
        if self._scan is not None:
            self._scan.cancel()
        await self._following.stop()
        await self._metrics_page.stop()
        await self._server.stop()
        await self._kv_config.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    def _dispatcher(self) -> Dispatcher:
        parts = self._routes, self._kv_config, self._settings, self._clock
        return Dispatcher(
            [
                BrokerHandlers(*parts).table(),
                TopicHandlers(*parts).table(),
                KvConfigHandlers(self._kv_config).table(),
                SettingHandlers(self._settings).table(),
            ],
            ACCESS,
            check=self.authentication.check if self.authentication else None,
        )

    def _follow_accounts(self) -> None:
        if self.authentication is not None:
            self.authentication.follow()

    def _scan_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._scan = loop.call_later(self._settings.now.scan_interval_ms / 1000, self._scan_brokers)

    def _scan_brokers(self) -> None:
        self._scan_later()
        for member in self._routes.expire(self._clock.monotonic()):
            log.warning("Removed %s: no registration for %s s", member, member.timeout_s)
            if isinstance(member.connection, Peer):
                member.connection.close(ConnectionLost(f"no registration of this broker for {member.timeout_s} s"))

    def _forget(self, peer: Peer, reason: PocketMQError) -> None:
        level = logging.INFO if peer.refusing else logging.WARNING  # refusing: this server is shutting down
        for member in self._routes.lose(peer):
            log.log(level, "Removed %s: %s", member, reason)


def _kv_limits(settings: NameServerSettings) -> KvLimits:
    return KvLimits(
        max_entries=settings.max_kv_entries,
        max_name_chars=settings.max_kv_name_chars,
        max_value_chars=settings.max_kv_value_chars,
        max_waiting=settings.max_kv_waiting,
    )


def _server_settings(settings: NameServerSettings) -> ServerSettings:
    return ServerSettings(
        peer=PeerSettings(connection=ConnectionSettings(idle_s=settings.idle_s, linger_s=settings.linger_s)),
        max_connections=settings.max_connections,
        max_connections_per_host=settings.max_connections_per_host,
        unfinished=settings.unfinished,
        drain_s=settings.drain_s,
    )
