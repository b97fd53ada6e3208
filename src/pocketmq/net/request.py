"""What a handler gets and gives. Errors that it raises are answered with their code, in one place: see `net.peer`."""

from collections.abc import Callable, Coroutine
from typing import Any, Generic, NamedTuple, TypeVar

from pocketmq.codes import ResponseCode
from pocketmq.net.peer import Peer
from pocketmq.protocol.command import Command
from pocketmq.protocol.fields import Fields

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
