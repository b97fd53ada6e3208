"""Calls to servers by address, over pooled connections. Every request is signed here.

    ask(address, code, header, body) ── ext fields, marks of this client, signature ──► peer ──► response
                                                                              code 0 ◄──┴──► other codes: `error_for`

A request has its own ext fields, then the marks that this client adds to all requests, then the signature over both. With an `RpcHook`,
it is signed when it is sent, after the hook has run.
"""

import asyncio
from collections.abc import Mapping
from functools import partial

from pocketmq.client.hooks import HookErrors, RpcHook
from pocketmq.codes import RequestCode
from pocketmq.net import Address, Peer, Pool
from pocketmq.protocol.command import Command
from pocketmq.protocol.fields import Fields
from pocketmq.protocol.signing import Credentials, signed_fields

STREAM_MARKS: Mapping[str, str] = {"ReqT": "0"}
"""Added to every request of a client whose user polls, so that brokers can distinguish it."""


class RpcClient:
    """The connections of one client."""

    def __init__(
        self,
        pool: Pool,
        *,
        credentials: Credentials | None = None,
        marks: Mapping[str, str] | None = None,
        call_timeout_s: float = 3.0,
        rpc_hook: RpcHook | None = None,
    ) -> None:
        self._pool = pool
        self.credentials = credentials
        self._marks = dict(marks or {})
        self._call_timeout_s = call_timeout_s
        self._rpc_hook = rpc_hook
        self._hook_errors = HookErrors()
        self.is_watched = rpc_hook is not None
        """Whether every request must be sent here as a `Command`, because a hook runs for it."""
        self.adds_fields = bool(self._marks) or credentials is not None or self.is_watched
        """Whether requests get additional ext fields. Code that encodes requests directly must add them with `signed_fields`."""

    async def peer(self, address: Address, *, waits_for_retry: bool = True) -> Peer:
        """The open connection to `address`; see `Pool.peer`."""
        return await self._pool.peer(address, waits_for_retry=waits_for_retry)

    def command(
        self, code: int, header: Fields | None = None, body: bytes = b"", extra: Mapping[str, str] | None = None
    ) -> Command:
        """A request with the marks and the signature of this client."""
        ext = None if header is None else header.encode()
        if extra:
            ext = {**(ext or {}), **extra}
        return self.signed(Command(int(code), ext, body))

    def signed(self, command: Command) -> Command:
        """`command` with the marks and the signature of this client. With a hook, these are added when it is sent."""
        if self.is_watched:
            return command
        command.ext = self.signed_fields(command.ext, command.body)
        return command

    def signed_fields(self, ext: dict[str, str] | None, body: bytes = b"") -> dict[str, str] | None:
        """The ext fields of a request with marks and signature. Thread-safe."""
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
        timeout_s: float | None = None,
    ) -> Command:
        """The response of a successful call; other response codes raise their error."""
        return await self.ask_peer(await self.peer(address), self.command(code, header, body), timeout_s)

    async def ask_peer(self, peer: Peer, command: Command, timeout_s: float | None = None) -> Command:
        """`ask` over an open connection, with a request from `command`."""
        answer = await self.call(peer, command, timeout_s)
        if error := answer.error():
            raise error
        return answer

    async def call(self, peer: Peer, command: Command, timeout_s: float | None = None) -> Command:
        """The response, whatever its code."""
        self._about_to_send(peer, command)
        answer = await peer.call(command, self._call_timeout_s if timeout_s is None else timeout_s)
        self._answered(peer, command, answer)
        return answer

    def start(self, peer: Peer, command: Command, timeout_s: float) -> asyncio.Future[Command]:
        """`call` without waiting: the future of the response. TooManyCalls when the connection is not writable."""
        self._about_to_send(peer, command)
        future = peer.ask(command, timeout_s)
        if self.is_watched:
            future.add_done_callback(partial(self._ended, peer, command))
        return future

    def send_one_way(self, peer: Peer, command: Command) -> None:
        """Send a request from `command` one-way."""
        self._about_to_send(peer, command)
        peer.oneway(command)

    def _about_to_send(self, peer: Peer, command: Command) -> None:
        if self._rpc_hook is None:
            return
        command.ext = command.ext or {}
        try:
            self._rpc_hook.before_request(str(peer.address), command)
        except Exception as error:
            self._hook_errors.log(self._rpc_hook.before_request, error, f"request with code {command.code}")
        command.ext = self.signed_fields(command.ext, command.body)

    def _answered(self, peer: Peer, command: Command, answer: Command) -> None:
        if self._rpc_hook is None:
            return
        try:
            self._rpc_hook.after_response(str(peer.address), command, answer)
        except Exception as error:
            self._hook_errors.log(self._rpc_hook.after_response, error, f"response to request code {command.code}")

    def _ended(self, peer: Peer, command: Command, future: asyncio.Future[Command]) -> None:
        if not future.cancelled() and future.exception() is None:
            self._answered(peer, command, future.result())
