"""The page `GET /metrics`: just enough HTTP for Prometheus and a browser.

    request ── /metrics ──► families looked at, as text
            │              └─ no account that may: 401, where other machines reach the page and there are accounts
            ├─ / ─────────► where to go
            ├─ other ─────► 404, or 405 for another method
            └─ too long, too slow, not HTTP ──► closed

One request at a time is answered for each connection; it may ask again. While families are looked at for one who asks,
others wait and get the same text: many watchers cost no more than one.
"""

import asyncio
import base64
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Self, cast

from pocketmq.errors import WrongState
from pocketmq.metrics.families import CONTENT_TYPE, Family, metrics_text
from pocketmq.metrics.settings import MetricsSettings
from pocketmq.net.address import Address
from pocketmq.net.network import Listener, Network, TcpNetwork
from pocketmq.net.tls import ServerTls

log = logging.getLogger("pocketmq.metrics")

Look = Callable[[], Awaitable[Sequence[Family]]]
"""Makes the families of now."""

Admits = Callable[[str, str, str], bool]
"""Whether somebody at this address, with this access key and secret, may read the metrics."""

PATH: Final = "/metrics"
MAX_REQUEST_BYTES: Final = 8 * 1024
_END: Final = b"\r\n\r\n"
_PLAIN: Final = "text/plain; charset=utf-8"


class MetricsPage:
    """Use it as `async with MetricsPage(settings, look) as page:`; `page.address` has the port that was given for 0."""

    def __init__(
        self,
        settings: MetricsSettings,
        look: Look,
        *,
        network: Network | None = None,
        tls: ServerTls | None = None,
        admits: Admits | None = None,
    ) -> None:
        """`tls` and `admits` are those of the server. On loopback, neither is used."""
        is_local = settings.address.is_loopback
        self._settings = settings
        self._look = look
        self._tls = None if is_local else tls
        self.admits = None if is_local or settings.without_authentication else admits
        self._network = network or TcpNetwork()
        self._listener: Listener | None = None
        self._making: asyncio.Task[str] | None = None
        self._connections: set[_Connection] = set()

    @property
    def address(self) -> Address:
        if self._listener is None:
            raise WrongState("the metrics page does not listen: start it with `async with`, or `await start()`")
        return self._listener.address

    async def start(self) -> None:
        """Listen. ListenFailed when the address is taken."""
        self._listener = await self._network.listen(self._connection, self._settings.address, tls=self._tls)
        asked = " for accounts that may look at the cluster" if self.admits else ""
        log.info("metrics on %s://%s%s%s", "https" if self._tls else "http", self.address, PATH, asked)

    async def stop(self) -> None:
        """Harmless when done twice."""
        if self._listener is None:
            return
        self._listener.close()
        self._listener = None
        for connection in list(self._connections):
            connection.close()
        if self._making is not None:
            self._making.cancel()
            await asyncio.gather(self._making, return_exceptions=True)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    async def text(self) -> str:
        """The text of now; made once for all who ask meanwhile."""
        if self._making is None:
            self._making = asyncio.get_running_loop().create_task(self._make(), name="pocketmq metrics")
        return await asyncio.shield(self._making)

    async def _make(self) -> str:
        try:
            return metrics_text(await self._look())
        finally:
            self._making = None

    def _connection(self) -> "_Connection":
        return _Connection(self, self._connections, self._settings)


