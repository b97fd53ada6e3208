"""HTTP requests to pages and actions, and login.

    GET  page     session ── view ── template ──► 200;  PocketMQError ──► the page in grey, with the error
    GET  /live    the live part of a page after every new snapshot; rendered once for all browsers
    POST action   session ── token ── permission ── run ──► 303 to the next page;  UsageError ──► the form again, with the error

A password check takes 0.1 s of CPU time, so it runs in a thread.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import compile_path

from pocketmq.console.rendering import sentence
from pocketmq.console.site import Action, Page, Site, Visit
from pocketmq.console.users import COOKIE, Role, Session, hash_password, matches
from pocketmq.errors import GroupNotFound, NoPermission, NotFound, PocketMQError, RemoteError, TopicNotFound, UsageError

log = logging.getLogger("pocketmq.console")

KEEP_ALIVE_S = 15.0
MAX_FIELDS = 1_000

Endpoint = Callable[[Request], Coroutine[Any, Any, Response]]


class SessionCookies:
    """Finds the session of a request, or starts one if no login is required."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def session(self, request: Request) -> Session | None:
        found = self._site.sessions.find(request.cookies.get(COOKIE))
        if found is None and not self._site.users.is_login_needed:
            return self._site.sessions.begin(None)
        return found

    def set(self, response: Response, session: Session, request: Request) -> None:
        """Set the cookie of a session that the browser does not have yet."""
        if request.cookies.get(COOKIE) != session.session_id:
            is_tls = self._site.settings.tls_cert is not None
            response.set_cookie(COOKIE, session.session_id, httponly=True, samesite="strict", secure=is_tls)

    def may_change(self, session: Session) -> bool:
        return session.role is Role.OPERATOR and not self._site.settings.read_only


