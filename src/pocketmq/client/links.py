"""Lines to servers, by address: ask and get the answer of success or an error, tell and get nothing. Everything is signed here.

    ask(address, code, header, body) ── ext fields, marks of this client, signature ──► peer ──► answer
                                                                               code 0 ◄──┴──► another: `error_for` it

A request carries its own fields, then the marks that this client puts on all of them, then the signature over both.
"""

from collections.abc import Mapping

from pocketmq.codes import RequestCode
from pocketmq.net.address import Address
from pocketmq.net.peer import Peer
from pocketmq.net.pool import Pool
from pocketmq.protocol.command import Command
from pocketmq.protocol.fields import Fields, write_fields
from pocketmq.protocol.signing import Credentials, signed_fields

STREAM_MARKS: Mapping[str, str] = {"ReqT": "0"}
"""On every request of a client that polls by itself, so that brokers can tell it from others."""


class Links:
    """The connections of one client."""

    def __init__(
        self,
        pool: Pool,
        *,
        credentials: Credentials | None = None,
        marks: Mapping[str, str] | None = None,
        call_timeout_s: float = 3.0,
    ) -> None:
        self._pool = pool
        self.credentials = credentials
        self._marks = dict(marks or {})
        self._call_timeout_s = call_timeout_s
        self.adds_fields = bool(self._marks) or credentials is not None
        """Whether requests leave with more ext fields than their own: who writes their bytes by himself adds those, too."""

    async def peer(self, address: Address) -> Peer:
        """The live line to `address`, connected if need be."""
        return await self._pool.peer(address)

    def command(
        self, code: int, header: Fields | None = None, body: bytes = b"", extra: Mapping[str, str] | None = None
    ) -> Command:
        """A request of this client, ready to be sent: marked and signed."""
        ext = None if header is None else write_fields(header)
        if extra:
            ext = {**(ext or {}), **extra}
        return self.signed(Command(int(code), ext, body))

    def signed(self, command: Command) -> Command:
        """`command` with the marks of this client and its signature, if it has any."""
        command.ext = self.signed_fields(command.ext, command.body)
        return command

    def signed_fields(self, ext: dict[str, str] | None, body: bytes = b"") -> dict[str, str] | None:
        """The ext fields of a request with the same. It only reads, so any thread may call it."""
        if self._marks:
            ext = {**(ext or {}), **self._marks}
        return ext if self.credentials is None else signed_fields(ext, body, self.credentials)

    async def ask(
        self,
        address: Address,
        code: RequestCode,
        header: Fields | None = None,
        body: bytes = b"",
        *,
        extra: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Command:
        """The answer of success; another one is raised as the error that it stands for."""
        peer = await self.peer(address)
        return await self.ask_peer(peer, self.command(code, header, body, extra), timeout_s)

    async def ask_peer(self, peer: Peer, command: Command, timeout_s: float | None = None) -> Command:
        """The same on a line that is there, for a command of `command`."""
        answer = await peer.call(command, self._call_timeout_s if timeout_s is None else timeout_s)
        if error := answer.error():
            raise error
        return answer
