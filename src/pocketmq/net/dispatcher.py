"""From a command to its handler and back.

command ── check, if there is one ── code ──► handler? ── no ──► REQUEST_CODE_NOT_SUPPORTED
                  └─► what it raises             └─ yes ──► a row in the access table? ── no ──► NO_PERMISSION
                                                               └─ yes ──► header read ──► handler ──► reply ──► command

What a handler gets and gives. Errors that it raises are answered with their code, in one place: see `net.peer`.
"""

from collections.abc import Callable, Container, Coroutine, Iterable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.errors import NoPermission, RequestNotSupported
from pocketmq.net.peer import Peer
from pocketmq.protocol.api import API
from pocketmq.protocol.command import Command
from pocketmq.protocol.fields import Fields, read_fields, write_fields

H = TypeVar("H", bound=Fields)


class Request(Generic[H]):
    """A request whose header has been read."""

    __slots__ = ("command", "header", "peer")

    def __init__(self, peer: Peer, command: Command, header: H) -> None:
        self.peer = peer
        self.command = command
        self.header = header


class Reply(NamedTuple):
    """The answer: of success, unless it has another code. A failure without a header is raised instead."""

    header: Fields | None = None
    body: bytes = b""
    code: int = ResponseCode.SUCCESS
    remark: str | None = None


Check = Callable[[Peer, Command], None]
"""Looks at a request before it is served, and raises what it is to be refused with."""

Handler = Callable[[Request[Any]], Reply | Coroutine[Any, Any, Reply]]
"""Answers at once, or later when it has to wait for the disk or for somebody else."""


class Dispatcher:
    """All handlers of a server; `serve` is for `net.server`, which also answers what it raises.

    `access` is the server's table of what each request does; a code that is not in it is refused. `check` looks at every
    request first; a server whose turns have looked at it already gives none.
    """

    def __init__(
        self,
        tables: Iterable[Mapping[RequestCode, Handler]],
        access: Container[RequestCode],
        *,
        check: Check | None = None,
    ) -> None:
        self._handlers: dict[int, Handler] = {}
        for table in tables:
            twice = self._handlers.keys() & table.keys()
            assert not twice, f"two handlers for {twice}"
            self._handlers |= {int(code): handler for code, handler in table.items()}
        self._access = access
        self._check = check

    def serve(self, peer: Peer, command: Command) -> Command | Coroutine[Any, Any, Command]:
        if self._check is not None:
            self._check(peer, command)
        handler = self._handlers.get(command.code)
        if handler is None:
            raise RequestNotSupported(f" request type {command.code} not supported")
        code = RequestCode(command.code)
        if code not in self._access:
            raise NoPermission(f"request type {command.code} has no access rule")
        outcome = handler(Request(peer, command, read_fields(API[code].request, command.ext)))
        return _answer(command, outcome) if isinstance(outcome, Reply) else _answer_later(command, outcome)


def _answer(command: Command, reply: Reply) -> Command:
    ext = None if reply.header is None else write_fields(reply.header)
    return command.reply(reply.code, reply.remark, ext, reply.body)


async def _answer_later(command: Command, reply: Coroutine[Any, Any, Reply]) -> Command:
    return _answer(command, await reply)