class Endpoints:
    """Creates the functions for the routes."""

    def __init__(self, site: Site, pages: Sequence[Page]) -> None:
        self._site = site
        self._cookies = SessionCookies(site)
        self._pages = [(compile_path(page.path)[0], page) for page in pages]
        self._streams = 0

    # pages

    def page(self, page: Page) -> Endpoint:
        async def show(request: Request) -> Response:
            session = self._cookies.session(request)
            if session is None:
                return RedirectResponse(f"/login?next={quote(_local_url(request))}", 303)
            self._site.collector.page_loaded()
            visit = Visit(path=request.url.path, parts=request.path_params, query=dict(request.query_params))
            return await self._shown(page, visit, session, request)

        return show

    async def _shown(
        self, page: Page, visit: Visit, session: Session, request: Request, *, error: str = "", status: int = 200
    ) -> Response:
        data = await self._data(page, visit, session)
        status = status if status != 200 else data["status"]
        data |= {
            "error": error,
            "note": self._site.sessions.pop_message(session) if not error else "",
            "token": self._site.sessions.token(session),
            "user": session.name,
            "live_at": _local_url(request) if page.is_live and request.method == "GET" else "",
        }
        # If the view failed, there is no data for the template of the page.
        name = page.name if data["is_known"] else "unknown"
        response = HTMLResponse(self._site.templates.page(name, data), status)
        self._cookies.set(response, session, request)
        return response

    async def _data(self, page: Page, visit: Visit, session: Session) -> dict[str, Any]:
        """The data of all templates and of the view, or the error of the view."""
        snapshot = self._site.collector.snapshot
        data: dict[str, Any] = {
            "visit": visit,
            "form": visit.form,
            "section": page.section,
            "page_name": page.name,
            "cluster": self._site.name_servers,
            "snapshot": snapshot,
            "may_change": self._cookies.may_change(session),
            "read_only": self._site.settings.read_only,
            "now_ms": self._site.clock.now_ms(),
            "is_known": True,
            "status": 200,
            "problem": snapshot.problem,
        }
        try:
            return data | dict(await page.view(self._site, visit))
        except PocketMQError as error:
            status = _status_of(error)
            # Without a broker every query fails, which does not mean that the topic or group does not exist.
            if snapshot.problem and status in (400, 404):
                return data | {"is_known": False, "problem": snapshot.problem, "status": 503}
            return data | {"is_known": False, "problem": sentence(error), "status": status}

    def download(self, find: Callable[[Site, Visit], Awaitable[bytes]]) -> Endpoint:
        """A whole body, with a content type that no browser renders."""
        return self._file(find, "application/octet-stream", {"content-disposition": 'attachment; filename="body.bin"'})

    def picture(self, find: Callable[[Site, Visit], Awaitable[bytes]]) -> Endpoint:
        """An SVG, which browsers must not cache. The content security policy prevents scripts in it."""
        return self._file(find, "image/svg+xml", {"cache-control": "no-cache"})

    def _file(
        self, find: Callable[[Site, Visit], Awaitable[bytes]], media_type: str, headers: Mapping[str, str]
    ) -> Endpoint:
        async def send(request: Request) -> Response:
            if self._cookies.session(request) is None:
                return PlainTextResponse("no session", 401)
            visit = Visit(path=request.url.path, parts=request.path_params, query={})
            try:
                body = await find(self._site, visit)
            except PocketMQError as error:
                return PlainTextResponse(sentence(error), 404)
            return Response(body, media_type=media_type, headers=headers)

        return send

    # live updates

    async def live(self, request: Request) -> Response:
        session = self._cookies.session(request)
        url = urlsplit(request.query_params.get("at", ""))
        path = unquote(url.path)
        found = self._find(path)
        if session is None or found is None or not found[0].is_live:
            return PlainTextResponse("no such page, or no session", 404 if session else 401)
        if self._streams >= self._site.settings.max_streams:
            return PlainTextResponse("too many open live pages; try again later", 503)
        page, parts = found
        visit = Visit(path=path, parts=parts, query=dict(parse_qsl(url.query)))
        return StreamingResponse(self._stream(page, visit, session), media_type="text/event-stream")

    def _find(self, path: str) -> tuple[Page, dict[str, str]] | None:
        for pattern, page in self._pages:
            if match := pattern.match(path):
                return page, match.groupdict()
        return None

    async def _stream(self, page: Page, visit: Visit, session: Session) -> AsyncIterator[str]:
        collector = self._site.collector
        collector.page_loaded()
        collector.watched += 1
        self._streams += 1
        shown, number = "", collector.snapshot.number
        try:
            yield "retry: 3000\n\n"
            while self._site.sessions.find(session.session_id) is not None:
                html = await self._live_part(page, visit, session)
                if html != shown:
                    shown = html
                    yield f"event: live\ndata: {msgspec.json.encode(html).decode()}\n\n"
                else:
                    yield ": still here\n\n"
                await asyncio.sleep(self._site.settings.watched_s)
                number = await self._next_number(number)
        finally:
            collector.watched -= 1
            self._streams -= 1

    async def _next_number(self, number: int) -> int:
        try:
            async with asyncio.timeout(KEEP_ALIVE_S):
                return (await self._site.collector.next_after(number)).number
        except TimeoutError:
            return number

    async def _live_part(self, page: Page, visit: Visit, session: Session) -> str:
        """The live part of a page, rendered once per snapshot for all browsers."""

        async def render() -> str:
            data = await self._data(page, visit, session)
            if data["is_known"]:
                return self._site.templates.live(page.name, data)
            return self._site.templates.live("unknown", data)

        key = ("live", visit.url(), self._cookies.may_change(session), self._site.collector.snapshot.number)
        return await self._site.cache.get(key, render)

    # actions

    def action(self, action: Action) -> Endpoint:
        async def post(request: Request) -> Response:
            session = self._cookies.session(request)
            if session is None:
                return RedirectResponse("/login", 303)
            form = await read_form(request, self._site.settings.form_bytes)
            if refusal := self._refusal(request, session, form):
                return PlainTextResponse(refusal, 403)
            visit = Visit(path=request.url.path, parts=request.path_params, query={}, form=form)
            try:
                done = await action.run(self._site, visit)
            except PocketMQError as error:
                return await self._shown_again(action, visit, session, request, error)
            log.info("%s: %s %s", session.name or "local user", visit.path, done.text)
            self._site.cache.clear()
            self._site.sessions.set_message(session, done.text)
            return RedirectResponse(done.url, 303)

        return post

    def _refusal(self, request: Request, session: Session, form: dict[str, str]) -> str:
        """Why the action is not allowed; empty if it is."""
        if not is_same_origin(request) or not self._site.sessions.is_token(session, form.get("token", "")):
            return "The form is not from this console, or the session has expired. Reload the page."
        if not self._cookies.may_change(session):
            return "This console is read-only." if self._site.settings.read_only else "Viewers cannot change anything."
        return ""

    async def _shown_again(
        self, action: Action, visit: Visit, session: Session, request: Request, error: PocketMQError
    ) -> Response:
        path = action.back.format_map(visit.parts)
        found = self._find(path)
        assert found is not None, "every action has a page"
        page, _ = found
        again = Visit(path=path, parts=visit.parts, query={}, form=visit.form)
        status = 400 if isinstance(error, UsageError | RemoteError) else 503
        return await self._shown(page, again, session, request, error=sentence(error), status=status)


