"""What stands before every page: the name that the browser called us by, and the headers that keep others out.

    Host is an address, localhost or a name we were told ──► the page
            anything else: a name of somebody who points it at us (DNS rebinding) ──► 421

The content policy allows our own files and nothing else: no inline script or style, no frame, no other host.
"""

from collections.abc import Iterable
from ipaddress import ip_address
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pocketmq.errors import InvalidSetting
from pocketmq.net.address import Address

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Guard:
    """Wraps the whole application."""

    def __init__(self, app: ASGIApp, *, is_loopback: bool, allowed_hosts: Iterable[str]) -> None:
        self._app = app
        self._is_loopback = is_loopback
        self._allowed_hosts = frozenset(name.lower() for name in allowed_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                if "cache-control" not in headers:
                    headers["cache-control"] = "no-store"
            await send(message)

        host = Headers(scope=scope).get("host", "")
        if self.is_ours(host):
            await self._app(scope, receive, send_guarded)
            return
        answer = PlainTextResponse(
            f"The console does not answer to the name {host!r}. Call it by its address, or start it with --allowed-host NAME.",
            421,
        )
        await answer(scope, receive, send_guarded)

    def is_ours(self, host: str) -> bool:
        """Whether a browser that sends this `Host` meant us. An address cannot be somebody else's name."""
        try:
            name = Address.parse(host, default_port=0).host.lower()
        except InvalidSetting:
            return False
        if name == "localhost" or name in self._allowed_hosts:
            return True
        try:
            address = ip_address(name)
        except ValueError:
            return False
        return address.is_loopback or not self._is_loopback
