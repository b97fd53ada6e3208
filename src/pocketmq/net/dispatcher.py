"""From a request to its handler and back.

    command ── check, if any ── code ──► handler? ── no ──► REQUEST_CODE_NOT_SUPPORTED
                  └─► raises its error      └─ yes ──► row in the access table? ── no ──► NO_PERMISSION
                                                          └─ yes ──► decode header ──► handler ──► reply ──► command

`net.peer` turns errors that a handler raises into responses.
"""

from collections.abc import Callable, Container, Coroutine, Iterable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.errors import NoPermission, RequestNotSupported
from pocketmq.net.peer import Peer
from pocketmq.protocol.api import request_header
from pocketmq.protocol.command import Command
from pocketmq.protocol.fields import Fields, NoFields

H = TypeVar("H", bound=Fields)


class Request(Generic[H]):
    """A request with a decoded header."""

    __slots__ = ("command", "header", "peer")

    def __init__(self, peer: Peer, command: Command, header: H) -> None:
        self.peer = peer
        self.command = command
        self.header = header


PlainRequest = Request[NoFields]
"""A request without header fields."""


class Reply(NamedTuple):
    """A response. Failures without a header are raised as errors instead."""

    header: Fields | None = None
    body: bytes = b""
    code: int = ResponseCode.SUCCESS
    remark: str | None = None


Check = Callable[[Peer, Command], None]
"""Called before a request is served. Raises an error to refuse it."""

Handler = Callable[[Request[Any]], Reply | Coroutine[Any, Any, Reply]]
"""Returns a reply, or a coroutine if it has to wait."""


class Dispatcher:
    """All handlers of a server. `serve` is passed to `net.server.Server`.

    `access` is the server's table of access rules; a code without a row is refused. `check` is called for each request;
    a server that checks requests in its turns passes None.
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
        outcome = handler(Request(peer, command, request_header(code).decode(command.ext)))
        return _answer(command, outcome) if isinstance(outcome, Reply) else _answer_later(command, outcome)


def _answer(command: Command, reply: Reply) -> Command:
    ext = None if reply.header is None else reply.header.encode()
    return command.reply(reply.code, reply.remark, ext, reply.body)


async def _answer_later(command: Command, reply: Coroutine[Any, Any, Reply]) -> Command:
    return _answer(command, await reply)
