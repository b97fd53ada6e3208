"""`pocketmq serve`: run a name server and one or several brokers with one command.

One broker runs in this process. Several brokers run in child processes, the name server in this one:

    pocketmq serve --brokers 3 ─┬─ name server
                                ├─ pocketmq broker --name broker-a --data DIR/broker-a
                                ├─ pocketmq broker --name broker-b --data DIR/broker-b
                                └─ pocketmq broker --name broker-c --data DIR/broker-c

If one broker ends, all of them stop. If this process is killed, the stdin of its children ends, and they stop.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import click

from pocketmq.access.settings import OPEN_FLAG
from pocketmq.broker.setting_keys import read_keys
from pocketmq.broker.settings import DEFAULT_FOLDER, BrokerSettings
from pocketmq.broker.settings import DEFAULT_PORT as BROKER_PORT
from pocketmq.cli.broker import FLUSH_CHOICE, advertise_option, parse_settings, set_option
from pocketmq.cli.commands import flag, number_option, path_option, port_option, text_option
from pocketmq.cli.console import console_options, console_settings, refuse_console_options
from pocketmq.cli.console import with_console as beside_console
from pocketmq.cli.programs import ChildProgram, log_to_stderr, run_until_stopped
from pocketmq.cli.server_options import (
    DATA_VARIABLE,
    HOST_VARIABLE,
    ServerOptions,
    access_facts,
    access_rows,
    flush_text,
    metrics_url,
    server_options,
    show_banner,
    show_json,
)
from pocketmq.embedded import (
    KV_CONFIG_PATH,
    LOG_SIZE_KEY,
    Server,
    check_keys,
    grpc_server,
    has_grpc,
    limits_for,
    name_server_tls,
    registrar,
)
from pocketmq.errors import InvalidSetting, ProgramFailed
from pocketmq.files import DiskFiles
from pocketmq.metrics.page import MetricsSettings
from pocketmq.nameserver.server import NameServer
from pocketmq.nameserver.settings import DEFAULT_PORT as NAME_SERVER_PORT
from pocketmq.nameserver.settings import NameServerSettings
from pocketmq.net import LARGEST_PORT, Address, ServerTlsFiles, reachable
from pocketmq.store.layout import find_log_file_bytes
from pocketmq.store.settings import EMBEDDED_LOG_FILE_BYTES, FlushMode

if TYPE_CHECKING:
    from pocketmq.proxy.server import Proxy

GRPC_PORT: Final = 8081
"""RocketMQ's port for its proxy."""
STOP_S = 60
"""The time limit for stopping a broker. It gives up on a hanging disk before."""
MOST_BROKERS = len(ascii_lowercase)


class BrokerPlan(NamedTuple):
    """The command line of one broker."""

    name: str
    folder: Path
    options: Sequence[str]


