"""`pocketmq.Server`: a name server and a broker in this process, while a `with` block runs.

    with Server()         an event loop in its own thread    for blocking code, tests, notebooks
    async with Server()   the running event loop             for asyncio programs

    DIR/nameserver/kvConfig.json        the KV config of the name server
    DIR/broker-a/commitlog …            the store of the broker; `pocketmq store` and `pocketmq broker --data` can open it too

Without a folder, the server uses a temporary one and removes it at the end.
"""

import logging
import os
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack, ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Never, Self

from msgspec.structs import replace

from pocketmq.access.accounts_file import read_accounts
from pocketmq.broker.broker import Broker
from pocketmq.broker.setting_keys import read_keys
from pocketmq.broker.settings import BrokerSettings
from pocketmq.errors import InvalidSetting, WrongState
from pocketmq.files import DiskFiles, temporary_folder
from pocketmq.metrics.families import Family
from pocketmq.metrics.page import MetricsSettings
from pocketmq.model.names import refuse_unknown
from pocketmq.nameserver.route_tables import RouteLimits
from pocketmq.nameserver.server import NameServer
from pocketmq.nameserver.settings import NameServerSettings
from pocketmq.net import ClientTlsFiles, Portal, ServerTlsFiles, TlsMode, reachable
from pocketmq.protocol.signing import Credentials
from pocketmq.store.layout import find_log_file_bytes
from pocketmq.store.settings import EMBEDDED_LOG_FILE_BYTES, FlushMode, StoreSettings

if TYPE_CHECKING:
    from pocketmq.proxy.server import Proxy

log = logging.getLogger("pocketmq.server")

KV_CONFIG_PATH = Path("nameserver", "kvConfig.json")
"""Relative to the data folder."""
LOG_SIZE_KEY = "mappedFileSizeCommitLog"
KEYS_WITH_PARAMETERS = {
    "storePathRootDir": ("--data", "data"),
    "bindAddress": ("--host", "host"),
    "listenPort": ("--broker-port", "broker_port"),
    "namesrvAddr": ("--namesrv-port", "name_server_port"),
    "flushDiskType": ("--flush sync or --flush async", "flush"),
    "accountsFile": ("--accounts", "accounts"),
    "tls.server.mode": ("--tls-mode", "tls"),
    "tls.server.certPath": ("--tls-cert", "tls"),
    "tls.server.keyPath": ("--tls-key", "tls"),
    "tls.server.trustCertPath": ("--tls-client-ca", "tls"),
}
"""Keys of broker.conf that would contradict an option of `pocketmq serve`, which is an argument of `Server`."""


SERVER_ARGUMENTS = (
    "data",
    "host",
    "name_server_port",
    "broker_port",
    "flush",
    "settings",
    "accounts",
    "tls",
    "metrics_port",
    "metrics_host",
    "grpc_port",
    "grpc_settings",
    "open_to_the_network_without_authentication",
)


