"""The page `GET /metrics`: enough HTTP for Prometheus and a browser.

    request ── /metrics ──► the metric families as text
            │              └─ 401 without an account, if the server has accounts and others can reach the page
            ├─ / ─────────► a hint to /metrics
            ├─ other ─────► 404, or 405 for another method
            └─ too long, too slow, not HTTP ──► closed

A connection gets one answer at a time. Requests that arrive while the families are collected wait for the same text, so
many clients cost no more than one.

`MetricsSettings` has the address of the page, and `KEYS` RocketMQ's names for it.
"""

import asyncio
import base64
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Self, cast

import msgspec

from pocketmq.errors import InvalidSetting, WrongState
from pocketmq.metrics.families import CONTENT_TYPE, Family, metrics_text
from pocketmq.model.setting_keys import NUMBER, SWITCH, TEXT, Form, Key
from pocketmq.net import LARGEST_PORT, Address, Listener, Network, ServerTls, TcpNetwork

log = logging.getLogger("pocketmq.metrics")

DEFAULT_PORT: Final = 5557
"""RocketMQ's default."""


class MetricsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the metrics page. It is off and on loopback by default, because it shows the names of all topics and groups.

    If other machines can reach it, it uses TLS if the server does, and requires an account if the server has accounts.
    """

    enabled: bool = False
    """`PROM` exposes Prometheus metrics, `DISABLE` does not."""
    host: str = "127.0.0.1"
    """The address of the metrics page."""
    port: int = DEFAULT_PORT
    """The port of the metrics page. 0: any free port."""
    without_authentication: bool = False
    """The metrics page requires no account, also where other machines can reach it."""
    max_connections: int = 16
    """Limit on connections. One more is closed at once."""
    request_s: float = 10.0
    """How long a request may take, and how long an idle connection stays open, in seconds."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= LARGEST_PORT:
            raise InvalidSetting(
                f"invalid metrics port {self.port}; it must be from 0 (any free port) to {LARGEST_PORT}"
            )
        if self.max_connections <= 0 or self.request_s <= 0:
            raise InvalidSetting("max_connections and request_s of the metrics page must be above 0")

    @property
    def address(self) -> Address:
        return Address(self.host, self.port)


def _exporter(text: str) -> bool:
    if text.upper() not in ("PROM", "DISABLE"):
        raise ValueError("PROM or DISABLE; metrics are not pushed to a collector")
    return text.upper() == "PROM"


KEYS: Final[dict[str, Key]] = {
    "metricsExporterType": Key("metrics.enabled", Form(_exporter, lambda on: "PROM" if on else "DISABLE")),
    "metricsPromExporterHost": Key("metrics.host", TEXT),
    "metricsPromExporterPort": Key("metrics.port", NUMBER),
    "metricsWithoutAuthentication": Key("metrics.without_authentication", SWITCH),
}

Collect = Callable[[], Awaitable[Sequence[Family]]]
"""Collects the current families."""

Admits = Callable[[str, str, str], bool]
"""Whether a client at this address, with this access key and secret, may read the metrics."""

PATH: Final = "/metrics"
MAX_REQUEST_BYTES: Final = 8 * 1024
_END: Final = b"\r\n\r\n"
_PLAIN: Final = "text/plain; charset=utf-8"


class MetricsPage:
    """Use it as `async with MetricsPage(settings, collect) as page:`; `page.address` has the actual port for port 0."""

    def __init__(
        self,
        settings: MetricsSettings,
        collect: Collect,
        *,
        network: Network | None = None,
        tls: ServerTls | None = None,
        admits: Admits | None = None,
    ) -> None:
        """`tls` and `admits` are those of the server. On loopback, neither is used."""
        is_local = settings.address.is_loopback
        self._settings = settings
        self._collect = collect
        self._tls = None if is_local else tls
        self.admits = None if is_local or settings.without_authentication else admits
        self._network = network or TcpNetwork()
        self._listener: Listener | None = None
        self._collecting: asyncio.Task[str] | None = None
        self._connections: set[_Connection] = set()

    @property
    def address(self) -> Address:
        if self._listener is None:
            raise WrongState("the metrics page is not started: use `async with`, or `await start()`")
        return self._listener.address

    async def start(self) -> None:
        """Listen. ListenFailed if the address is in use."""
        self._listener = await self._network.listen(self._connection, self._settings.address, tls=self._tls)
        access = ", for accounts with the cluster permission Get" if self.admits else ""
        log.info("Metrics page: %s://%s%s%s", "https" if self._tls else "http", self.address, PATH, access)

    async def stop(self) -> None:
        """Harmless if called twice."""
        if self._listener is None:
            return
        self._listener.close()
        self._listener = None
        for connection in list(self._connections):
            connection.close()
        if self._collecting is not None:
            self._collecting.cancel()
            await asyncio.gather(self._collecting, return_exceptions=True)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    async def text(self) -> str:
        """The current text; concurrent callers share one."""
        if self._collecting is None:
            self._collecting = asyncio.get_running_loop().create_task(self._make_text(), name="pocketmq metrics")
        return await asyncio.shield(self._collecting)

    async def _make_text(self) -> str:
        try:
            return metrics_text(await self._collect())
        finally:
            self._collecting = None

    def _connection(self) -> "_Connection":
        return _Connection(self, self._connections, self._settings)