class BrokerProcesses:
    """A name server and several broker processes. Use `async with`; it starts when all brokers are ready."""

    def __init__(
        self,
        name_server_settings: NameServerSettings,
        plans: Sequence[BrokerPlan],
        grpc_port: int | None = None,
        grpc_settings: Mapping[str, str] | None = None,
    ) -> None:
        self._settings = name_server_settings
        self._name_server = NameServer(name_server_settings)
        self._plans = plans
        self._grpc_port = grpc_port
        self._grpc_settings = grpc_settings or {}
        self._grpc = AsyncExitStack()
        self.grpc_address: str | None = None
        self.brokers: list[ChildProgram] = []

    @property
    def name_server(self) -> str:
        return str(reachable(self._name_server.address))

    async def __aenter__(self) -> Self:
        await self._name_server.start()
        starts = [asyncio.create_task(self._start(plan)) for plan in self._plans]
        async with AsyncExitStack() as undo:
            undo.push_async_callback(self._undo_start, starts)
            self.brokers = await asyncio.gather(*starts)
            if self._grpc_port is not None:
                proxy = await self._grpc.enter_async_context(self._proxy(self._grpc_port))
                self.grpc_address = str(proxy.address)
            undo.pop_all()
        return self

    def _proxy(self, port: int) -> "Proxy":
        settings = self._settings
        return grpc_server(
            self.name_server,
            self._grpc_settings,
            host=settings.host,
            port=port,
            accounts=settings.accounts,
            tls=settings.tls,
            cluster_tls=name_server_tls(settings.tls).load() or False,
            open_to_the_network_without_authentication=settings.open_to_the_network_without_authentication,
        )

    async def _undo_start(self, starts: list[asyncio.Task[ChildProgram]]) -> None:
        await asyncio.gather(*starts, return_exceptions=True)
        self.brokers = [start.result() for start in starts if not start.cancelled() and not start.exception()]
        await self._stop()

    async def __aexit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        codes = await self._stop()
        failed = [
            f"{broker.name} exited with code {code}" for broker, code in zip(self.brokers, codes, strict=True) if code
        ]
        if failed and kind is None:
            raise ProgramFailed("; ".join(failed))

    async def _stop(self) -> list[int]:
        await self._grpc.aclose()
        codes = await asyncio.gather(*(broker.stop(STOP_S) for broker in self.brokers))
        await self._name_server.stop()
        return codes

    async def until_one_ends(self) -> None:
        """Wait until a broker ends unexpectedly, and raise ProgramFailed."""
        waits = {asyncio.ensure_future(broker.wait()): broker for broker in self.brokers}
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        ended = [f"{waits[wait].name} exited unexpectedly with code {wait.result()}" for wait in done]
        raise ProgramFailed("; ".join(ended) + "; stopping all brokers")

    async def _start(self, plan: BrokerPlan) -> ChildProgram:
        options = ("--name", plan.name, "--data", str(plan.folder), "--namesrv", self.name_server)
        return await ChildProgram.start(plan.name, "pocketmq", "broker", *options, *plan.options)


def broker_name(number: int) -> str:
    """broker-a, broker-b …"""
    return f"broker-{ascii_lowercase[number]}"


PORT_STEP = 10
"""The distance between the ports of two brokers, as in RocketMQ's examples."""
PORT = click.IntRange(0, LARGEST_PORT)


class ServeOptions(NamedTuple):
    """The parsed options."""

    server: ServerOptions
    host: str
    name_server_port: int
    broker_port: int
    folder: Path
    flush: str
    settings: dict[str, str]
    tls: ServerTlsFiles
    grpc_port: int | None
    grpc_settings: dict[str, str]


