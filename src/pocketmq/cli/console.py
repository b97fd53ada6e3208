"""`pocketmq console`: the web console, as a process of its own. It needs libraries that the rest does not, and takes no time from a broker's loop.

pocketmq console …        ──► python -m pocketmq.console …     options, help and exit codes are that program's
pocketmq serve --console  ──► the same, beside the broker; it ends with it, and the broker goes on without it
"""

import asyncio
import logging
import os
import shlex
import signal
import subprocess
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

import click
import msgspec
from click.shell_completion import CompletionItem

from pocketmq.access.accounts_file import read_accounts
from pocketmq.cli.asking import SECRET_VARIABLE
from pocketmq.embedded.server import name_server_tls
from pocketmq.errors import InvalidSetting, ProgramFailed
from pocketmq.files import DiskFiles
from pocketmq.net.address import LARGEST_PORT
from pocketmq.net.tls import ServerTlsFiles

log = logging.getLogger("pocketmq.cli")

PROGRAM = (sys.executable, "-m", "pocketmq.console")
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


class ConsoleWishes(NamedTuple):
    """A console that `serve` was asked for: the options of its program, and variables that hold its secrets."""

    options: Sequence[str]
    environment: Mapping[str, str]


def console_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--console` and its relatives: arguments `with_console`, `console_host`, `console_port`, `console_users`."""
    options = (
        click.option("--console", "with_console", is_flag=True, help="A web console beside it."),
        click.option(
            "--console-host", default="127.0.0.1", metavar="HOST", help="Where it listens.", show_default=True
        ),
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
    for option in reversed(options):
        command = option(command)
    return command


def console_wishes(
    host: str, port: int, users: Path | None, accounts: Path | None, tls: ServerTlsFiles, log_format: str = "text"
) -> ConsoleWishes:
    """What a console needs to ask a server that has these accounts and this certificate, and to write the same log."""
    options = ["--host", host, "--port", str(port), *(() if users is None else ("--users", str(users)))]
    options += ["--log-format", log_format]
    towards = name_server_tls(tls)
    files = {"pinned-cert": towards.pinned, "client-cert": towards.cert, "client-key": towards.key}
    for option, file in files.items():
        options += [] if file is None else [f"--{option}", str(file)]
    return ConsoleWishes(options, {} if accounts is None else _administrator(accounts, users))


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


class ConsoleProcess:
    """A console that runs. When this process is killed, its input stream ends, and so does it."""

    def __init__(self, name_server: str, wishes: ConsoleWishes) -> None:
        self._name_server = name_server
        self._wishes = wishes
        self._watching: asyncio.Task[None] | None = None
        self._process: Process
        self.url = ""

    async def __aenter__(self) -> Self:
        # In a session of its own: ctrl-C on the terminal is for this process, which then tells the console.
        self._process = await asyncio.create_subprocess_exec(
            *PROGRAM,
            *("--json", "--until-end-of-input", "--namesrv", self._name_server),
            *self._wishes.options,
            env={**os.environ, **self._wishes.environment},
            stdin=PIPE,
            stdout=PIPE,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        try:
            line = await self._process.stdout.readline()
        except BaseException:
            await self._stop()
            raise
        if not line:
            code = (await self._process.communicate(), await self._process.wait())[1]
            raise ProgramFailed(f"the console ended with exit code {code} before it was ready")
        self.url = msgspec.json.decode(line)["url"]
        self._watching = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._watching is not None:
            self._watching.cancel()
        await self._stop()

    async def _stop(self) -> None:
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_S):
                await self._process.communicate()
        except TimeoutError:
            self._process.kill()
            await self._process.communicate()

    async def _watch(self) -> None:
        """Who only looks must not end what is looked at."""
        code = await self._process.wait()
        log.error("the console ended by itself with exit code %s; name server and broker go on", code)


class HasNameServer(Protocol):
    @property
    def name_server(self) -> str: ...


P = TypeVar("P", bound=HasNameServer)


class WithConsole(AbstractAsyncContextManager["WithConsole[P]"], Generic[P]):
    """A program, and a console beside it if one is wished for. If that cannot start, nothing does."""

    def __init__(self, program: AbstractAsyncContextManager[P], wishes: ConsoleWishes | None) -> None:
        self._program = program
        self._wishes = wishes
        self._parts = AsyncExitStack()
        self.running: P
        self.url: str | None = None

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as parts:
            self.running = await parts.enter_async_context(self._program)
            if self._wishes is not None:
                process = ConsoleProcess(self.running.name_server, self._wishes)
                self.url = (await parts.enter_async_context(process)).url
            self._parts = parts.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._parts.__aexit__(kind, error, trace)
