"""The ASGI application: routes, security headers, start and stop.

The guard in front of every page checks the Host header against DNS rebinding:

    Host is an IP address, localhost or an allowed name ──► the page
    any other name                                      ──► 421

The content security policy allows only files of the console: no inline script or style, no frame, no other host.
"""

import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pocketmq.client.admin.admin import AsyncAdmin
from pocketmq.client.producer.producer import AsyncProducer
from pocketmq.client.settings import ClientOptions
from pocketmq.clock import Clock, SystemClock
from pocketmq.console.endpoints import Endpoints, Login
from pocketmq.console.pages import cluster, dead_letters, groups, messages, overview, pending, topics
from pocketmq.console.rendering import Templates
from pocketmq.console.settings import ConsoleSettings
from pocketmq.console.site import Action, Page, QueryCache, Replays, Site
from pocketmq.console.snapshot import Collector
from pocketmq.console.users import LoginAttempts, Sessions, UsersFile
from pocketmq.errors import InvalidSetting
from pocketmq.files import DiskFiles
from pocketmq.net import Address

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
    """Middleware that checks the Host header and adds security headers."""

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
        if self.is_allowed(host):
            await self._app(scope, receive, send_guarded)
            return
        answer = PlainTextResponse(
            f"The host name {host!r} is not allowed. Use the address of the console, or start it with --allowed-host NAME.",
            421,
        )
        await answer(scope, receive, send_guarded)

    def is_allowed(self, host: str) -> bool:
        """Whether this Host header is allowed. An IP address is not a name, so it cannot be rebound."""
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


log = logging.getLogger("pocketmq.console")

BROKERS_CACHE_MS: Final = 1_000
"""How long the list of brokers is cached: one page may send a hundred requests to brokers."""
STATIC: Final = Path(__file__).parent / "static"
SECTIONS: Final = (overview, topics, messages, groups, dead_letters, pending, cluster)
PAGES: Final[list[Page]] = [page for section in SECTIONS for page in section.PAGES]
ACTIONS: Final[list[Action]] = [
    action for section in (topics, groups, dead_letters, pending, cluster) for action in section.ACTIONS
]
DOWNLOADS: Final = {**messages.DOWNLOADS, **dead_letters.DOWNLOADS}


def make_app(
    settings: ConsoleSettings, name_servers: str, options: ClientOptions, clock: Clock | None = None
) -> Starlette:
    """The ASGI application for a cluster; its start connects to the cluster."""
    site = _site(settings, name_servers, options, clock or SystemClock())
    return Starlette(
        routes=_routes(site),
        middleware=[Middleware(Guard, is_loopback=settings.address.is_loopback, allowed_hosts=settings.allowed_hosts)],
        exception_handlers={404: _no_such_page, 405: _no_such_page, 500: _failed},
        lifespan=lambda _: _lifespan(site),
    )


async def _no_such_page(request: Request, _: Exception) -> Response:
    """For unknown URLs. A topic or group that does not exist has a page of its own."""
    return PlainTextResponse(f"The console has no page {request.url.path}. Start at /", 404)


async def _failed(request: Request, error: Exception) -> Response:
    """For errors of the console itself. Starlette raises the error again, and uvicorn logs it."""
    log.error("unexpected error while rendering %s: %s: %s", request.url.path, type(error).__name__, error)
    text = f"Unexpected error while rendering {request.url.path}. See the log of the console; other pages still work: /"
    return PlainTextResponse(text, 500, headers=HEADERS)


def _site(settings: ConsoleSettings, name_servers: str, options: ClientOptions, clock: Clock) -> Site:
    admin = AsyncAdmin(name_servers, brokers_good_ms=BROKERS_CACHE_MS, decompress=False, **options)
    users = UsersFile(DiskFiles(), settings.users, clock)
    return Site(
        settings=settings,
        clock=clock,
        admin=admin,
        producer=AsyncProducer(name_servers, **options),
        collector=Collector(admin, clock, settings),
        cache=QueryCache(clock, settings.cache_s, settings.page_timeout_s),
        templates=Templates(),
        sessions=Sessions(clock, settings.session_s, settings.max_sessions, users.has),
        attempts=LoginAttempts(clock, settings.max_login_failures),
        users=users,
        replays=Replays(admin, clock),
        name_servers=name_servers,
        options=options,
    )


@asynccontextmanager
async def _lifespan(site: Site) -> AsyncIterator[None]:
    async with AsyncExitStack() as parts:
        await parts.enter_async_context(site.admin)
        await parts.enter_async_context(site.producer)
        parts.push_async_callback(site.replays.stop)
        await parts.enter_async_context(site.collector)
        yield


def _routes(site: Site) -> list[Route | Mount]:
    endpoints = Endpoints(site, PAGES)
    login = Login(site)
    return [
        Mount("/static", StaticFiles(directory=STATIC)),
        Route("/login", login.show, methods=["GET"]),
        Route("/login", login.log_in, methods=["POST"]),
        Route("/logout", login.log_out, methods=["POST"]),
        Route("/live", endpoints.live, methods=["GET"]),
        *(Route(path, endpoints.download(find), methods=["GET"]) for path, find in DOWNLOADS.items()),
        *(Route(path, endpoints.picture(find), methods=["GET"]) for path, find in overview.PICTURES.items()),
        *(Route(action.path, endpoints.action(action), methods=["POST"]) for action in ACTIONS),
        *(Route(page.path, endpoints.page(page), methods=["GET"]) for page in PAGES),
    ]
