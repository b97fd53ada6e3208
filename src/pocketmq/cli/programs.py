"""Running a server in the foreground: signals, the banner, the options of all servers, and child processes.

The first SIGINT or SIGTERM stops a server in order, a later one ends it at once:

    first signal ── stops in order ────────────────────────────────►
         └── SAME_STOP_S: further signals are ignored ──┴── the next signal ends the process

Programs such as `timeout` and foreman repeat a ctrl-C that the terminal has already sent to the whole process group.
"""

import asyncio
import logging
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import wraps
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple, Self, TypeVar

import click
import msgspec
from msgspec.structs import replace
from rich.text import Text

from pocketmq import __version__
from pocketmq.access.settings import OPEN_FLAG
from pocketmq.broker.broker import Broker
from pocketmq.broker.settings import BrokerSettings
from pocketmq.cli.commands import options
from pocketmq.cli.output import screen
from pocketmq.clock import SystemClock
from pocketmq.errors import InvalidSetting, ProgramFailed
from pocketmq.memory import SERVER, keep_freed
from pocketmq.metrics.log_lines import FORMS, log_formatter
from pocketmq.metrics.page import PATH as METRICS_PATH
from pocketmq.metrics.settings import MetricsSettings
from pocketmq.nameserver.server import NameServer
from pocketmq.nameserver.settings import NameServerSettings
from pocketmq.net.address import LARGEST_PORT, Address
from pocketmq.net.loops import QUIET_S, LoopFailures, new_loop
from pocketmq.net.tls import ServerTlsFiles, TlsMode
from pocketmq.store.settings import FlushMode

P = TypeVar("P")

log = logging.getLogger("pocketmq.cli")

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
SAME_STOP_S = 1.0


def log_to_stderr(form: str = "text", name: str = "") -> None:
    """Log to stderr, with the name of this server in each line; stdout is for results."""
    handler = logging.StreamHandler()
    handler.setFormatter(log_formatter(form, name))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def run_until_stopped(
    program: AbstractAsyncContextManager[P],
    on_ready: Callable[[P], None],
    until: Callable[[P], Coroutine[Any, Any, object]] | None = None,
) -> None:
    """Start `program`, call `on_ready`, and stop it on a signal, or when `until` returns or fails."""
    keep_freed(SERVER, os.environ)
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(_run(program, on_ready, until))


async def _run(
    program: AbstractAsyncContextManager[P],
    on_ready: Callable[[P], None],
    until: Callable[[P], Coroutine[Any, Any, object]] | None,
) -> None:
    loop = asyncio.get_running_loop()
    stop_requested = asyncio.Event()

    def stop() -> None:
        failures.free_stop_reserve()  # also without a signal, if memory has been short for long
        if not stop_requested.is_set():
            stop_requested.set()
            loop.call_later(SAME_STOP_S, restore_signals)

    def restore_signals() -> None:
        for number in STOP_SIGNALS:
            loop.remove_signal_handler(number)

    failures = LoopFailures(SystemClock(), stop)
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, stop)
        _call_first(number, failures.free_stop_reserve)
    loop.set_exception_handler(failures)
    watching = asyncio.ensure_future(_watch(failures))
    try:
        async with program as running:
            on_ready(running)
            await _first_of(stop_requested.wait(), None if until is None else until(running))
    finally:
        watching.cancel()
        # a closed uvloop would still catch the signals
        restore_signals()


def _call_first(number: int, callback: Callable[[], None]) -> None:
    """Call `callback` before the loop's own handler, which needs memory and would otherwise lose the signal."""
    loop_handler = signal.getsignal(number)

    def handler(number: int, frame: FrameType | None) -> None:
        callback()
        if callable(loop_handler):
            loop_handler(number, frame)

    signal.signal(number, handler)
    signal.siginterrupt(number, False)  # as asyncio does


async def _watch(failures: LoopFailures) -> None:
    while True:
        await asyncio.sleep(QUIET_S)
        failures.tick()


async def _first_of(signalled: Coroutine[Any, Any, object], other: Coroutine[Any, Any, object] | None) -> None:
    """Wait for either, and raise what `other` raises."""
    tasks = [asyncio.ensure_future(each) for each in (signalled, other) if each is not None]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def show_banner(title: str, rows: Mapping[str, str]) -> None:
    console = screen()
    console.print(Text(f"{title} {__version__}", "bold"))
    width = max(map(len, rows))
    for label, text in rows.items():
        console.print(Text(f"  {label:<{width}}  {text}"))
    console.print(Text("Ready. Press Ctrl-C to stop."))
    sys.stdout.flush()


