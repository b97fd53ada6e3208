"""Logging in and out. Checking a password takes a tenth of a second of a processor, so it is done beside the loop."""

import asyncio
import logging

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

from pocketmq.console.endpoints import Door, is_same_origin, read_form
from pocketmq.console.sessions import COOKIE
from pocketmq.console.site import Site
from pocketmq.console.users_file import hashed, matches

log = logging.getLogger("pocketmq.console")

LOGIN_FORM_BYTES = 16 * 1024


class Login:
    """The page and what it sends. Where nobody is asked, it leads to the overview."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._door = Door(site)
        self._nobody = hashed("nobody has this password") if site.users.is_login_needed else ""
        """Checked for users that do not exist, so that a wrong name takes as long as a wrong password."""

    async def show(self, request: Request) -> Response:
        if not self._site.users.is_login_needed:
            return RedirectResponse("/", 303)
        return self._page(request.query_params.get("next", "/"))

    async def enter(self, request: Request) -> Response:
        form = await read_form(request, LOGIN_FORM_BYTES)
        host = request.client.host if request.client else ""
        name, goal = form.get("name", ""), form.get("next", "/")
        if not is_same_origin(request):
            return PlainTextResponse("This form did not come from a page of this console.", 403)
        attempt = self._site.attempts.begin(host, name)
        if attempt is None:
            return self._page(goal, "Too many attempts that failed. Wait a minute.", 429)
        async with self._site.attempts.turn(attempt):
            user = self._site.users.find(name)
            secret = user.secret if user is not None else self._nobody
            is_right = await asyncio.to_thread(matches, secret, form.get("password", ""))
            attempt.is_right = is_right and user is not None
        if user is None or not is_right:
            log.warning("a login from %s failed", host)
            return self._page(goal, "No user has this name and password.", 403)
        session = self._site.sessions.begin(user)
        log.info("%s logged in from %s", user.name, host)
        response = RedirectResponse(safe_goal(goal), 303)
        self._door.keep(response, session, request)
        return response

    async def leave(self, request: Request) -> Response:
        session = self._site.sessions.find(request.cookies.get(COOKIE))
        form = await read_form(request, LOGIN_FORM_BYTES)
        if session is not None and self._site.sessions.is_token(session, form.get("token", "")):
            self._site.sessions.end(session)
        response = RedirectResponse("/login", 303)
        response.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return response

    def _page(self, goal: str, error: str = "", status: int = 200) -> Response:
        data = {"error": error, "next": safe_goal(goal), "cluster": self._site.name_servers}
        return HTMLResponse(self._site.templates.page("login", data), status)


def safe_goal(goal: str) -> str:
    """A page of ours, and nobody else's: `//host` would lead away."""
    return goal if goal.startswith("/") and not goal.startswith(("//", "/\\")) else "/"
