"""What all pages share, and what a page and an action are.

    Page      a path, its template, and the coroutine that finds what the template shows
    Action    a path to POST to, and the coroutine that does it and says where to go on

Views get a `Visit`: the path's parts, the query, and who asks. They never see a cookie or a header.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import msgspec

from pocketmq.client.admin import AsyncAdmin
from pocketmq.client.producer import AsyncProducer
from pocketmq.client.settings import ClientOptions
from pocketmq.clock import Clock
from pocketmq.console.answers import Answers
from pocketmq.console.known_users import KnownUsers
from pocketmq.console.login_attempts import LoginAttempts
from pocketmq.console.rendering import Templates
from pocketmq.console.replays import Replays
from pocketmq.console.sessions import Session, Sessions
from pocketmq.console.settings import ConsoleSettings
from pocketmq.console.snapshot import Collector


class Site(NamedTuple):
    """The parts of a running console."""

    settings: ConsoleSettings
    clock: Clock
    admin: AsyncAdmin
    producer: AsyncProducer
    collector: Collector
    answers: Answers
    templates: Templates
    sessions: Sessions
    attempts: LoginAttempts
    users: KnownUsers
    replays: Replays
    name_servers: str
    options: ClientOptions
    """How the cluster is talked to."""


class Visit(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody looks at a page, or wants something done."""

    path: str
    parts: Mapping[str, str]
    """The variable parts of the path."""
    query: Mapping[str, str]
    form: Mapping[str, str] = {}
    """What was sent, when it could not be done: to be shown once more."""

    def url(self, **changes: object) -> str:
        """This page with another query; an empty value leaves it out."""
        query = {**self.query, **{name: str(value) for name, value in changes.items()}}
        kept = {name: value for name, value in query.items() if value}
        path = quote(self.path)
        return f"{path}?{urlencode(kept)}" if kept else path


View = Callable[[Site, Visit], Awaitable[Mapping[str, Any]]]
Deed = Callable[[Site, Visit, Session], Awaitable["Done"]]


class Page(NamedTuple):
    """`name` is that of its template. A page that is not live has no part in `templates/live`."""

    path: str
    name: str
    view: View
    section: str
    """The entry of the menu that it belongs to."""
    is_live: bool = True


class Done(NamedTuple):
    """Where to go on, and what to say there."""

    url: str
    words: str = ""


class Action(NamedTuple):
    """Something to be done by POST. When it fails, `back` is the page that is shown again, with what was wrong."""

    path: str
    do: Deed
    back: str
    """A path, with parts in braces as in `path`."""
