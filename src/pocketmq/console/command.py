"""The command line of the console.

console [--namesrv A]                 run until ctrl-C
console user add NAME --users FILE    add a user; asks for a password
console user ls | rm                  list and remove users
"""

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path
from socket import socket
from types import FrameType
from typing import Final

import click
import msgspec
import uvicorn

import pocketmq
from pocketmq.cli.commands import choice_option, flag, path_option, port_option, text_option
from pocketmq.client.settings import ClientOptions
from pocketmq.console.app import make_app
from pocketmq.console.settings import DEFAULT_PORT, ConsoleSettings
from pocketmq.console.users import Role, User, new_user, parse_users, read_users, write_users
from pocketmq.errors import InvalidSetting, ListenFailed
from pocketmq.files import DiskFiles
from pocketmq.metrics.log_lines import FORMS, log_formatter
from pocketmq.net import Address, ClientTlsFiles, end_of_input, reachable, server_context
from pocketmq.protocol.signing import SECRET_VARIABLE, credentials_of

PASSWORD_VARIABLE: Final = "POCKETMQ_CONSOLE_PASSWORD"  # noqa: S105 the name of it
STOP_S: Final = 1
"""The time limit for closing open browser streams."""
_FILE = click.Path(path_type=Path)
_users_option = path_option("--users", "The users file.", required=True)


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@text_option(
    "--namesrv",
    "-n",
    "The name servers of the cluster.",
    envvar="NAMESRV_ADDR",
    default="127.0.0.1:9876",
    show_envvar=True,
    metavar="HOST:PORT[;…]",
)
@text_option("--host", "The address to listen on.", default="127.0.0.1", metavar="HOST")
@port_option("--port", "The port to listen on; 0 is any free port.", default=DEFAULT_PORT)
@path_option("--users", "The users file. Required if other machines can connect.")
@flag("--read-only", "Do not allow any changes.")
@text_option(
    "--allowed-host",
    "allowed_hosts",
    "Allow this host name in URLs, besides IP addresses and localhost; may be repeated.",
    multiple=True,
    metavar="NAME",
)
@text_option(
    "--trusted-proxy",
    "trusted_proxies",
    "Trust the X-Forwarded-For header of this proxy (10.1.2.3 or 10.1.0.0/16); may be repeated.",
    multiple=True,
    metavar="ADDRESS",
)
@path_option("--tls-cert", "Serve HTTPS with this certificate (PEM).")
@path_option("--tls-key", "The private key, if it is not in the same file.")
@path_option("--picture", "Show this SVG on the overview as soon as the file exists.")
@text_option(
    "--access-key",
    f"Sign requests to the cluster as this account; its secret is in {SECRET_VARIABLE}.",
    envvar="ROCKETMQ_ACCESS_KEY",
    show_envvar=True,
    metavar="NAME",
)
@flag("--tls", "Use TLS to the cluster, and verify it with the certificates of this system.")
@path_option("--tls-ca", "Use TLS to the cluster, and verify it with this certificate authority (PEM).")
@path_option("--pinned-cert", "Use TLS to the cluster, which must have exactly this certificate (PEM).")
@flag("--tls-no-verify", "Use TLS to the cluster, but do not verify its certificates.")
@path_option("--client-cert", "Use TLS to the cluster with this client certificate (PEM).")
@path_option("--client-key", "The private key, if it is not in the same file.")
@choice_option("--log-format", "The format of the log on stderr, one line per event.", of=FORMS, default="text")
@flag("--json", "as_json", "When ready, print one line of JSON instead of the banner.")
@flag("--until-end-of-input", "Also stop when stdin ends.")
@click.pass_context
def console(
    context: click.Context,
    namesrv: str,
    host: str,
    port: int,
    users: Path | None,
    read_only: bool,
    allowed_hosts: tuple[str, ...],
    trusted_proxies: tuple[str, ...],
    tls_cert: Path | None,
    tls_key: Path | None,
    picture: Path | None,
    access_key: str | None,
    tls: bool,
    tls_ca: Path | None,
    pinned_cert: Path | None,
    tls_no_verify: bool,
    client_cert: Path | None,
    client_key: Path | None,
    log_format: str,
    as_json: bool,
    until_end_of_input: bool,
) -> None:
    """Run a web console for a cluster of PocketMQ or Apache RocketMQ.

    By default the console listens on loopback, without login. Other addresses require --users.
    """
    if context.invoked_subcommand is not None:
        return
    settings = ConsoleSettings(
        host=host,
        port=port,
        users=users,
        read_only=read_only,
        allowed_hosts=allowed_hosts,
        trusted_proxies=trusted_proxies,
        tls_cert=tls_cert,
        tls_key=tls_key,
        picture=picture,
    )
    cluster_tls = ClientTlsFiles(
        enabled=any((tls, tls_ca, pinned_cert, tls_no_verify, client_cert, client_key)),
        ca=tls_ca,
        cert=client_cert,
        key=client_key,
        verify=not tls_no_verify,
        pinned=pinned_cert,
    )
    options: ClientOptions = {"tls": cluster_tls.load() or False, "credentials": credentials_of(access_key, os.environ)}
    handler = logging.StreamHandler()
    handler.setFormatter(log_formatter(log_format))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    asyncio.run(_run(settings, namesrv, options, as_json=as_json, until_end_of_input=until_end_of_input))


