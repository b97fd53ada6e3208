"""`python -m pocketmq.console`, which `pocketmq console` starts: the console itself, and its file of users.

console [--namesrv A]                 runs until ctrl-C
console user add NAME --users FILE    asks for a password
console user ls | rm
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

from pocketmq import __version__
from pocketmq.client.settings import ClientOptions
from pocketmq.console.app import make_app
from pocketmq.console.settings import DEFAULT_PORT, ConsoleSettings
from pocketmq.console.users import Role, User, new_user, parse_users, read_users, write_users
from pocketmq.errors import InvalidSetting, ListenFailed
from pocketmq.files import DiskFiles
from pocketmq.metrics.log_lines import FORMS, log_formatter
from pocketmq.net.address import LARGEST_PORT, Address, reachable
from pocketmq.net.loops import end_of_input
from pocketmq.net.tls import ClientTlsFiles, server_context
from pocketmq.protocol.signing import SECRET_VARIABLE, credentials_of

PASSWORD_VARIABLE: Final = "POCKETMQ_CONSOLE_PASSWORD"  # noqa: S105 the name of it
STOP_S: Final = 1
"""How long open streams of browsers may keep it from ending."""
_FILE = click.Path(path_type=Path)
_users_option = click.option("--users", type=_FILE, required=True, metavar="FILE", help="The file of users.")


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--namesrv",
    "-n",
    envvar="NAMESRV_ADDR",
    default="127.0.0.1:9876",
    show_default=True,
    show_envvar=True,
    metavar="HOST:PORT[;…]",
    help="The name servers of the cluster.",
)
@click.option("--host", default="127.0.0.1", show_default=True, metavar="HOST", help="Where to listen.")
@click.option(
    "--port",
    type=click.IntRange(0, LARGEST_PORT),
    default=DEFAULT_PORT,
    show_default=True,
    metavar="PORT",
    help="Where to listen; 0 is any free port.",
)
@click.option("--users", type=_FILE, metavar="FILE", help="Who may log in. Needed where other machines reach it.")
@click.option("--read-only", is_flag=True, help="Nobody can change anything.")
@click.option(
    "--allowed-host",
    "allowed_hosts",
    multiple=True,
    metavar="NAME",
    help="A name by which browsers may call it, beside addresses and localhost. May be given several times.",
)
@click.option(
    "--trusted-proxy",
    "trusted_proxies",
    multiple=True,
    metavar="ADDRESS",
    help="Believe the X-Forwarded-For of this proxy (10.1.2.3 or 10.1.0.0/16). May be given several times.",
)
@click.option("--tls-cert", type=_FILE, metavar="FILE", help="Serve HTTPS with this certificate (PEM).")
@click.option("--tls-key", type=_FILE, metavar="FILE", help="Its key, if it is not in the same file.")
@click.option("--picture", type=_FILE, metavar="FILE", help="A picture (SVG) for the overview, once it is there.")
@click.option(
    "--access-key",
    envvar="ROCKETMQ_ACCESS_KEY",
    show_envvar=True,
    metavar="NAME",
    help=f"Sign requests to the cluster as this account; its secret is in the variable {SECRET_VARIABLE}.",
)
@click.option("--tls", is_flag=True, help="Talk TLS with the cluster, whose certificates this system trusts.")
@click.option("--tls-ca", type=_FILE, metavar="FILE", help="… which this authority must have signed (PEM).")
@click.option("--pinned-cert", type=_FILE, metavar="FILE", help="… which must be exactly this one (PEM).")
@click.option("--tls-no-verify", is_flag=True, help="… whoever answers is believed to be the cluster.")
@click.option("--client-cert", type=_FILE, metavar="FILE", help="… and wants to see this certificate of ours (PEM).")
@click.option("--client-key", type=_FILE, metavar="FILE", help="Its key, if it is not in the same file.")
@click.option(
    "--log-format",
    type=click.Choice(FORMS),
    default="text",
    show_default=True,
    help="How the log on the error stream is written, a line for each event.",
)
@click.option("--json", "as_json", is_flag=True, help="When ready, one line of JSON instead of a banner.")
@click.option("--until-end-of-input", is_flag=True, help="Stop also when the input stream ends.")
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
    """A web console for a running cluster, of PocketMQ or of Apache RocketMQ.

    It listens on this machine only, and asks nobody who they are. Elsewhere it needs --users.
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
    towards = ClientTlsFiles(
        enabled=any((tls, tls_ca, pinned_cert, tls_no_verify, client_cert, client_key)),
        ca=tls_ca,
        cert=client_cert,
        key=client_key,
        verify=not tls_no_verify,
        pinned=pinned_cert,
    )
    options: ClientOptions = {"tls": towards.load() or False, "credentials": credentials_of(access_key, os.environ)}
    handler = logging.StreamHandler()
    handler.setFormatter(log_formatter(log_format))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    asyncio.run(_run(settings, namesrv, options, as_json=as_json, until_end_of_input=until_end_of_input))


class _Server(uvicorn.Server):
    """Says when it is ready, and ends well when a signal asks for it; a second one ends it at once."""

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
        server_context(settings.tls_cert, settings.tls_key)  # says which file is wrong, which uvicorn does not
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
    server = _Server(config, lambda: _tell_ready(settings, address, namesrv, as_json=as_json))
    watching = asyncio.create_task(_stop_at_end_of_input(server)) if until_end_of_input else None
    try:
        await server.serve([listening])
    finally:
        if watching is not None:
            watching.cancel()


async def _stop_at_end_of_input(server: _Server) -> None:
    await end_of_input()
    server.should_exit = True


def _tell_ready(settings: ConsoleSettings, address: Address, namesrv: str, *, as_json: bool) -> None:
    url = f"{'https' if settings.tls_cert else 'http'}://{reachable(address)}/"
    if as_json:
        facts = {"event": "ready", "program": "console", "version": __version__, "url": url, "name_server": namesrv}
        click.echo(msgspec.json.encode(facts).decode())
        return
    who = "whoever logs in" if settings.users else "this machine only"
    click.echo(f"PocketMQ console {__version__}")
    click.echo(f"  open        {url}")
    click.echo(f"  cluster     {namesrv}")
    click.echo(f"  open to     {who}{', to look only' if settings.read_only else ''}")
    click.echo("Ready. Ctrl-C stops it.")


@console.group()
def user() -> None:
    """Who may log in."""


@user.command("add")
@click.argument("name")
@_users_option
@click.option("--viewer", is_flag=True, help="May look, and not change anything.")
def add_user(name: str, users: Path, viewer: bool) -> None:
    """Add a user, or give one a new password.

    The password is asked for, or taken from the variable POCKETMQ_CONSOLE_PASSWORD. Only its scrypt hash is kept.
    """
    password = os.environ.get(PASSWORD_VARIABLE) or click.prompt("Password", hide_input=True, confirmation_prompt=True)
    known = _known_users(users)
    known[name] = new_user(name, Role.VIEWER if viewer else Role.OPERATOR, password)
    write_users(DiskFiles(), users, known.values())
    click.echo(f"{name} may log in with it as {known[name].role.value}; a console that runs knows within a second.")


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
        raise InvalidSetting(f"{users} names no user {name!r}; there are: {', '.join(known)}")
    del known[name]
    write_users(DiskFiles(), users, known.values())
    click.echo(f"{name} cannot log in any more; in a console that runs it is out within a second.")


def _known_users(users: Path) -> dict[str, User]:
    """Those that are there already; a file that does not exist has none."""
    files = DiskFiles()
    if files.status(users) is None:
        return {}
    return parse_users(files.read(users).decode("utf-8", "replace"), str(users))