def show_json(program: str, facts: Mapping[str, Any]) -> None:
    ready = {"event": "ready", "program": program, "version": __version__, **facts}
    sys.stdout.write(msgspec.json.encode(ready).decode() + "\n")
    sys.stdout.flush()


def access_rows(address: Address, accounts: Path | None, tls: ServerTlsFiles) -> dict[str, str]:
    """Rows of the banner: who can connect to a server at this address, and whether TLS protects connections."""
    if accounts is not None:
        clients = f"{'this machine only' if address.is_loopback else 'the network'}, with an account in {accounts}"
    else:
        clients = "this machine only" if address.is_loopback else "THE NETWORK, WITHOUT AUTHENTICATION"
    is_local_plain_text = address.is_loopback and tls.in_use is TlsMode.DISABLED
    return {"open to": clients} | ({} if is_local_plain_text else {"TLS": _tls_text(tls)})


def access_facts(address: Address, accounts: Path | None, tls: ServerTlsFiles) -> dict[str, Any]:
    """The same values for JSON."""
    return {
        "open_to_the_network": not address.is_loopback,
        "accounts": accounts and str(accounts),
        "tls": tls.in_use.value,
    }


def metrics_url(address: Address | str | None, metrics: MetricsSettings, tls: ServerTlsFiles) -> str | None:
    """The address of the metrics, or None."""
    if address is None:
        return None
    is_tls = tls.in_use is not TlsMode.DISABLED and not metrics.address.is_loopback
    return f"{'https' if is_tls else 'http'}://{address}{METRICS_PATH}"


def server_rows(server: NameServer | Broker, settings: NameServerSettings | BrokerSettings) -> dict[str, str]:
    """Rows that the banners of all servers have."""
    url = metrics_url(server.metrics_address, settings.metrics, settings.tls)
    return ({"metrics": url} if url else {}) | access_rows(server.address, settings.accounts, settings.tls)


def server_facts(server: NameServer | Broker, settings: NameServerSettings | BrokerSettings) -> dict[str, Any]:
    """The same values for JSON."""
    return {
        "address": str(server.address),
        "host": server.address.host,
        "port": server.address.port,
        "metrics": metrics_url(server.metrics_address, settings.metrics, settings.tls),
        **access_facts(server.address, settings.accounts, settings.tls),
    }


def _tls_text(tls: ServerTlsFiles) -> str:
    if tls.in_use is TlsMode.DISABLED:
        return "off: others on the network can read and repeat requests"
    if tls.in_use is TlsMode.PERMISSIVE:
        return "optional: plain text is also accepted"
    return "required, with client certificates" if tls.client_ca else "required"


def flush_text(flush: FlushMode) -> str:
    """When a send is acknowledged."""
    if flush is FlushMode.SYNC:
        return "sync: a send is acknowledged when the message is synced to disk"
    return "async: a send is acknowledged when the message is written; unsynced messages are lost on power failure"


_FILE: Final = click.Path(path_type=Path)
OPEN_METRICS_FLAG: Final = "--metrics-without-authentication"


class ServerOptions(NamedTuple):
    """The options of every server."""

    accounts: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_client_ca: Path | None = None
    tls_mode: str | None = None
    metrics_port: int | None = None
    metrics_host: str | None = None
    metrics_is_open: bool = False
    is_open: bool = False
    log_format: str = "text"
    as_json: bool = False

    def tls(self, base: ServerTlsFiles) -> ServerTlsFiles:
        """`base` with the options set."""
        mode = self.tls_mode and TlsMode(self.tls_mode)
        return _override(base, cert=self.tls_cert, key=self.tls_key, client_ca=self.tls_client_ca, mode=mode)

    def metrics(self, base: MetricsSettings) -> MetricsSettings:
        """`base` with the options set. InvalidSetting if they name a host but no port."""
        enabled = self.metrics_port is not None or None
        is_open = self.metrics_is_open or None
        settings = _override(
            base, host=self.metrics_host, port=self.metrics_port, enabled=enabled, without_authentication=is_open
        )
        if (self.metrics_host or self.metrics_is_open) and not settings.enabled:
            raise InvalidSetting(f"--metrics-host and {OPEN_METRICS_FLAG} need --metrics-port PORT")
        return settings

    def keys(self) -> dict[str, str]:
        """The options as keys of broker.conf."""
        keys = {
            "accountsFile": self.accounts,
            "tls.server.certPath": self.tls_cert,
            "tls.server.keyPath": self.tls_key,
            "tls.server.trustCertPath": self.tls_client_ca,
            "tls.server.mode": self.tls_mode,
        }
        return {key: str(value) for key, value in keys.items() if value is not None} | self.metrics_keys()

    def metrics_keys(self) -> dict[str, str]:
        port = self.metrics_port
        keys = {} if port is None else {"metricsExporterType": "PROM", "metricsPromExporterPort": str(port)}
        keys |= {"metricsPromExporterHost": self.metrics_host} if self.metrics_host else {}
        return keys | ({"metricsWithoutAuthentication": "true"} if self.metrics_is_open else {})

    def metrics_arguments(self, port: int) -> list[str]:
        """The metrics options for a child process, with another port."""
        host = ["--metrics-host", self.metrics_host] if self.metrics_host else []
        return ["--metrics-port", str(port), *host, *([OPEN_METRICS_FLAG] if self.metrics_is_open else [])]


