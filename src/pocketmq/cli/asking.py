"""What all commands share that ask a running cluster: where it is, how it is asked, and what to do when it does not answer.

--namesrv ──► Cluster ── admin(), producer() ──► the client
                          │ slow: a line on the error stream says what is being waited for
                          └ failed: one sentence, with what to do

The client itself is imported by the first question, so that help and the other commands need not wait for it.
"""

import difflib
import os
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

import pocketmq
from pocketmq.cli.screen import late_line
from pocketmq.errors import (
    GroupNotFound,
    InvalidSetting,
    NetworkError,
    NoPermission,
    PocketMQError,
    RemoteError,
    RequestNotSupported,
    TopicNotFound,
    UsageError,
)
from pocketmq.net.tls import ClientTlsFiles
from pocketmq.protocol.signing import Credentials

if TYPE_CHECKING:
    from pocketmq.client.administration.reach import BrokerPlace
    from pocketmq.client.settings import ClientOptions

HTTP_AS_LENGTH: Final = f"frame of {int.from_bytes(b'HTTP') + 4} bytes"
"""What the answer of a web server looks like as a frame of RocketMQ, whose first four bytes are its length."""
DEFAULT_NAME_SERVER: Final = "127.0.0.1:9876"
SECRET_VARIABLE: Final = "ROCKETMQ_SECRET_KEY"  # noqa: S105 the name of it
CLUSTER_PARAMETERS: Final = (
    *("namesrv", "access_key"),
    *("tls", "tls_ca", "tls_cert", "tls_key", "tls_no_verify"),
)
"""What `on_a_cluster` takes, so that commands get a `Cluster` instead."""
_FILE: Final = click.Path(path_type=Path)
_ADVICE: Final[dict[type[PocketMQError], str]] = {
    TopicNotFound: "`pocketmq topic ls` shows which topics there are",
    GroupNotFound: "`pocketmq group ls` shows which groups there are",
    NoPermission: f"give an account that may do it by --access-key and the variable {SECRET_VARIABLE}",
    RequestNotSupported: "the server is too old for this, or --namesrv names a broker: give a name server, whose usual port is 9876",
    NetworkError: "see that name server and brokers run, and that --namesrv or NAMESRV_ADDR is right",
}


class Cluster:
    """Where a cluster is, and who asks."""

    def __init__(self, name_servers: str, options: "ClientOptions") -> None:
        self.name_servers = name_servers
        self._options = options

    @contextmanager
    def admin(self) -> Iterator["pocketmq.Admin"]:
        """An administrator's client for one question. When it takes its time, that is told: show nothing meanwhile."""
        with late_line(f"asking {self.name_servers}"), self.long_admin() as admin:
            yield admin

    @contextmanager
    def long_admin(self) -> Iterator["pocketmq.Admin"]:
        """One for many questions, by somebody who shows how far they are."""
        with (
            advised(),
            pocketmq.Admin(self.name_servers, decompress=False, **self._options) as admin,
            nearest_named(admin),
        ):
            yield admin

    @property
    def options(self) -> "ClientOptions":
        """For clients that a command makes itself."""
        return self._options

    @contextmanager
    def producer(self) -> Iterator["pocketmq.Producer"]:
        with advised(), pocketmq.Producer(self.name_servers, **self._options) as producer:
            yield producer