@click.command()
@text_option("--host", "The address to listen on.", default="127.0.0.1", metavar="HOST", **HOST_VARIABLE)
@port_option("--namesrv-port", "The port of the name server; 0 is any free port.", default=NAME_SERVER_PORT)
@port_option(
    "--broker-port",
    f"The port of the broker; 0 is any free port. Each further broker adds {PORT_STEP}.",
    default=BROKER_PORT,
)
@port_option(
    "--grpc-port",
    f"The port for RocketMQ 5's clients, which use gRPC; 0 is any free port. It needs pocketmq[grpc].  "
    f"[default: {GRPC_PORT} if that is installed; any free port with another --broker-port]",
)
@flag("--no-grpc", "Do not listen for RocketMQ 5's clients.")
@text_option(
    "--grpc-set",
    "A limit of the gRPC server, such as max_clients=100; may be repeated.",
    multiple=True,
    metavar="NAME=VALUE",
)
@advertise_option
@path_option(
    "--data",
    "folder",
    "The data folder, with one subfolder per broker.",
    default=DEFAULT_FOLDER,
    metavar="DIR",
    **DATA_VARIABLE,
)
@click.option(
    "--flush",
    type=FLUSH_CHOICE,
    default=FlushMode.ASYNC.value,
    show_default=True,
    help="Acknowledge a send when it is written (async) or synced to disk (sync).",
)
@number_option(
    "--brokers",
    "count",
    "The number of brokers. Several brokers run in processes of their own.",
    most=MOST_BROKERS,
    default=1,
)
@set_option
@console_options
@server_options
def serve(
    server: ServerOptions,
    host: str,
    namesrv_port: int,
    broker_port: int,
    grpc_port: int | None,
    no_grpc: bool,
    grpc_set: tuple[str, ...],
    advertise: str | None,
    folder: Path,
    flush: str,
    count: int,
    set_keys: tuple[str, ...],
    with_console: bool,
    console_host: str,
    console_port: int,
    console_users: Path | None,
) -> None:
    """Run a name server and a broker until ctrl-C or SIGTERM.

    This is a complete server for RocketMQ clients: on a laptop, in tests or in a small installation. Clients connect to
    the address of the name server. Topics are created automatically with the first message.
    """
    settings = parse_settings(set_keys) | ({"brokerIP1": advertise} if advertise else {})
    tls = server.tls(ServerTlsFiles())
    server.metrics(MetricsSettings())  # rejects wrong options before anything starts
    if not with_console:
        refuse_console_options()
    grpc, limits = _grpc_port(grpc_port, broker_port, is_off=no_grpc), parse_settings(grpc_set, "--grpc-set")
    if limits and grpc is None:
        raise InvalidSetting("--grpc-set needs gRPC: remove --no-grpc, and install pocketmq[grpc]")
    options = ServeOptions(server, host, namesrv_port, broker_port, folder, flush, settings, tls, grpc, limits)
    show = _show_json if server.as_json else _show_banner
    console = (
        console_settings(console_host, console_port, console_users, server.accounts, tls, server.log_format)
        if with_console
        else None
    )
    log_to_stderr(server.log_format)
    if count == 1:
        run_until_stopped(
            beside_console(_in_one_process(options), console),
            lambda both: show(options, both[0], _brokers_of(both[0]), both[1]),
        )
    else:
        run_until_stopped(
            beside_console(_in_processes(options, count), console),
            lambda both: show(options, both[0], [broker.ready for broker in both[0].brokers], both[1]),
            lambda both: both[0].until_one_ends(),
        )


def _grpc_port(port: int | None, broker_port: int, *, is_off: bool) -> int | None:
    """The port for gRPC; None without it."""
    if is_off:
        if port is not None:
            raise InvalidSetting("--no-grpc and --grpc-port contradict each other")
        return None
    if port is None and has_grpc():
        return GRPC_PORT if broker_port == BROKER_PORT else 0
    return port


def _in_one_process(options: ServeOptions) -> Server:
    return Server(
        options.folder,
        host=options.host,
        name_server_port=options.name_server_port,
        broker_port=options.broker_port,
        flush=options.flush,
        settings=options.server.metrics_keys() | options.settings,
        accounts=options.server.accounts,
        tls=options.tls,
        grpc_port=options.grpc_port,
        grpc_settings=options.grpc_settings,
        open_to_the_network_without_authentication=options.server.is_open,
    )


def _in_processes(options: ServeOptions, count: int) -> BrokerProcesses:
    check_keys(options.settings)
    broker, _ = read_keys(options.settings)  # each broker process logs its own warnings
    if "brokerName" in options.settings:
        raise InvalidSetting("brokerName is for a single broker; several brokers are named broker-a, broker-b …")
    name_server = NameServerSettings(
        host=options.host,
        port=options.name_server_port,
        kv_config_path=options.folder / KV_CONFIG_PATH,
        accounts=options.server.accounts,
        tls=options.tls,
        metrics=options.server.metrics(MetricsSettings()),
        limits=limits_for(broker, count),
        open_to_the_network_without_authentication=options.server.is_open,
    )
    plans = [_plan(options, number) for number in range(count)]
    return BrokerProcesses(name_server, plans, options.grpc_port, options.grpc_settings)