S = TypeVar("S", bound=msgspec.Struct)


def _override(base: S, **values: Any) -> S:
    return replace(base, **{name: value for name, value in values.items() if value is not None})


def server_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of every server. The command gets `ServerOptions` as its first argument."""

    @wraps(command)
    def with_options(**params: Any) -> Any:
        own = {name: params.pop(name) for name in ServerOptions._fields}
        return command(ServerOptions(**own), **params)

    return _SERVER_OPTIONS(with_options)


_SERVER_OPTIONS: Final = options(
    click.option(
        "--accounts",
        type=_FILE,
        metavar="FILE",
        help="Accounts (TOML); every request must be signed by one of them.  [default: no authentication]",
    ),
    click.option("--tls-cert", type=_FILE, metavar="FILE", help="Use TLS with this certificate (PEM)."),
    click.option("--tls-key", type=_FILE, metavar="FILE", help="The private key, if it is not in the same file."),
    click.option(
        "--tls-client-ca", type=_FILE, metavar="FILE", help="Require client certificates signed by this authority."
    ),
    click.option(
        "--tls-mode",
        type=click.Choice([mode.value for mode in TlsMode]),
        help="enforcing rejects plain text, permissive accepts it too.  [default: enforcing]",
    ),
    click.option(
        "--metrics-port",
        type=click.IntRange(0, LARGEST_PORT),
        metavar="PORT",
        help="Expose Prometheus metrics at http://127.0.0.1:PORT/metrics; 0 is any free port.  [default: off]",
    ),
    click.option(
        "--metrics-host",
        metavar="HOST",
        help="Expose metrics at this address. Outside loopback, they require TLS if the server has a certificate, and an "
        "account with permission to read the cluster if it has accounts.  [default: 127.0.0.1]",
    ),
    click.option(OPEN_METRICS_FLAG, "metrics_is_open", is_flag=True, help="Serve metrics without authentication."),
    click.option(
        OPEN_FLAG, "is_open", is_flag=True, help="Allow other machines to connect although there are no accounts."
    ),
    click.option(
        "--log-format",
        type=click.Choice(FORMS),
        default="text",
        show_default=True,
        help="The format of the log on stderr, one line per event.",
    ),
    click.option("--json", "as_json", is_flag=True, help="When ready, print one line of JSON instead of the banner."),
)


class ChildProgram:
    """A PocketMQ program in a child process. `ready` is the JSON that it printed when it was ready.

    It stops when its stdin ends, so also when this process is killed.
    """

    def __init__(self, name: str, process: Process, ready: dict[str, Any]) -> None:
        self.name = name
        self.ready = ready
        self._process = process

    @classmethod
    async def start(cls, name: str, *arguments: str, environment: Mapping[str, str] | None = None) -> Self:
        # A new session: ctrl-C on the terminal goes to this process, which then stops its children.
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", *arguments, "--json", "--until-end-of-input"),
            env={**os.environ, **(environment or {})},
            stdin=PIPE,
            stdout=PIPE,
            start_new_session=True,
        )
        assert process.stdout is not None
        async with AsyncExitStack() as undo:
            undo.push_async_callback(_killed, process)
            line = await process.stdout.readline()
            undo.pop_all()
        if not line:
            raise ProgramFailed(f"{name} ended with exit code {await _ended(process)} before it was ready")
        return cls(name, process, msgspec.json.decode(line))

    async def wait(self) -> int:
        """Wait until it ends; its exit code."""
        return await self._process.wait()

    async def stop(self, within_s: float) -> int:
        """Send SIGTERM and wait until it ends; its exit code."""
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(within_s):
                return await _ended(self._process)
        except TimeoutError:
            log.error(
                "%s did not stop within %s s; killing it. Its store recovers at the next start", self.name, within_s
            )
            return await _killed(self._process)


async def _ended(process: Process) -> int:
    """The exit code, once the process has ended and its streams are closed."""
    await process.communicate()
    return await process.wait()


async def _killed(process: Process) -> int:
    if process.returncode is None:
        process.kill()
    return await _ended(process)
