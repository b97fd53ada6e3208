"""`pocketmq console`: run the web console in its own process, since it needs more libraries and must not slow a broker down.

pocketmq console …        ──► python -m pocketmq.console …     with its options, help and exit codes
pocketmq serve --console  ──► the same as a child process; if it ends, the broker continues
"""

import asyncio
import logging
import os
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeVar

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from pocketmq.access.accounts_file import read_accounts
from pocketmq.cli.commands import flag, options, path_option, port_option, text_option
from pocketmq.cli.programs import ChildProgram
from pocketmq.embedded import name_server_tls
from pocketmq.errors import InvalidSetting
from pocketmq.files import DiskFiles
from pocketmq.net import ServerTlsFiles
from pocketmq.protocol.signing import SECRET_VARIABLE

log = logging.getLogger("pocketmq.cli")

MODULE = "pocketmq.console"
PROGRAM = (sys.executable, "-m", MODULE)
COMPLETION = "_POCKETMQ_CONSOLE_COMPLETE"
"""The variable by which a shell requests completions."""
DEFAULT_PORT = 9878
STOP_S = 10
"""The time limit for stopping a console."""


class _Console(click.Command):
    """Completes the options of the console program."""

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        return _completed(ctx, incomplete)


def _completed(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """The completions of the console program; none if it cannot run."""
    words = ("console", *ctx.params.get("arguments", ()), incomplete)
    variables = {COMPLETION: "zsh_complete", "COMP_WORDS": shlex.join(words), "COMP_CWORD": str(len(words) - 1)}
    result = subprocess.run(  # noqa: S603 our own program
        PROGRAM, env={**os.environ, **variables}, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    lines = result.stdout.splitlines()
    return [
        CompletionItem(value, type=kind, help=text if text != "_" else None)
        for kind, value, text in zip(lines[::3], lines[1::3], lines[2::3], strict=False)
    ]


@click.command(
    cls=_Console,
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
    short_help="Run a web console for a cluster.",
)
@click.argument(
    "arguments", nargs=-1, type=click.UNPROCESSED, shell_complete=lambda ctx, _, incomplete: _completed(ctx, incomplete)
)
def console(arguments: tuple[str, ...]) -> None:
    """Run a web console for a cluster."""
    # Replace this process: a parent process that is stopped would leave the console running.
    os.execv(sys.executable, [*PROGRAM, *arguments])  # noqa: S606 our own program


class ConsoleSettings(NamedTuple):
    """The console of `serve --console`: its options, and its secrets as environment variables."""

    options: Sequence[str]
    environment: Mapping[str, str]


console_options: Final = options(
    flag("--console", "with_console", "Also run the web console."),
    text_option("--console-host", "The address of the console.", default="127.0.0.1", metavar="HOST"),
    port_option("--console-port", "The port of the console; 0 is any free port.", default=DEFAULT_PORT),
    path_option("--console-users", "The users of the console."),
)
"""Arguments `with_console`, `console_host`, `console_port` and `console_users`."""


def refuse_console_options() -> None:
    """InvalidSetting for an option of the console on the command line: there is no `--console`."""
    context = click.get_current_context()
    for name in ("console_host", "console_port", "console_users"):
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise InvalidSetting(f"--{name.replace('_', '-')} needs --console")


def console_settings(
    host: str, port: int, users: Path | None, accounts: Path | None, tls: ServerTlsFiles, log_format: str = "text"
) -> ConsoleSettings:
    """Options of a console for a server with these accounts, TLS files and log format."""
    arguments = ["--host", host, "--port", str(port), *(() if users is None else ("--users", str(users)))]
    arguments += ["--log-format", log_format]
    client_tls = name_server_tls(tls)
    files = {"pinned-cert": client_tls.pinned, "client-cert": client_tls.cert, "client-key": client_tls.key}
    for option, file in files.items():
        arguments += [] if file is None else [f"--{option}", str(file)]
    return ConsoleSettings(arguments, {} if accounts is None else _administrator(accounts, users))


def _administrator(accounts: Path, users: Path | None) -> dict[str, str]:
    """The account of the console. It is an administrator, so users of the console must log in."""
    if users is None:
        raise InvalidSetting(
            "with --accounts the console needs --console-users FILE, since it acts as an administrator; "
            "`pocketmq console user add NAME --users FILE` creates the file"
        )
    for account in read_accounts(DiskFiles(), accounts, os.environ):
        if account.is_admin:
            return {"ROCKETMQ_ACCESS_KEY": account.access_key, SECRET_VARIABLE: account.credentials.secret}
    raise InvalidSetting(f"{accounts} has no administrator (admin = true), which the console needs")


class HasNameServer(Protocol):
    @property
    def name_server(self) -> str: ...


P = TypeVar("P", bound=HasNameServer)


@asynccontextmanager
async def with_console(
    program: AbstractAsyncContextManager[P], settings: ConsoleSettings | None
) -> AsyncIterator[tuple[P, str | None]]:
    """Start a program and, with `settings`, a console for it; yields the program and the console's address."""
    async with program as running:
        if settings is None:
            yield running, None
            return
        address = ("--namesrv", running.name_server)
        console = await ChildProgram.start(
            "the console", MODULE, *address, *settings.options, environment=settings.environment
        )
        watching = asyncio.create_task(_watch(console))
        try:
            yield running, console.ready["url"]
        finally:
            watching.cancel()
            await console.stop(STOP_S)


async def _watch(console: ChildProgram) -> None:
    code = await console.wait()
    log.error("the console exited unexpectedly with code %s; name server and broker continue", code)
