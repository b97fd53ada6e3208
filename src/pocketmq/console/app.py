"""The application: which path leads to which page, and what lives as long as it does."""

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from pocketmq.client.admin import AsyncAdmin
from pocketmq.client.producer import AsyncProducer
from pocketmq.client.settings import ClientOptions
from pocketmq.clock import Clock, SystemClock
from pocketmq.console.answers import Answers
from pocketmq.console.endpoints import Endpoints
from pocketmq.console.guard import HEADERS, Guard
from pocketmq.console.known_users import KnownUsers
from pocketmq.console.login import Login
from pocketmq.console.login_attempts import LoginAttempts
from pocketmq.console.pages import (
    brokers,
    clients,
    doctor,
    groups,
    letters,
    messages,
    overview,
    picture,
    pipelines,
    topics,
    waiting,
)
from pocketmq.console.rendering import Templates
from pocketmq.console.replays import Replays
from pocketmq.console.sessions import Sessions
from pocketmq.console.settings import ConsoleSettings
from pocketmq.console.site import Action, Page, Site
from pocketmq.console.snapshot import Collector
from pocketmq.files import DiskFiles

log = logging.getLogger("pocketmq.console")

BROKERS_GOOD_MS: Final = 1_000
"""How long the console believes a name server's list of brokers: one page may ask brokers a hundred questions."""
STATIC: Final = Path(__file__).parent / "static"
ROOMS: Final = (overview, topics, messages, groups, letters, waiting, clients, brokers, pipelines, doctor)
PAGES: Final[list[Page]] = [page for room in ROOMS for page in room.PAGES]
ACTIONS: Final[list[Action]] = [
    *(action for room in (topics, groups, letters, waiting, brokers) for action in room.ACTIONS)
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
        *(Route(path, endpoints.picture(find), methods=["GET"]) for path, find in picture.PICTURES.items()),
        *(Route(action.path, endpoints.action(action), methods=["POST"]) for action in ACTIONS),
        *(Route(page.path, endpoints.page(page), methods=["GET"]) for page in PAGES),
    ]
