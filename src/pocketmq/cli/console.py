"""`pocketmq console`: the web console, as a process of its own. It needs libraries that the rest does not, and takes no time from a broker's loop.

pocketmq console …        ──► python -m pocketmq.console …     options, help and exit codes are that program's
pocketmq serve --console  ──► the same, beside the broker; it ends with it, and the broker goes on without it
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
from click.shell_completion import CompletionItem

from pocketmq.access.accounts_file import read_accounts
from pocketmq.cli.commands import options
from pocketmq.cli.programs import ChildProgram
from pocketmq.embedded.server import name_server_tls
from pocketmq.errors import InvalidSetting
from pocketmq.files import DiskFiles
from pocketmq.net.address import LARGEST_PORT
from pocketmq.net.tls import ServerTlsFiles
from pocketmq.protocol.signing import SECRET_VARIABLE

log = logging.getLogger("pocketmq.cli")

MODULE = "pocketmq.console"
PROGRAM = (sys.executable, "-m", MODULE)
COMPLETION = "_POCKETMQ_CONSOLE_COMPLETE"
"""The variable by which a shell asks the program for completions."""
DEFAULT_PORT = 9878
STOP_S = 10
"""How long a console has to end after it was told to."""


class _Console(click.Command):
    """Knows its options from its program."""

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        return _completed(ctx, incomplete)


def _completed(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """What its program would complete; nothing where that cannot run."""
    words = ("console", *ctx.params.get("words", ()), incomplete)
    asking = {COMPLETION: "zsh_complete", "COMP_WORDS": shlex.join(words), "COMP_CWORD": str(len(words) - 1)}
    asked = subprocess.run(  # noqa: S603 our own program
        PROGRAM, env={**os.environ, **asking}, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    lines = asked.stdout.splitlines()
    return [
        CompletionItem(value, type=kind, help=told if told != "_" else None)
        for kind, value, told in zip(lines[::3], lines[1::3], lines[2::3], strict=False)
    ]


@click.command(
    cls=_Console,
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
    short_help="A web console for a running cluster.",
)
@click.argument(
    "words", nargs=-1, type=click.UNPROCESSED, shell_complete=lambda ctx, _, incomplete: _completed(ctx, incomplete)
)
def console(words: tuple[str, ...]) -> None:
    """A web console for a running cluster."""
    # This process becomes the console's: a process between would leave it behind when it is told to stop.
    os.execv(sys.executable, [*PROGRAM, *words])  # noqa: S606 our own program


class ConsoleSettings(NamedTuple):
    """A console that `serve` was asked for: the options of its program, and variables that hold its secrets."""

    options: Sequence[str]
    environment: Mapping[str, str]


console_options: Final = options(
    click.option("--console", "with_console", is_flag=True, help="A web console beside it."),
    click.option("--console-host", default="127.0.0.1", metavar="HOST", help="Where it listens.", show_default=True),
    click.option(
        "--console-port",
        type=click.IntRange(0, LARGEST_PORT),
        default=DEFAULT_PORT,
        metavar="PORT",
        show_default=True,
        help="Where it listens; 0 is any free port.",
    ),
    click.option(
        "--console-users", type=click.Path(path_type=Path), metavar="FILE", help="Who may log in to the console."
    ),
)
"""Arguments `with_console`, `console_host`, `console_port` and `console_users`."""


def console_settings(
    host: str, port: int, users: Path | None, accounts: Path | None, tls: ServerTlsFiles, log_format: str = "text"
) -> ConsoleSettings:
    """What a console needs to ask a server that has these accounts and this certificate, and to write the same log."""
    told = ["--host", host, "--port", str(port), *(() if users is None else ("--users", str(users)))]
    told += ["--log-format", log_format]
    towards = name_server_tls(tls)
    files = {"pinned-cert": towards.pinned, "client-cert": towards.cert, "client-key": towards.key}
    for option, file in files.items():
        told += [] if file is None else [f"--{option}", str(file)]
    return ConsoleSettings(told, {} if accounts is None else _administrator(accounts, users))


def _administrator(accounts: Path, users: Path | None) -> dict[str, str]:
    """The account that the console signs as; it may do everything, so whoever uses the console must log in."""
    if users is None:
        raise InvalidSetting(
            "with --accounts a console needs --console-users FILE: whoever reaches it would be an administrator; "
            "`pocketmq console user add NAME --users FILE` makes the file"
        )
    for account in read_accounts(DiskFiles(), accounts, os.environ):
        if account.is_admin:
            return {"ROCKETMQ_ACCESS_KEY": account.access_key, SECRET_VARIABLE: account.credentials.secret}
    raise InvalidSetting(f"accounts in {accounts}: none is an administrator (admin = true), as the console must be")


class HasNameServer(Protocol):
    @property
    def name_server(self) -> str: ...


P = TypeVar("P", bound=HasNameServer)


@asynccontextmanager
async def with_console(
    program: AbstractAsyncContextManager[P], settings: ConsoleSettings | None
) -> AsyncIterator[tuple[P, str | None]]:
    """A program, and the address of a console beside it if `settings` asks for one. If that cannot start, nothing does."""
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
    """Who only looks must not end what is looked at."""
    code = await console.wait()
    log.error("the console ended by itself with exit code %s; name server and broker go on", code)
