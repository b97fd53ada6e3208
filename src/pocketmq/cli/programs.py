"""Programs that run until they are told to stop: by ctrl-C or SIGTERM they end well, and by a later one of these at once.

    one ── ends well ──────────────────────────────────────────►
         └── SAME_STOP_S: more of them ask for the same stop ──┴── one more ends it at once

Who starts a program for somebody often passes ctrl-C on that the terminal has sent it already: `timeout`, foreman and others.

How a program that runs says that it is ready: a banner for people, or one line of JSON for scripts.

The options of all servers: who may talk to them, who can listen, where their metrics are, and in which form they log.

Programs that a server starts beside itself: brokers and the console.
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
from pocketmq.cli.screen import screen
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


def log_to_stderr(form: str = "text", who: str = "") -> None:
    """Say on the error stream what happens, and who says it; the output stream is for results."""
    handler = logging.StreamHandler()
    handler.setFormatter(log_formatter(form, who))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def run_until_stopped(
    program: AbstractAsyncContextManager[P],
    on_ready: Callable[[P], None],
    until: Callable[[P], Coroutine[Any, Any, object]] | None = None,
) -> None:
    """Start `program`, tell `on_ready`, and stop it when a signal asks for it, or when `until` returns or fails."""
    keep_freed(SERVER, os.environ)
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(_run(program, on_ready, until))


async def _run(
    program: AbstractAsyncContextManager[P],
    on_ready: Callable[[P], None],
    until: Callable[[P], Coroutine[Any, Any, object]] | None,
) -> None:
    loop = asyncio.get_running_loop()
    told_to_stop = asyncio.Event()

    def stop() -> None:
        failures.free_stop_reserve()  # also when no signal came: there was no memory for long
        if not told_to_stop.is_set():
            told_to_stop.set()
            loop.call_later(SAME_STOP_S, give_back_signals)

    def give_back_signals() -> None:
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
            await _first_of(told_to_stop.wait(), None if until is None else until(running))
    finally:
        watching.cancel()
        # A closed loop of uvloop would go on swallowing them.
        give_back_signals()


def _call_first(number: int, callback: Callable[[], None]) -> None:
    """When the signal comes, call back before the loop learns of it: that takes memory, and without any the signal would be lost."""
    noted_by_loop = signal.getsignal(number)

    def handler(number: int, frame: FrameType | None) -> None:
        callback()
        if callable(noted_by_loop):
            noted_by_loop(number, frame)

    signal.signal(number, handler)
    signal.siginterrupt(number, False)  # as loops do


async def _watch(failures: LoopFailures) -> None:
    while True:
        await asyncio.sleep(QUIET_S)
        failures.tick()


async def _first_of(signalled: Coroutine[Any, Any, object], other: Coroutine[Any, Any, object] | None) -> None:
    """Wait for either. What `other` raises is raised."""
    tasks = [asyncio.ensure_future(waited_for) for waited_for in (signalled, other) if waited_for is not None]
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
    console.print(Text("Ready. Ctrl-C stops it."))
    sys.stdout.flush()


def show_json(program: str, facts: Mapping[str, Any]) -> None:
    ready = {"event": "ready", "program": program, "version": __version__, **facts}
    sys.stdout.write(msgspec.json.encode(ready).decode() + "\n")
    sys.stdout.flush()


def access_words(address: Address, accounts: Path | None, tls: ServerTlsFiles) -> dict[str, str]:
    """Who can talk to somebody who listens there, and who can listen to them."""
    if accounts is not None:
        who = f"{'this machine only' if address.is_loopback else 'everybody'}, signed by an account in {accounts}"
    else:
        who = "this machine only" if address.is_loopback else "EVERYBODY who reaches it, without authentication"
    is_plain_at_home = address.is_loopback and tls.in_use is TlsMode.DISABLED
    return {"open to": who} | ({} if is_plain_at_home else {"TLS": _tls_words(tls)})


def access_facts(address: Address, accounts: Path | None, tls: ServerTlsFiles) -> dict[str, Any]:
    """The same for scripts."""
    return {
        "open_to_the_network": not address.is_loopback,
        "accounts": accounts and str(accounts),
        "tls": tls.in_use.value,
    }


def metrics_url(address: Address | str | None, metrics: MetricsSettings, tls: ServerTlsFiles) -> str | None:
    """Where the metrics are; None if nobody asked for them."""
    if address is None:
        return None
    is_tls = tls.in_use is not TlsMode.DISABLED and not metrics.address.is_loopback
    return f"{'https' if is_tls else 'http'}://{address}{METRICS_PATH}"


def server_words(server: NameServer | Broker, settings: NameServerSettings | BrokerSettings) -> dict[str, str]:
    """The rows of a banner that all servers have."""
    url = metrics_url(server.metrics_address, settings.metrics, settings.tls)
    return ({"metrics": url} if url else {}) | access_words(server.address, settings.accounts, settings.tls)


def server_facts(server: NameServer | Broker, settings: NameServerSettings | BrokerSettings) -> dict[str, Any]:
    """The same for scripts."""
    return {
        "address": str(server.address),
        "host": server.address.host,
        "port": server.address.port,
        "metrics": metrics_url(server.metrics_address, settings.metrics, settings.tls),
        **access_facts(server.address, settings.accounts, settings.tls),
    }


def _tls_words(tls: ServerTlsFiles) -> str:
    if tls.in_use is TlsMode.DISABLED:
        return "none: what is said can be read, and sent again, by who sees the network"
    if tls.in_use is TlsMode.PERMISSIVE:
        return "for those who speak it; others are served in plain text"
    return "required, with a certificate of each client" if tls.client_ca else "required"


def flush_words(flush: FlushMode) -> str:
    """What a sender may rely on."""
    if flush is FlushMode.SYNC:
        return "sync: a send is answered when it is safe on the disk"
    return "async: a send is answered when it is written; what is not on the disk yet is lost if power fails"


_FILE: Final = click.Path(path_type=Path)
OPEN_METRICS_FLAG: Final = "--metrics-without-authentication"


class ServerOptions(NamedTuple):
    """What the command line of every server may say."""

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
        """`base` with what the options say."""
        mode = self.tls_mode and TlsMode(self.tls_mode)
        return _over(base, cert=self.tls_cert, key=self.tls_key, client_ca=self.tls_client_ca, mode=mode)

    def metrics(self, base: MetricsSettings) -> MetricsSettings:
        """`base` with what the options say; InvalidSetting when they name a host, but no port."""
        is_asked_for = self.metrics_port is not None or None
        is_open = self.metrics_is_open or None
        settings = _over(
            base, host=self.metrics_host, port=self.metrics_port, enabled=is_asked_for, without_authentication=is_open
        )
        if (self.metrics_host or self.metrics_is_open) and not settings.enabled:
            raise InvalidSetting(f"--metrics-host and {OPEN_METRICS_FLAG} need --metrics-port PORT")
        return settings

    def keys(self) -> dict[str, str]:
        """The same as keys of broker.conf."""
        given = {
            "accountsFile": self.accounts,
            "tls.server.certPath": self.tls_cert,
            "tls.server.keyPath": self.tls_key,
            "tls.server.trustCertPath": self.tls_client_ca,
            "tls.server.mode": self.tls_mode,
        }
        return {key: str(value) for key, value in given.items() if value is not None} | self.metrics_keys()

    def metrics_keys(self) -> dict[str, str]:
        port = self.metrics_port
        keys = {} if port is None else {"metricsExporterType": "PROM", "metricsPromExporterPort": str(port)}
        keys |= {"metricsPromExporterHost": self.metrics_host} if self.metrics_host else {}
        return keys | ({"metricsWithoutAuthentication": "true"} if self.metrics_is_open else {})

    def metrics_arguments(self, port: int) -> list[str]:
        """The same for another program, on another port."""
        host = ["--metrics-host", self.metrics_host] if self.metrics_host else []
        return ["--metrics-port", str(port), *host, *([OPEN_METRICS_FLAG] if self.metrics_is_open else [])]


S = TypeVar("S", bound=msgspec.Struct)


def _over(base: S, **given: Any) -> S:
    return replace(base, **{name: value for name, value in given.items() if value is not None})


def server_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of every server; the command gets `ServerOptions` for them, as its first argument."""

    @wraps(command)
    def with_options(**given: Any) -> Any:
        own = {name: given.pop(name) for name in ServerOptions._fields}
        return command(ServerOptions(**own), **given)

    return _SERVER_OPTIONS(with_options)


