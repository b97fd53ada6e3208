"""The application: which path leads to which page, and what lives as long as it does.

What stands before every page: the name that the browser called us by, and the headers that keep others out.

    Host is an address, localhost or a name we were told ──► the page
            anything else: a name of somebody who points it at us (DNS rebinding) ──► 421

The content policy allows our own files and nothing else: no inline script or style, no frame, no other host.
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
from pocketmq.console.pages import cluster, groups, letters, messages, overview, topics, waiting
from pocketmq.console.rendering import Templates
from pocketmq.console.settings import ConsoleSettings
from pocketmq.console.site import Action, Answers, Page, Replays, Site
from pocketmq.console.snapshot import Collector
from pocketmq.console.users import KnownUsers, LoginAttempts, Sessions
from pocketmq.errors import InvalidSetting
from pocketmq.files import DiskFiles
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


log = logging.getLogger("pocketmq.console")

BROKERS_GOOD_MS: Final = 1_000
"""How long the console believes a name server's list of brokers: one page may ask brokers a hundred questions."""
STATIC: Final = Path(__file__).parent / "static"
SECTIONS: Final = (overview, topics, messages, groups, letters, waiting, cluster)
PAGES: Final[list[Page]] = [page for section in SECTIONS for page in section.PAGES]
ACTIONS: Final[list[Action]] = [
    action for section in (topics, groups, letters, waiting, cluster) for action in section.ACTIONS
]
DOWNLOADS: Final = {**messages.DOWNLOADS, **letters.DOWNLOADS}


def make_app(
    settings: ConsoleSettings, name_servers: str, options: ClientOptions, clock: Clock | None = None
) -> Starlette:
    """An ASGI application that asks this cluster; it begins to when it is started."""
    site = _site(settings, name_servers, options, clock or SystemClock())
    return Starlette(
        routes=_routes(site),
        middleware=[Middleware(Guard, is_loopback=settings.address.is_loopback, allowed_hosts=settings.allowed_hosts)],
        exception_handlers={404: _no_such_page, 405: _no_such_page, 500: _failed},
        lifespan=lambda _: _alive(site),
    )


async def _no_such_page(request: Request, _: Exception) -> Response:
    """For addresses that somebody typed: what is not there of the cluster has a page that says so."""
    return PlainTextResponse(f"The console has no page {request.url.path}. It begins at /", 404)


async def _failed(request: Request, error: Exception) -> Response:
    """For faults of the console itself. Starlette raises the error again, and uvicorn logs it."""
    log.error("the console failed to make %s: %s: %s", request.url.path, type(error).__name__, error)
    text = f"The console failed to make {request.url.path}. Its log says why; other pages still work: /"
    return PlainTextResponse(text, 500, headers=HEADERS)


def _site(settings: ConsoleSettings, name_servers: str, options: ClientOptions, clock: Clock) -> Site:
    admin = AsyncAdmin(name_servers, brokers_good_ms=BROKERS_GOOD_MS, decompress=False, **options)
    users = KnownUsers(DiskFiles(), settings.users, clock)
    return Site(
        settings=settings,
        clock=clock,
        admin=admin,
        producer=AsyncProducer(name_servers, **options),
        collector=Collector(admin, clock, settings),
        answers=Answers(clock, settings.answer_s, settings.page_timeout_s),
        templates=Templates(),
        sessions=Sessions(clock, settings.session_s, settings.max_sessions, users.has),
        attempts=LoginAttempts(clock, settings.max_login_failures),
        users=users,
        replays=Replays(admin, clock),
        name_servers=name_servers,
        options=options,
    )


@asynccontextmanager
async def _alive(site: Site) -> AsyncIterator[None]:
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
        Route("/login", login.enter, methods=["POST"]),
        Route("/logout", login.leave, methods=["POST"]),
        Route("/live", endpoints.live, methods=["GET"]),
        *(Route(path, endpoints.download(find), methods=["GET"]) for path, find in DOWNLOADS.items()),
        *(Route(path, endpoints.picture(find), methods=["GET"]) for path, find in overview.PICTURES.items()),
        *(Route(action.path, endpoints.action(action), methods=["POST"]) for action in ACTIONS),
        *(Route(page.path, endpoints.page(page), methods=["GET"]) for page in PAGES),
    ]