def on_a_cluster(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--namesrv` and its relatives; the command gets a `Cluster` for them, as its first argument."""

    @wraps(command)
    def with_cluster(*args: Any, **given: Any) -> Any:
        cluster = cluster_of(given)
        rest = {name: value for name, value in given.items() if name not in CLUSTER_PARAMETERS}
        return command(cluster, *args, **rest)

    options = (
        click.option(
            "--namesrv",
            "-n",
            envvar="NAMESRV_ADDR",
            default=DEFAULT_NAME_SERVER,
            show_default=True,
            show_envvar=True,
            metavar="HOST:PORT[;…]",
            help="The name servers of the cluster.",
        ),
        click.option(
            "--access-key",
            envvar="ROCKETMQ_ACCESS_KEY",
            show_envvar=True,
            metavar="NAME",
            help=f"Sign requests as this account; its secret is in the variable {SECRET_VARIABLE}.",
        ),
        click.option("--tls", is_flag=True, help="Talk TLS, with servers whose certificates this system trusts."),
        click.option("--tls-ca", type=_FILE, metavar="FILE", help="TLS; this authority must have signed (PEM)."),
        click.option("--tls-cert", type=_FILE, metavar="FILE", help="TLS; show this certificate (PEM) to the servers."),
        click.option("--tls-key", type=_FILE, metavar="FILE", help="Its key, if it is not in the same file."),
        click.option("--tls-no-verify", is_flag=True, help="TLS; whoever answers is believed to be the server."),
    )
    made: Callable[..., Any] = with_cluster
    for option in reversed(options):
        made = option(made)
    return made


def cluster_of(given: Mapping[str, Any], **more: Any) -> Cluster:
    """The cluster that the options of `on_a_cluster` mean; `more` are options of the client."""
    if "://" in given["namesrv"]:
        raise UsageError(
            f"--namesrv {given['namesrv']}: write HOST:PORT without a scheme, such as {DEFAULT_NAME_SERVER}"
        )
    return Cluster(
        given["namesrv"],
        {"tls": _tls(given), "credentials": _credentials(given.get("access_key")), **more},  # type: ignore[typeddict-item]
    )


@contextmanager
def advised() -> Iterator[None]:
    """What a failure says, followed by what to do about it."""
    try:
        yield
    except PocketMQError as error:
        advice = next((text for kind, text in _ADVICE.items() if isinstance(error, kind)), None)
        if advice is None:
            raise
        told = error.remark if isinstance(error, RemoteError) and error.remark else str(error)
        first_line = told.partition("\n")[0]  # RocketMQ's own advice stands below
        if HTTP_AS_LENGTH in first_line:
            advice = "a web server answers there, such as the console: give the address of a name server"
        raise PocketMQError(f"{first_line.rstrip('.')}; {advice}") from error


@contextmanager
def nearest_named(admin: "pocketmq.Admin") -> Iterator[None]:
    """Name the nearest existing topic or group in the error for one that does not exist."""
    try:
        yield
    except (TopicNotFound, GroupNotFound) as error:
        context = click.get_current_context(silent=True)
        is_topic = isinstance(error, TopicNotFound)
        name = context.params.get("topic" if is_topic else "group") if context else None
        known = _names(admin.topics.names if is_topic else admin.groups.names) if isinstance(name, str) else []
        near = difflib.get_close_matches(name or "", known, 1, 0.6)
        if not near:
            raise
        kind = "topic" if is_topic else "group"
        raise PocketMQError(f"there is no {kind} {name!r}; did you mean {near[0]!r}?") from error


def _names(ask: Callable[[], list[str]]) -> list[str]:
    try:
        return ask()
    except PocketMQError:
        return []


def require_brokers(cluster: Cluster, admin: "pocketmq.Admin") -> "list[BrokerPlace]":
    """All brokers; NetworkError when there is none, so that nobody takes a cluster without brokers for an empty one."""
    places = admin.cluster.brokers()
    if not places:
        raise NetworkError(f"no broker is registered at {cluster.name_servers}")
    return places


def agreed(question: str, *, yes: bool) -> bool:
    """Ask, unless the answer was given by `--yes`. Where nobody can answer, the answer is no."""
    if yes:
        return True
    try:
        if click.confirm(question):
            return True
    except click.Abort:
        click.echo(err=True)
    click.echo("Nothing was changed. With --yes it does not ask.", err=True)
    return False


yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Show what would happen, and stop.")


def _tls(given: Mapping[str, Any]) -> bool | ssl.SSLContext:
    """False, True for what this system trusts, or a context of the files that were named."""
    names = ("tls_ca", "tls_cert", "tls_key", "tls_no_verify")
    if not any(given.get(name) for name in names):
        return bool(given.get("tls"))
    files = ClientTlsFiles(
        enabled=True,
        ca=given.get("tls_ca"),
        cert=given.get("tls_cert"),
        key=given.get("tls_key"),
        verify=not given.get("tls_no_verify"),
    )
    return files.load() or False


def _credentials(access_key: str | None) -> Credentials | None:
    if access_key is None:
        return None
    secret = os.environ.get(SECRET_VARIABLE)
    if not secret:
        raise InvalidSetting(f"--access-key needs the secret of {access_key!r} in the variable {SECRET_VARIABLE}")
    return Credentials(access_key, secret)
