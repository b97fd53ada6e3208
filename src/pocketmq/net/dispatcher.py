"""From a command to its handler and back.

command ── check, if there is one ── code ──► handler? ── no ──► REQUEST_CODE_NOT_SUPPORTED
                  └─► what it raises             └─ yes ──► a row in the access table? ── no ──► NO_PERMISSION
                                                               └─ yes ──► header read ──► handler ──► reply ──► command
"""

from collections.abc import Container, Coroutine, Iterable, Mapping
from typing import Any

from pocketmq.codes import RequestCode
from pocketmq.errors import NoPermission, RequestNotSupported
from pocketmq.net.peer import Peer
from pocketmq.net.request import Check, Handler, Reply, Request
from pocketmq.protocol.api import API
from pocketmq.protocol.command import Command
from pocketmq.protocol.fields import read_fields, write_fields


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