class _Connection(asyncio.Protocol):
    """Somebody who asks."""

    def __init__(self, page: MetricsPage, connections: "set[_Connection]", settings: MetricsSettings) -> None:
        self._page = page
        self._connections = connections
        self._settings = settings
        self._unread = bytearray()
        self._transport: asyncio.Transport | None = None
        self._patience: asyncio.TimerHandle | None = None
        self._answering: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if len(self._connections) >= self._settings.max_connections:
            self._transport.abort()
            return
        self._connections.add(self)
        self._wait()

    def connection_lost(self, reason: Exception | None) -> None:
        self._connections.discard(self)
        if self._patience is not None:
            self._patience.cancel()
        if self._answering is not None:
            self._answering.cancel()

    def data_received(self, data: bytes) -> None:
        self._unread += data
        if self._answering is None:
            self._next()
        elif len(self._unread) > MAX_REQUEST_BYTES:
            self.close()  # it asks on and on without waiting for answers

    def _next(self) -> None:
        head, end, rest = bytes(self._unread).partition(_END)
        if not end:
            if head and not head[:1].isalpha():  # such as a client of RocketMQ that was given this port
                self._say(400, "this is not HTTP", keep=False)
            elif len(head) > MAX_REQUEST_BYTES:
                self._say(431, "the request is too long", keep=False)
            return
        self._unread = bytearray(rest)
        lines = head.decode("latin-1").split("\r\n")
        method, _, target = lines[0].partition(" ")
        path, _, version = target.rpartition(" ")
        keep = version == "HTTP/1.1" and not any(line.lower() == "connection: close" for line in lines[1:])
        self._stop_waiting()
        if not version.startswith("HTTP/1."):
            self._say(400, "this is not HTTP", keep=False)
        elif method not in ("GET", "HEAD"):
            self._say(405, "only GET is answered", keep=False)
        elif path.partition("?")[0] == PATH and not self._is_admitted(lines[1:]):
            why = "the metrics need an account that may look at the cluster: its access key and secret, by basic authentication"
            self._say(401, why, keep=False, method=method)
        elif path.partition("?")[0] == PATH:
            self._answering = asyncio.get_running_loop().create_task(self._tell(method, keep))
        elif path == "/":
            self._say(200, f"PocketMQ: metrics for Prometheus are at {PATH}", keep=keep, method=method)
        else:
            self._say(404, f"there is only {PATH}", keep=keep, method=method)

    def _is_admitted(self, headers: list[str]) -> bool:
        if self._page.admits is None:
            return True
        assert self._transport is not None
        peer = self._transport.get_extra_info("peername")
        key, secret = _basic(headers)
        return self._page.admits(str(peer[0]) if peer else "", key, secret)

    async def _tell(self, method: str, keep: bool) -> None:
        try:
            text = await self._page.text()
        except Exception:
            log.exception("the metrics could not be made")
            self._answering = None
            self._say(500, "the metrics could not be made; the log says why", keep=False)
            return
        self._answering = None
        self._say(200, text, keep=keep, method=method, kind=CONTENT_TYPE)

    def _say(self, status: int, text: str, *, keep: bool, method: str = "GET", kind: str = _PLAIN) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        body = (text if text.endswith("\n") else text + "\n").encode()
        ending = "keep-alive" if keep else "close"
        self._transport.write(
            f"HTTP/1.1 {status} {_WORDS[status]}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
            f"{_CHALLENGE if status == 401 else ''}Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
            f"Connection: {ending}\r\n\r\n".encode()
            + (b"" if method == "HEAD" else body)
        )
        if not keep:
            self._transport.close()
            return
        self._wait()
        if self._unread:
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        if self._answering is None and self._transport is not None and not self._transport.is_closing():
            self._next()

    def _wait(self) -> None:
        self._stop_waiting()
        self._patience = asyncio.get_running_loop().call_later(self._settings.request_s, self.close)

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def _basic(headers: list[str]) -> tuple[str, str]:
    """Name and password of basic authentication; empty where there is none."""
    for line in headers:
        name, _, value = line.partition(":")
        kind, _, token = value.strip().partition(" ")
        if name.strip().lower() != "authorization" or kind.lower() != "basic":
            continue
        try:
            key, _, secret = base64.b64decode(token.strip(), validate=True).decode().partition(":")
        except ValueError:
            return "", ""
        return key, secret
    return "", ""


_CHALLENGE: Final = 'WWW-Authenticate: Basic realm="PocketMQ metrics", charset="UTF-8"\r\n'
_WORDS: Final = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
}
