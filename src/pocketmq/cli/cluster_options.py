"""Options and connections of the commands for running clusters, and shell completion.

    --namesrv ──► Cluster ── admin(), producer() ──► the client
                              │ slow: a line on stderr names what the command waits for
                              └ failed: one line with the error and how to fix it

The client is imported with the first request, so that --help and other commands start fast.

Shell completion requests names of topics and groups from the cluster, with a short timeout:

    eval "$(pocketmq completion bash)"        pocketmq topic show or<Tab> ──► orders
"""

import difflib
import os
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.shell_completion import CompletionItem, get_completion_class

import pocketmq
from pocketmq.cli.commands import flag, number_option, options, path_option, text_option
from pocketmq.cli.output import Column, Row, late_bar, late_line, show_rows
from pocketmq.errors import (
    GroupNotFound,
    NetworkError,
    NoPermission,
    PocketMQError,
    RemoteError,
    RequestNotSupported,
    TopicNotFound,
    UsageError,
)
from pocketmq.net import ClientTlsFiles
from pocketmq.protocol.frames import HTTP_ANSWER
from pocketmq.protocol.signing import SECRET_VARIABLE, credentials_of

if TYPE_CHECKING:
    from pocketmq.client.admin.admin import Admin
    from pocketmq.client.admin.targets import BrokerAddress
    from pocketmq.client.settings import ClientOptions

DEFAULT_NAME_SERVER: Final = "127.0.0.1:9876"
CLUSTER_PARAMETERS: Final = (
    *("namesrv", "access_key"),
    *("tls", "tls_ca", "tls_cert", "tls_key", "tls_no_verify"),
)
"""Parameters of `cluster_options`, which commands get as one `Cluster`."""
_FILE: Final = click.Path(path_type=Path)
_ADVICE: Final[dict[type[PocketMQError], str]] = {
    TopicNotFound: "`pocketmq topic ls` lists the topics",
    GroupNotFound: "`pocketmq group ls` lists the groups",
    NoPermission: f"use an account with this permission: --access-key and the variable {SECRET_VARIABLE}",
    RequestNotSupported: "the server is too old for this request, or --namesrv is the address of a broker: give a name server (default port 9876)",
    NetworkError: "check that name server and brokers are running, and that --namesrv or NAMESRV_ADDR is correct",
}


_NO_ACCOUNT_HELPS: Final = ("no writable queue", "forbidden")
"""Words of NoPermission if a topic or broker is not writable or not readable, for every account."""


class Cluster:
    """The name servers of a cluster, with the options of clients."""

    def __init__(self, name_servers: str, options: "ClientOptions") -> None:
        self.name_servers = name_servers
        self._options = options

    @contextmanager
    def admin(self) -> Iterator["pocketmq.Admin"]:
        """An admin client for one request. It prints what it waits for if that takes long, so print nothing meanwhile."""
        with late_line(f"waiting for {self.name_servers}"), self.long_admin() as admin:
            yield admin

    @contextmanager
    def long_admin(self) -> Iterator["pocketmq.Admin"]:
        """An admin client for many requests, for commands that show their own progress."""
        with (
            with_advice(),
            pocketmq.Admin(self.name_servers, decompress=False, **self._options) as admin,
            suggest_names(admin),
        ):
            yield admin

    @property
    def options(self) -> "ClientOptions":
        """For clients that a command creates itself."""
        return self._options

    @contextmanager
    def producer(self) -> Iterator["pocketmq.Producer"]:
        with with_advice(), pocketmq.Producer(self.name_servers, **self._options) as producer:
            yield producer


def cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--namesrv`, accounts and TLS. The command gets a `Cluster` as its first argument."""

    @wraps(command)
    def with_cluster(*args: Any, **params: Any) -> Any:
        cluster = cluster_of(params)
        rest = {name: value for name, value in params.items() if name not in CLUSTER_PARAMETERS}
        return command(cluster, *args, **rest)

    return _CLUSTER_OPTIONS(with_cluster)


def name_servers_option(text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return text_option(
        "--namesrv",
        "-n",
        text,
        envvar="NAMESRV_ADDR",
        default=DEFAULT_NAME_SERVER,
        show_envvar=True,
        metavar="HOST:PORT[;…]",
    )


_CLUSTER_OPTIONS: Final = options(
    name_servers_option("The name servers of the cluster."),
    text_option(
        "--access-key",
        f"Sign requests as this account; its secret is in {SECRET_VARIABLE}.",
        envvar="ROCKETMQ_ACCESS_KEY",
        show_envvar=True,
        metavar="NAME",
    ),
    flag("--tls", "Use TLS, and verify servers with the certificates of this system."),
    path_option("--tls-ca", "Use TLS, and verify servers with this certificate authority (PEM)."),
    path_option("--tls-cert", "Use TLS with this client certificate (PEM)."),
    path_option("--tls-key", "The private key, if it is not in the same file."),
    flag("--tls-no-verify", "Use TLS, but do not verify the server's certificate."),
)


def cluster_of(params: Mapping[str, Any], **more: Any) -> Cluster:
    """The cluster that these options describe; `more` are options of the client."""
    if "://" in params["namesrv"]:
        raise UsageError(
            f"--namesrv {params['namesrv']}: write HOST:PORT without a scheme, such as {DEFAULT_NAME_SERVER}"
        )
    return Cluster(
        params["namesrv"],
        {"tls": _tls(params), "credentials": credentials_of(params.get("access_key"), os.environ), **more},  # type: ignore[typeddict-item]
    )


@contextmanager
def with_advice() -> Iterator[None]:
    """Add to an error how to fix it."""
    try:
        yield
    except PocketMQError as error:
        advice = next((each for kind, each in _ADVICE.items() if isinstance(error, kind)), None)
        text = error.remark if isinstance(error, RemoteError) and error.remark else str(error)
        if advice is None or (isinstance(error, NoPermission) and any(word in text for word in _NO_ACCOUNT_HELPS)):
            raise
        first_line = text.partition("\n")[0]  # the next lines are RocketMQ's own advice
        if HTTP_ANSWER in first_line:
            advice = "give the address of a name server"
        raise PocketMQError(f"{first_line.rstrip('.')}; {advice}") from error


@contextmanager
def suggest_names(admin: "pocketmq.Admin") -> Iterator[None]:
    """Suggest the nearest existing topic or group for one that does not exist."""
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


def _names(request: Callable[[], list[str]]) -> list[str]:
    try:
        return request()
    except PocketMQError:
        return []


def require_brokers(cluster: Cluster, admin: "pocketmq.Admin") -> "list[BrokerAddress]":
    """All brokers. NetworkError if there are none, so that a cluster without brokers does not look empty."""
    brokers = admin.cluster.brokers()
    if not brokers:
        raise NetworkError(f"no broker is registered at {cluster.name_servers}")
    return brokers


def _tls(params: Mapping[str, Any]) -> bool | ssl.SSLContext:
    """False, True for the certificates of this system, or a context with the files of the options."""
    names = ("tls_ca", "tls_cert", "tls_key", "tls_no_verify")
    if not any(params.get(name) for name in names):
        return bool(params.get("tls"))
    files = ClientTlsFiles(
        enabled=True,
        ca=params.get("tls_ca"),
        cert=params.get("tls_cert"),
        key=params.get("tls_key"),
        verify=not params.get("tls_no_verify"),
    )
    return files.load() or False


def limit_option(default: int, text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """`--limit`; `text` says what it limits."""
    return number_option("--limit", text, default=default)


def show_some(rows: Iterable[Row], columns: Sequence[Column], *, as_json: bool, empty: str, more: str) -> None:
    """Show rows; `more` says why there may be others, or is empty if these are all."""
    show_rows(rows, columns, as_json=as_json, empty=empty)
    if more:
        click.echo(f"There may be more: {more}", err=True)


def show_named(
    cluster: Cluster,
    names: Callable[["Admin"], Sequence[str]],
    row_of: Callable[["Admin", str], Row],
    columns: Sequence[Column],
    *,
    is_long: bool,
    as_json: bool,
    empty: str,
) -> None:
    """List names, or with `is_long` all `columns`, by one request for each name. The first column is the name."""
    kind = columns[0].field
    if is_long:
        rows: Iterable[Row] = _long_rows(cluster, names, row_of, f"{kind}s")
    else:
        with cluster.admin() as admin:
            rows, columns = [{kind: name} for name in names(admin)], columns[:1]
    show_rows(rows, columns, as_json=as_json, empty=empty)


def _long_rows(
    cluster: Cluster,
    names: Callable[["Admin"], Sequence[str]],
    row_of: Callable[["Admin", str], Row],
    label: str,
) -> list[Row]:
    """One row for each name, with a progress bar."""
    rows: list[Row] = []
    with cluster.long_admin() as admin, late_bar(label, in_bytes=False) as bar:
        found = names(admin)
        for at, name in enumerate(found, 1):
            rows.append(row_of(admin, name))
            bar.update(at, len(found))
    return rows


COMPLETION_TIMEOUT_MS: Final = 700
"""The timeout of requests and connections: a shell must not wait for a slow cluster."""
SHELLS: Final = ("bash", "zsh", "fish")
PROGRAM: Final = "pocketmq"
VARIABLE: Final = "_POCKETMQ_COMPLETE"

_CHANGES: Final = {
    # A shell without completion does not know compdef yet.
    "zsh": (
        "#compdef pocketmq\n",
        "#compdef pocketmq\n\n(( $+functions[compdef] )) || { autoload -Uz compinit && compinit -i }\n",
    ),
    # A description may contain commas.
    "fish": ('string split ","', 'string split --max 1 ","'),
}
"""Corrections of click's scripts."""

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _completed_names(names: "Callable[[Admin], list[str]]") -> Complete:
    def complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        params = {**ctx.params, "namesrv": ctx.params.get("namesrv") or DEFAULT_NAME_SERVER}
        quick = {
            "call_timeout_ms": COMPLETION_TIMEOUT_MS,
            "connect_timeout_ms": COMPLETION_TIMEOUT_MS,
            "stop_timeout_ms": COMPLETION_TIMEOUT_MS,
        }
        try:
            with cluster_of(params, **quick).long_admin() as admin:
                return [CompletionItem(name) for name in names(admin) if name.startswith(incomplete)]
        except (PocketMQError, OSError):
            return []

    return complete


complete_topic: Final = _completed_names(lambda admin: admin.topics.names())
complete_group: Final = _completed_names(lambda admin: admin.groups.names())
complete_broker: Final = _completed_names(lambda admin: sorted({each.name for each in admin.cluster.brokers()}))

topic_argument: Final = click.argument("topic", shell_complete=complete_topic)
group_argument: Final = click.argument("group", shell_complete=complete_group)


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script for the completion of commands, options, and names of topics and groups.

    \b
    bash  echo 'eval "$(pocketmq completion bash)"' >> ~/.bashrc
    zsh   echo 'eval "$(pocketmq completion zsh)"' >> ~/.zshrc
    fish  pocketmq completion fish > ~/.config/fish/completions/pocketmq.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None, "click has a class for each of these"
    script = kind(ctx.find_root().command, {}, PROGRAM, VARIABLE).source()
    click.echo(script.replace(*_CHANGES.get(shell, ("", "")), 1))