class _Server(uvicorn.Server):
    """Calls `on_ready`, and stops in order on the first signal; a second one ends it at once."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.force_exit = self.should_exit
        self.should_exit = True


async def _run(
    settings: ConsoleSettings, namesrv: str, options: ClientOptions, *, as_json: bool, until_end_of_input: bool
) -> None:
    if settings.tls_cert is not None:
        server_context(settings.tls_cert, settings.tls_key)  # names the wrong file, which uvicorn does not
    config = uvicorn.Config(
        make_app(settings, namesrv, options),
        host=settings.host,
        port=settings.port,
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=list(settings.trusted_proxies),
        lifespan="on",
        timeout_graceful_shutdown=STOP_S,
    )
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    try:
        listening = config.bind_socket()
    except SystemExit:
        raise ListenFailed(f"cannot listen on {settings.address}; choose another port with --port") from None
    address = Address(settings.host, listening.getsockname()[1])
    server = _Server(config, lambda: _print_ready(settings, address, namesrv, as_json=as_json))
    watching = asyncio.create_task(_stop_at_end_of_input(server)) if until_end_of_input else None
    try:
        await server.serve([listening])
    finally:
        if watching is not None:
            watching.cancel()


async def _stop_at_end_of_input(server: _Server) -> None:
    await end_of_input()
    server.should_exit = True


def _print_ready(settings: ConsoleSettings, address: Address, namesrv: str, *, as_json: bool) -> None:
    url = f"{'https' if settings.tls_cert else 'http'}://{reachable(address)}/"
    if as_json:
        facts = {
            "event": "ready",
            "program": "console",
            "version": pocketmq.__version__,
            "url": url,
            "name_server": namesrv,
        }
        click.echo(msgspec.json.encode(facts).decode())
        return
    clients = "users who log in" if settings.users else "this machine only"
    click.echo(f"PocketMQ console {pocketmq.__version__}")
    click.echo(f"  URL         {url}")
    click.echo(f"  cluster     {namesrv}")
    click.echo(f"  open to     {clients}{', read-only' if settings.read_only else ''}")
    click.echo("Ready. Press Ctrl-C to stop.")


@console.group()
def user() -> None:
    """Manage the users file."""


@user.command("add")
@click.argument("name")
@_users_option
@flag("--viewer", "Allow only reading.")
def add_user(name: str, users: Path, viewer: bool) -> None:
    """Add a user, or change the password of one.

    The command asks for the password, or reads it from POCKETMQ_CONSOLE_PASSWORD. The file contains only its scrypt hash.
    """
    password = os.environ.get(PASSWORD_VARIABLE) or click.prompt("Password", hide_input=True, confirmation_prompt=True)
    known = _known_users(users)
    known[name] = new_user(name, Role.VIEWER if viewer else Role.OPERATOR, password)
    write_users(DiskFiles(), users, known.values())
    click.echo(f"{name} can log in as {known[name].role.value}. A running console applies the change within a second.")


@user.command("ls")
@_users_option
def list_users(users: Path) -> None:
    """List the users."""
    for known in read_users(DiskFiles(), users).values():
        click.echo(f"{known.name}  {known.role.value}")


@user.command("rm")
@click.argument("name")
@_users_option
def remove_user(name: str, users: Path) -> None:
    """Remove a user."""
    known = read_users(DiskFiles(), users)
    if name not in known:
        raise InvalidSetting(f"{users} has no user {name!r}; its users are: {', '.join(known)}")
    del known[name]
    write_users(DiskFiles(), users, known.values())
    click.echo(f"{name} can no longer log in. A running console applies the change within a second.")


def _known_users(users: Path) -> dict[str, User]:
    """The users in the file; none if it does not exist."""
    files = DiskFiles()
    if files.status(users) is None:
        return {}
    return parse_users(files.read(users).decode("utf-8", "replace"), str(users))