class Server:
    """A name server and a broker. `settings` are those of broker.conf, such as `{"transactionTimeOut": 2000}`.

    Port 0 is any free port. Topics are created with the first message. Several servers can run at once; each can be started
    once.

    With `metrics_port`, both expose Prometheus metrics at `http://127.0.0.1:PORT/metrics`, see `metrics_address`. With a
    `metrics_host` outside loopback, metrics need an account if there are accounts, and TLS if there is TLS.

    With `grpc_port`, RocketMQ 5's clients can connect too, see `grpc_address`. That needs `pocketmq[grpc]`.
    `grpc_settings` are limits and intervals, such as `{"max_clients": 100}`.

    With the file `accounts`, all accept only signed requests, and the broker registers with the first account that has this
    permission. With `tls`, all use this certificate.
    """

    def __init__(
        self,
        data: str | os.PathLike[str] | None = None,
        *,
        host: str = "127.0.0.1",
        name_server_port: int = 0,
        broker_port: int = 0,
        flush: str = FlushMode.ASYNC,
        settings: Mapping[str, str | int | bool] | None = None,
        accounts: str | os.PathLike[str] | None = None,
        tls: ServerTlsFiles | None = None,
        metrics_port: int | None = None,
        metrics_host: str | None = None,
        grpc_port: int | None = None,
        grpc_settings: Mapping[str, str | float] | None = None,
        open_to_the_network_without_authentication: bool = False,
        **unknown: Never,
    ) -> None:
        refuse_unknown("Server", unknown, SERVER_ARGUMENTS)
        if metrics_host is not None and metrics_port is None:
            raise InvalidSetting("metrics_host has no effect without metrics_port; set it too, 0 for any free port")
        self._data = None if data is None else Path(data)
        accounts = None if accounts is None else Path(accounts)
        tls = tls or ServerTlsFiles()
        self._has_log_size = LOG_SIZE_KEY in (settings or {})
        self._name_server_settings = NameServerSettings(
            host=host,
            port=name_server_port,
            kv_config_path=self._data and self._data / KV_CONFIG_PATH,
            accounts=accounts,
            tls=tls,
            open_to_the_network_without_authentication=open_to_the_network_without_authentication,
        )
        base = BrokerSettings(
            host=host,
            port=broker_port,
            store=StoreSettings(folder=Path(), log_file_bytes=EMBEDDED_LOG_FILE_BYTES, flush=_flush_mode(flush)),
            accounts=accounts,
            tls=tls,
            name_server_tls=name_server_tls(tls),
            metrics=MetricsSettings()
            if metrics_port is None
            else MetricsSettings(enabled=True, host=metrics_host or "127.0.0.1", port=metrics_port),
            open_to_the_network_without_authentication=open_to_the_network_without_authentication,
        )
        self._broker_settings = _with_keys(base, settings or {})
        self._name_server_settings = replace(self._name_server_settings, limits=limits_for(self._broker_settings))
        if grpc_settings and grpc_port is None:
            raise InvalidSetting("grpc_settings have no effect without grpc_port; set it too, 0 for any free port")
        self._grpc_port = grpc_port
        self._grpc_settings = grpc_settings or {}
        self._name_server: NameServer | None = None
        self._broker: Broker | None = None
        self._proxy: Proxy | None = None
        self._running: AsyncExitStack | None = None
        self._portal: Portal | None = None
        self._process = os.getpid()

    @property
    def name_server(self) -> str:
        """The address for clients, such as `127.0.0.1:9876`."""
        if self._name_server is None:
            raise WrongState("the server is not running; use it inside `with Server() as server:`")
        return str(reachable(self._name_server.address))

    @property
    def broker_address(self) -> str:
        return str(reachable(self._started_broker.address))

    @property
    def metrics_address(self) -> str | None:
        """Such as `127.0.0.1:5557`; None without metrics."""
        address = self._started_broker.metrics_address
        return None if address is None else str(reachable(address))

    @property
    def grpc_address(self) -> str | None:
        """The address for RocketMQ 5's clients, such as `127.0.0.1:8081`; None without `grpc_port`."""
        return None if self._proxy is None else str(self._proxy.address)

    @property
    def broker_settings(self) -> BrokerSettings:
        """The settings of the broker, as of its start."""
        return self._started_broker.settings

    @property
    def data(self) -> Path:
        """The data folder."""
        return self._started_broker.settings.store.folder.parent

    async def __aenter__(self) -> Self:
        if self._running is not None:
            raise WrongState("a server can be started only once; create another one with the same data folder")
        self._process = os.getpid()
        async with AsyncExitStack() as parts:
            folder = self._data or parts.enter_context(temporary_folder("pocketmq-"))
            name_server = await parts.enter_async_context(NameServer(self._name_server_settings))
            settings = self._settings_in(folder, name_server)

            async def more_metrics() -> list[Family]:
                of_proxy = [] if self._proxy is None else await self._proxy.collect()
                return [*await name_server.metrics.collect(), *of_proxy]

            broker = await parts.enter_async_context(Broker(settings, more_metrics=more_metrics))
            if self._grpc_port is not None:
                self._proxy = await parts.enter_async_context(self._proxy_of(name_server, self._grpc_port))
            self._name_server, self._broker = name_server, broker
            self._running = parts.pop_all()
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._running is not None and self._is_own:
            await self._running.aclose()

    def __enter__(self) -> Self:
        self._portal = Portal("pocketmq server")
        with ExitStack() as undo:
            undo.callback(self._portal.close)
            # Also works inside a running loop, as in a notebook, which blocks during the start.
            self._portal.submit(self.__aenter__()).result()
            undo.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        assert self._portal is not None
        if not self._is_own:
            return
        try:
            self._portal.submit(self.__aexit__()).result()
        finally:
            self._portal.close()

    @property
    def _is_own(self) -> bool:
        """Whether this process started the server. After a fork, the server and its data belong to the parent."""
        return os.getpid() == self._process

    def _settings_in(self, folder: Path, name_server: NameServer) -> BrokerSettings:
        settings = self._broker_settings
        store = replace(settings.store, folder=folder / settings.broker_name)
        found = None if self._has_log_size else find_log_file_bytes(DiskFiles(), store.folder)
        if found is not None:
            store = replace(store, log_file_bytes=found)
        credentials = settings.credentials or (
            None if settings.accounts is None else registrar(settings.accounts, settings.cluster)
        )
        return replace(settings, store=store, name_servers=(reachable(name_server.address),), credentials=credentials)

    def _proxy_of(self, name_server: NameServer, port: int) -> "Proxy":
        base = self._broker_settings
        return grpc_server(
            str(reachable(name_server.address)),
            self._grpc_settings,
            host=base.host,
            port=port,
            accounts=base.accounts,
            tls=base.tls,
            cluster_tls=base.name_server_tls.load() or False,
            open_to_the_network_without_authentication=base.open_to_the_network_without_authentication,
        )

    @property
    def _started_broker(self) -> Broker:
        if self._broker is None:
            raise WrongState("the server is not running; use it inside `with Server() as server:`")
        return self._broker