_SERVER_OPTIONS: Final = options(
    click.option(
        "--accounts",
        type=_FILE,
        metavar="FILE",
        help="Accounts (TOML): every request must be signed by one of them.  [default: nobody is asked]",
    ),
    click.option("--tls-cert", type=_FILE, metavar="FILE", help="Listen with TLS and this certificate (PEM)."),
    click.option("--tls-key", type=_FILE, metavar="FILE", help="Its key, if it is not in the same file."),
    click.option(
        "--tls-client-ca", type=_FILE, metavar="FILE", help="Clients must show a certificate that this one signed."
    ),
    click.option(
        "--tls-mode",
        type=click.Choice([mode.value for mode in TlsMode]),
        help="enforcing turns plain text away, permissive lets it in as well.  [default: enforcing]",
    ),
    click.option(
        "--metrics-port",
        type=click.IntRange(0, LARGEST_PORT),
        metavar="PORT",
        help="Tell metrics for Prometheus at http://127.0.0.1:PORT/metrics; 0 is any free port.  [default: none]",
    ),
    click.option(
        "--metrics-host",
        metavar="HOST",
        help="Where the metrics are. Elsewhere than on loopback they need an account that may look at the cluster, "
        "if there are accounts, and TLS, if there is a certificate.  [default: 127.0.0.1]",
    ),
    click.option(
        OPEN_METRICS_FLAG, "metrics_is_open", is_flag=True, help="Tell metrics to everybody who reaches them."
    ),
    click.option(OPEN_FLAG, "is_open", is_flag=True, help="Needed to listen, without accounts, where others reach it."),
    click.option(
        "--log-format",
        type=click.Choice(FORMS),
        default="text",
        show_default=True,
        help="How the log on the error stream is written, a line for each event.",
    ),
    click.option("--json", "as_json", is_flag=True, help="When ready, one line of JSON instead of a banner."),
)


class ChildProgram:
    """A program of ours in a process of its own. `ready` is what it wrote as JSON when it was ready.

    It ends when its input stream does, so also when this process is killed.
    """

    def __init__(self, name: str, process: Process, ready: dict[str, Any]) -> None:
        self.name = name
        self.ready = ready
        self._process = process

    @classmethod
    async def start(cls, name: str, *arguments: str, environment: Mapping[str, str] | None = None) -> Self:
        # In a session of its own: ctrl-C on the terminal is for this process, which then tells its children.
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
        """Its exit code, when it ends."""
        return await self._process.wait()

    async def stop(self, within_s: float) -> int:
        """Tell it to end, and wait until it did: its exit code."""
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(within_s):
                return await _ended(self._process)
        except TimeoutError:
            log.error(
                "%s did not stop within %s s and is killed; a store recovers at its next start", self.name, within_s
            )
            return await _killed(self._process)


async def _ended(process: Process) -> int:
    """The exit code, when the process has ended and its streams are closed."""
    await process.communicate()
    return await process.wait()


async def _killed(process: Process) -> int:
    if process.returncode is None:
        process.kill()
    return await _ended(process)
