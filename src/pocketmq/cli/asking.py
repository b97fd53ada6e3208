"""What all commands share that ask a running cluster: where it is, how it is asked, and what to do when it does not answer.

--namesrv ──► Cluster ── admin(), producer() ──► the client
                          │ slow: a line on the error stream says what is being waited for
                          └ failed: one sentence, with what to do

The client itself is imported by the first question, so that help and the other commands need not wait for it.

What commands list: things that a cluster knows by name, alone or with what is known about each; or as many as --limit says.

Completion in shells: the script that a shell needs, and the names of topics and groups of the cluster that is named on the line.

    eval "$(pocketmq completion bash)"        pocketmq topic show or<Tab> ──► orders

Names are asked of the cluster only while that is quick: a shell that waits is worse than one that does not know.
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
from click.exceptions import Exit
from click.shell_completion import CompletionItem, get_completion_class

import pocketmq
from pocketmq.cli.commands import ExitCode, options
from pocketmq.cli.screen import Column, Row, late_bar, late_line, show_rows
from pocketmq.clock import SystemClock
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
from pocketmq.net.tls import ClientTlsFiles
from pocketmq.protocol.frames import HTTP_ANSWER
from pocketmq.protocol.signing import SECRET_VARIABLE, credentials_of

if TYPE_CHECKING:
    from pocketmq.client.admin.admin import Admin
    from pocketmq.client.admin.reach import BrokerPlace
    from pocketmq.client.settings import ClientOptions

DEFAULT_NAME_SERVER: Final = "127.0.0.1:9876"
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

    return _CLUSTER_OPTIONS(with_cluster)


def name_servers_option(text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option(
        "--namesrv",
        "-n",
        envvar="NAMESRV_ADDR",
        default=DEFAULT_NAME_SERVER,
        show_default=True,
        show_envvar=True,
        metavar="HOST:PORT[;…]",
        help=text,
    )


_CLUSTER_OPTIONS: Final = options(
    name_servers_option("The name servers of the cluster."),
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


def cluster_of(given: Mapping[str, Any], **more: Any) -> Cluster:
    """The cluster that the options of `on_a_cluster` mean; `more` are options of the client."""
    if "://" in given["namesrv"]:
        raise UsageError(
            f"--namesrv {given['namesrv']}: write HOST:PORT without a scheme, such as {DEFAULT_NAME_SERVER}"
        )
    return Cluster(
        given["namesrv"],
        {"tls": _tls(given), "credentials": credentials_of(given.get("access_key"), os.environ), **more},  # type: ignore[typeddict-item]
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
        if HTTP_ANSWER in first_line:
            advice = "give the address of a name server"
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


def confirm(question: str, *, yes: bool) -> None:
    """Ask, unless the answer was given by `--yes`, and end the command if it is no. Where nobody can answer, it is."""
    try:
        if yes or click.confirm(question):
            return
    except click.Abort:
        click.echo(err=True)
    click.echo("Nothing was changed. With --yes it does not ask.", err=True)
    raise Exit(ExitCode.REPAIRABLE)


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


def limit_option(default: int, text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """`--limit` of a command that reads no more than so many; `text` says so many of what."""
    return click.option("--limit", type=click.IntRange(1), default=default, show_default=True, metavar="N", help=text)


def show_some(rows: Iterable[Row], columns: Sequence[Column], *, as_json: bool, empty: str, more: str) -> None:
    """Rows that may not be all; `more` says why, and is empty when they are."""
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
    """List things, the first of the `columns` being their name; all of them when it is a long list, by a question for each."""
    kind = columns[0].field
    if is_long:
        rows: Iterable[Row] = _described(cluster, names, row_of, f"{kind}s")
    else:
        with cluster.admin() as admin:
            rows, columns = [{kind: name} for name in names(admin)], columns[:1]
    show_rows(rows, columns, as_json=as_json, empty=empty)


def _described(
    cluster: Cluster,
    names: Callable[["Admin"], Sequence[str]],
    row_of: Callable[["Admin", str], Row],
    what: str,
) -> list[Row]:
    """That many questions may take their time."""
    rows: list[Row] = []
    with cluster.long_admin() as admin, late_bar(SystemClock(), what, in_bytes=False) as bar:
        found = names(admin)
        for at, name in enumerate(found, 1):
            rows.append(row_of(admin, name))
            bar.update(at, len(found))
    return rows


PATIENCE_MS: Final = 700
"""For one question, and for a connection."""
SHELLS: Final = ("bash", "zsh", "fish")
PROGRAM: Final = "pocketmq"
VARIABLE: Final = "_POCKETMQ_COMPLETE"

_CHANGES: Final = {
    # A shell that has not begun to complete yet does not know compdef.
    "zsh": (
        "#compdef pocketmq\n",
        "#compdef pocketmq\n\n(( $+functions[compdef] )) || { autoload -Uz compinit && compinit -i }\n",
    ),
    # A description may have commas in it.
    "fish": ('string split ","', 'string split --max 1 ","'),
}
"""What click's scripts lack."""

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _completed_names(ask: "Callable[[Admin], list[str]]") -> Complete:
    def complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        given = {**ctx.params, "namesrv": ctx.params.get("namesrv") or DEFAULT_NAME_SERVER}
        quick = {"call_timeout_ms": PATIENCE_MS, "connect_timeout_ms": PATIENCE_MS, "stop_timeout_ms": PATIENCE_MS}
        try:
            with cluster_of(given, **quick).long_admin() as admin:
                return [CompletionItem(name) for name in ask(admin) if name.startswith(incomplete)]
        except (PocketMQError, OSError):
            return []

    return complete


complete_topic: Final = _completed_names(lambda admin: admin.topics.names())
complete_group: Final = _completed_names(lambda admin: admin.groups.names())
complete_broker: Final = _completed_names(lambda admin: sorted({place.name for place in admin.cluster.brokers()}))

topic_argument: Final = click.argument("topic", shell_complete=complete_topic)
group_argument: Final = click.argument("group", shell_complete=complete_group)


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print what a shell needs to complete commands, options, and names of topics and groups.

    \b
    bash  echo 'eval "$(pocketmq completion bash)"' >> ~/.bashrc
    zsh   echo 'eval "$(pocketmq completion zsh)"' >> ~/.zshrc
    fish  pocketmq completion fish > ~/.config/fish/completions/pocketmq.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None, "click has a class for each of these"
    script = kind(ctx.find_root().command, {}, PROGRAM, VARIABLE).source()
    click.echo(script.replace(*_CHANGES.get(shell, ("", "")), 1))
