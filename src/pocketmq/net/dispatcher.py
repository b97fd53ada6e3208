"""From a command to its handler and back.

command ── code ──► handler? ── no ──► REQUEST_CODE_NOT_SUPPORTED
                       └─ yes ──► a row in the access table? ── no ──► NO_PERMISSION
                                     └─ yes ──► header read ──► handler ──► reply ──► command
"""

from collections.abc import Coroutine, Iterable, Mapping
from typing import Any

from pocketmq.codes import RequestCode
from pocketmq.errors import NoPermission, RequestNotSupported
from pocketmq.model.access import Access
from pocketmq.net.peer import Peer
from pocketmq.net.request import Handler, Reply, Request
from pocketmq.protocol.api import API
from pocketmq.protocol.command import Command
from pocketmq.protocol.fields import read_fields, write_fields


class Dispatcher:
    """All handlers of a server; `serve` is for `net.server`, which also answers what it raises.

    `access` is the server's table of what each request does; a code that is not in it is refused.
    """

    def __init__(self, tables: Iterable[Mapping[RequestCode, Handler]], access: Mapping[RequestCode, Access]) -> None:
        self._handlers: dict[int, Handler] = {}
        for table in tables:
            twice = self._handlers.keys() & table.keys()
            assert not twice, f"two handlers for {twice}"
            self._handlers |= {int(code): handler for code, handler in table.items()}
        self._access = access

    def serve(self, peer: Peer, command: Command) -> Command | Coroutine[Any, Any, Command]:
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