class _Connection(asyncio.Protocol):
    """A client of the page."""

    def __init__(self, page: MetricsPage, connections: "set[_Connection]", settings: MetricsSettings) -> None:
        self._page = page
        self._connections = connections
        self._settings = settings
        self._unread = bytearray()
        self._transport: asyncio.Transport | None = None
        self._timeout: asyncio.TimerHandle | None = None
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
        if self._timeout is not None:
            self._timeout.cancel()
        if self._answering is not None:
            self._answering.cancel()

    def data_received(self, data: bytes) -> None:
        self._unread += data
        if self._answering is None:
            self._next()
        elif len(self._unread) > MAX_REQUEST_BYTES:
            self.close()  # it sends requests without waiting for answers

    def _next(self) -> None:
        head, end, rest = bytes(self._unread).partition(_END)
        if not end:
            if head and not head[:1].isalpha():  # such as a client of RocketMQ that uses this port
                self._respond(400, "this is not HTTP", keep=False)
            elif len(head) > MAX_REQUEST_BYTES:
                self._respond(431, "the request is too long", keep=False)
            return
        self._unread = bytearray(rest)
        lines = head.decode("latin-1").split("\r\n")
        method, _, target = lines[0].partition(" ")
        path, _, version = target.rpartition(" ")
        keep = version == "HTTP/1.1" and not any(line.lower() == "connection: close" for line in lines[1:])
        self._stop_waiting()
        if not version.startswith("HTTP/1."):
            self._respond(400, "this is not HTTP", keep=False)
        elif method not in ("GET", "HEAD"):
            self._respond(405, "only GET is answered", keep=False)
        elif path.partition("?")[0] == PATH and not self._is_admitted(lines[1:]):
            why = "the metrics require an account with the cluster permission Get: send its access key and secret by basic authentication"
            self._respond(401, why, keep=False, method=method)
        elif path.partition("?")[0] == PATH:
            self._answering = asyncio.get_running_loop().create_task(self._answer_metrics(method, keep))
        elif path == "/":
            self._respond(200, f"PocketMQ: metrics for Prometheus are at {PATH}", keep=keep, method=method)
        else:
            self._respond(404, f"there is only {PATH}", keep=keep, method=method)

    def _is_admitted(self, headers: list[str]) -> bool:
        if self._page.admits is None:
            return True
        assert self._transport is not None
        peer = self._transport.get_extra_info("peername")
        key, secret = _basic(headers)
        return self._page.admits(str(peer[0]) if peer else "", key, secret)

    async def _answer_metrics(self, method: str, keep: bool) -> None:
        try:
            text = await self._page.text()
        except Exception:
            log.exception("Cannot collect metrics; answering with status 500")
            self._answering = None
            self._respond(500, "cannot collect metrics; the reason is in the log", keep=False)
            return
        self._answering = None
        self._respond(200, text, keep=keep, method=method, kind=CONTENT_TYPE)

    def _respond(self, status: int, text: str, *, keep: bool, method: str = "GET", kind: str = _PLAIN) -> None:
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
            asyncio.get_running_loop().call_soon(self._continue)

    def _continue(self) -> None:
        if self._answering is None and self._transport is not None and not self._transport.is_closing():
            self._next()

    def _wait(self) -> None:
        self._stop_waiting()
        self._timeout = asyncio.get_running_loop().call_later(self._settings.request_s, self.close)

    def _stop_waiting(self) -> None:
        if self._timeout is not None:
            self._timeout.cancel()
            self._timeout = None

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def _basic(headers: list[str]) -> tuple[str, str]:
    """Name and password of basic authentication; empty if there is none."""
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
