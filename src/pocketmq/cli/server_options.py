"""The options that all servers have, and the banner or JSON that they print when they are ready."""

import sys
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import click
import msgspec
from msgspec.structs import replace
from rich.text import Text

import pocketmq
from pocketmq.access.settings import OPEN_FLAG
from pocketmq.cli.commands import choice_option, flag, options, path_option, port_option, text_option, variable
from pocketmq.cli.output import screen
from pocketmq.errors import InvalidSetting
from pocketmq.metrics.log_lines import FORMS
from pocketmq.metrics.page import PATH as METRICS_PATH
from pocketmq.metrics.page import MetricsSettings
from pocketmq.net import Address, ServerTlsFiles, TlsMode
from pocketmq.store.settings import FlushMode

HOST_VARIABLE: Final = variable("POCKETMQ_HOST")
DATA_VARIABLE: Final = variable("POCKETMQ_DATA")


class RunningServer(Protocol):
    """A name server or a broker."""

    @property
    def address(self) -> Address: ...
    @property
    def metrics_address(self) -> Address | None: ...


class ServerSettings(Protocol):
    @property
    def metrics(self) -> MetricsSettings: ...
    @property
    def tls(self) -> ServerTlsFiles: ...
    @property
    def accounts(self) -> Path | None: ...


def show_banner(title: str, rows: Mapping[str, str]) -> None:
    console = screen()
    console.print(Text(f"{title} {pocketmq.__version__}", "bold"))
    width = max(map(len, rows))
    for label, text in rows.items():
        console.print(Text(f"  {label:<{width}}  {text}"))
    console.print(Text("Ready. Press Ctrl-C to stop."))
    sys.stdout.flush()


def show_json(program: str, facts: Mapping[str, Any]) -> None:
    ready = {"event": "ready", "program": program, "version": pocketmq.__version__, **facts}
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


def server_rows(server: RunningServer, settings: ServerSettings) -> dict[str, str]:
    """Rows that the banners of all servers have."""
    url = metrics_url(server.metrics_address, settings.metrics, settings.tls)
    return ({"metrics": url} if url else {}) | access_rows(server.address, settings.accounts, settings.tls)


def server_facts(server: RunningServer, settings: ServerSettings) -> dict[str, Any]:
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
    path_option(
        "--accounts", "Accounts (TOML); every request must be signed by one of them.  [default: no authentication]"
    ),
    path_option("--tls-cert", "Use TLS with this certificate (PEM)."),
    path_option("--tls-key", "The private key, if it is not in the same file."),
    path_option("--tls-client-ca", "Require client certificates signed by this authority."),
    choice_option(
        "--tls-mode", "enforcing rejects plain text, permissive accepts it too.  [default: enforcing]", of=TlsMode
    ),
    port_option(
        "--metrics-port",
        "Expose Prometheus metrics at http://127.0.0.1:PORT/metrics; 0 is any free port.  [default: off]",
    ),
    text_option(
        "--metrics-host",
        "Expose metrics at this address. Outside loopback, they require TLS if the server has a certificate, and an "
        "account with permission to read the cluster if it has accounts.  [default: 127.0.0.1]",
        metavar="HOST",
    ),
    flag(OPEN_METRICS_FLAG, "metrics_is_open", "Serve metrics without authentication."),
    flag(OPEN_FLAG, "is_open", "Allow other machines to connect although there are no accounts."),
    choice_option("--log-format", "The format of the log on stderr, one line per event.", of=FORMS, default="text"),
    flag("--json", "as_json", "When ready, print one line of JSON instead of the banner."),
)