def _plan(options: ServeOptions, number: int) -> BrokerPlan:
    name = broker_name(number)
    folder = options.folder / name
    port = options.broker_port and options.broker_port + number * PORT_STEP
    settings = {"autoCreateTopicEnable": "true"} | options.settings
    if find_log_file_bytes(DiskFiles(), folder) is None:
        settings.setdefault(LOG_SIZE_KEY, str(EMBEDDED_LOG_FILE_BYTES))
    arguments = [
        "--host",
        options.host,
        "--port",
        str(port),
        "--flush",
        options.flush,
        "--log-format",
        options.server.log_format,
    ]
    if (first := options.server.metrics_port) is not None:  # the name server's port; each broker uses the next one
        arguments += options.server.metrics_arguments(first and first + 1 + number)
    arguments += [OPEN_FLAG] if options.server.is_open else []
    arguments += _access_arguments(options)
    for key, text in settings.items():
        arguments += ["--set", f"{key}={text}"]
    return BrokerPlan(name, folder, arguments)


def _access_arguments(options: ServeOptions) -> list[str]:
    """A broker uses the accounts and the certificate of the name server, also to register with it."""
    arguments: list[str] = []
    if options.server.accounts is not None:
        cluster = options.settings.get("brokerClusterName", BrokerSettings().cluster)
        arguments += ["--accounts", str(options.server.accounts)]
        arguments += ["--register-as", registrar(options.server.accounts, cluster).access_key]
    tls, client_tls = options.tls, name_server_tls(options.tls)
    if client_tls.enabled:
        arguments += ["--tls-mode", tls.in_use.value, "--set", "useTLS=true"]
    files = {"tls-cert": tls.cert, "tls-key": tls.key, "tls-client-ca": tls.client_ca}
    for option, file in files.items():
        arguments += [] if file is None else [f"--{option}", str(file)]
    keys = {"pinnedCertPath": client_tls.pinned, "certPath": client_tls.cert, "keyPath": client_tls.key}
    for key, file in keys.items():
        arguments += [] if file is None else ["--set", f"tls.client.{key}={file}"]
    return arguments


def _brokers_of(server: Server) -> list[dict[str, Any]]:
    settings = server.broker_settings
    return [
        {
            "name": settings.broker_name,
            "address": server.broker_address,
            "data": str(settings.store.folder),
            "metrics": metrics_url(server.metrics_address, settings.metrics, settings.tls),
        }
    ]


def _show_banner(
    options: ServeOptions, server: Server | BrokerProcesses, brokers: list[dict[str, Any]], console: str | None
) -> None:
    show_banner(
        "PocketMQ",
        {
            "name server": server.name_server,
            **{broker["name"]: broker["address"] for broker in brokers},
            **({"gRPC": server.grpc_address} if server.grpc_address else {}),
            "data": str(options.folder),
            "flush": flush_text(FlushMode(options.flush)),
            **_metrics_rows(brokers),
            **({"console": console} if console else {}),
            **access_rows(Address(options.host, 0), options.server.accounts, options.tls),
        },
    )


def _metrics_rows(brokers: list[dict[str, Any]]) -> dict[str, str]:
    urls = [broker["metrics"] for broker in brokers if broker["metrics"]]
    return {"metrics": ", ".join(urls)} if urls else {}


def _show_json(
    options: ServeOptions, server: Server | BrokerProcesses, brokers: list[dict[str, Any]], console: str | None
) -> None:
    show_json(
        "serve",
        {
            "name_server": server.name_server,
            "grpc": server.grpc_address,
            "brokers": [{fact: broker[fact] for fact in ("name", "address", "data", "metrics")} for broker in brokers],
            "data": str(options.folder),
            "flush": options.flush,
            "console": console,
            **access_facts(Address(options.host, 0), options.server.accounts, options.tls),
        },
    )