def _status_of(error: PocketMQError) -> int:
    if isinstance(error, NotFound | TopicNotFound | GroupNotFound):
        return 404
    if isinstance(error, NoPermission):
        return 403
    return 400 if isinstance(error, UsageError) else 503


async def read_form(request: Request, most_bytes: int) -> dict[str, str]:
    """The fields of a form. If a field comes twice, the last one counts. HTTPException answers a form that cannot be read."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > most_bytes:
            raise HTTPException(413, f"The form is larger than {most_bytes:,} bytes.")
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MAX_FIELDS)
    except ValueError as error:
        raise HTTPException(400, f"The form cannot be read: {error}.") from error
    return {name: value.replace("\r\n", "\n") for name, value in pairs}


def is_same_origin(request: Request) -> bool:
    """Whether the form is from a page of this console. Without an Origin header, the token decides."""
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
        return False
    return request.headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")


def _local_url(request: Request) -> str:
    path, query = quote(request.url.path), request.url.query
    return f"{path}?{query}" if query else path


LOGIN_FORM_BYTES = 16 * 1024


class Login:
    """The login page. Without a users file, it redirects to the overview."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._cookies = SessionCookies(site)
        self._unknown_user = hash_password("no user has this password") if site.users.is_login_needed else ""
        """Checked for unknown users, so that a wrong name takes as long as a wrong password."""

    async def show(self, request: Request) -> Response:
        if not self._site.users.is_login_needed:
            return RedirectResponse("/", 303)
        return self._page(request.query_params.get("next", "/"))

    async def log_in(self, request: Request) -> Response:
        if not self._site.users.is_login_needed:
            return RedirectResponse("/", 303)
        form = await read_form(request, LOGIN_FORM_BYTES)
        host = request.client.host if request.client else ""
        name, target = form.get("name", ""), form.get("next", "/")
        if not is_same_origin(request):
            return PlainTextResponse("The form is not from this console.", 403)
        attempt = self._site.attempts.begin(host, name)
        if attempt is None:
            return self._page(target, "Too many failed logins. Wait a minute.", 429)
        async with self._site.attempts.turn(attempt):
            user = self._site.users.find(name)
            secret = user.secret if user is not None else self._unknown_user
            is_right = await asyncio.to_thread(matches, secret, form.get("password", ""))
            attempt.is_right = is_right and user is not None
        if user is None or not is_right:
            log.warning("login from %s failed", host)
            return self._page(target, "Wrong name or password.", 403)
        session = self._site.sessions.begin(user)
        log.info("%s logged in from %s", user.name, host)
        response = RedirectResponse(local_target(target), 303)
        self._cookies.set(response, session, request)
        return response

    async def log_out(self, request: Request) -> Response:
        session = self._site.sessions.find(request.cookies.get(COOKIE))
        form = await read_form(request, LOGIN_FORM_BYTES)
        if session is not None and self._site.sessions.is_token(session, form.get("token", "")):
            self._site.sessions.end(session)
        response = RedirectResponse("/login", 303)
        response.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return response

    def _page(self, target: str, error: str = "", status: int = 200) -> Response:
        data = {"error": error, "next": local_target(target), "cluster": self._site.name_servers}
        return HTMLResponse(self._site.templates.page("login", data), status)


def local_target(target: str) -> str:
    """A path of this console: `//host` would redirect to another host."""
    return target if target.startswith("/") and not target.startswith(("//", "/\\")) else "/"