def has_grpc() -> bool:
    """Whether the packages of `pocketmq[grpc]` are installed."""
    return find_spec("grpc") is not None and find_spec("google.protobuf") is not None


def grpc_server(name_servers: str, limits: Mapping[str, str | float], **settings: Any) -> "Proxy":
    """The gRPC server of a cluster, not started yet. `settings` and `limits` are fields of `ProxySettings`."""
    if not has_grpc():
        raise InvalidSetting("RocketMQ 5's clients need the packages of pocketmq[grpc]: pip install 'pocketmq[grpc]'")
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # its library would report each child process on stderr
    from pocketmq.proxy.server import Proxy
    from pocketmq.proxy.settings import ProxySettings

    return Proxy(ProxySettings(name_servers=name_servers, **settings).changed(limits))


def limits_for(broker: BrokerSettings, brokers: int = 1) -> RouteLimits:
    """Limits of a name server that fit all topics that such brokers can create."""
    limits, most = RouteLimits(), brokers * (broker.max_topics + broker.max_retry_topics)
    return replace(
        limits, max_topics=max(limits.max_topics, most), max_topic_entries=max(limits.max_topic_entries, most)
    )


def _flush_mode(text: str) -> FlushMode:
    try:
        return FlushMode(text)
    except ValueError:
        raise InvalidSetting(f"invalid flush={text!r}; use 'async' or 'sync'") from None


def name_server_tls(tls: ServerTlsFiles) -> ClientTlsFiles:
    """TLS of a client for a server with this certificate."""
    if tls.in_use is TlsMode.DISABLED:
        return ClientTlsFiles()
    cert, key = (tls.cert, tls.key) if tls.client_ca else (None, None)
    return ClientTlsFiles(enabled=True, pinned=tls.cert, cert=cert, key=key)


def registrar(accounts: Path, cluster: str) -> Credentials:
    """The credentials with which a broker registers with a name server that has the same accounts."""
    found = read_accounts(DiskFiles(), accounts, os.environ).registrar(cluster)
    if found is None:
        raise InvalidSetting(
            f"no account in {accounts} can register brokers; give one "
            f'clusters = {{ "{cluster}" = ["Update"] }}, or admin = true'
        )
    return found.credentials


def check_keys(names: Iterable[str]) -> None:
    """InvalidSetting for a setting that has a parameter of its own."""
    for name in names:
        if name in KEYS_WITH_PARAMETERS:
            option, argument = KEYS_WITH_PARAMETERS[name]
            raise InvalidSetting(f"{name} cannot be set here; use {option}, in a program the argument {argument}")


def _with_keys(base: BrokerSettings, settings: Mapping[str, str | int | bool]) -> BrokerSettings:
    check_keys(settings)
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in settings.items()}
    parsed = read_keys(texts, base)
    for warning in parsed.warnings:
        log.warning("%s", warning)
    return parsed.settings
