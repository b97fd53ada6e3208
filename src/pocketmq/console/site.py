"""The parts that all pages use: pages and actions, the query cache, and replays of dead letters.

    Page      a path, its template, and the coroutine that returns the data of the template
    Action    a path for POST, and the coroutine that runs the action and returns the next page

Views get a `Visit` with the parts of the path and the query. They get no cookies or headers.

The query cache lets ten browsers on a page cost the brokers as much as one:

    get(key) ─┬─ cached and fresh ────► the cached result
              ├─ already running ─────► wait for its result
              └─ otherwise: query ────► cached for `cache_s`

A replay sends all dead letters of a group again, in the background. Every user can see its progress and stop it:

    running ──► done · stopped · failed        one per group at a time; the last few are kept
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from pocketmq.client.admin.admin import AsyncAdmin
from pocketmq.client.producer.producer import AsyncProducer
from pocketmq.client.settings import ClientOptions
from pocketmq.clock import Clock
from pocketmq.console.rendering import Templates, sentence
from pocketmq.console.settings import ConsoleSettings
from pocketmq.console.snapshot import Collector
from pocketmq.console.users import LoginAttempts, Sessions, UsersFile
from pocketmq.errors import CallTimedOut, ImpossibleRequest, PocketMQError

T = TypeVar("T")

MAX_CACHED: Final = 1_000


class QueryCache:
    """Results of queries by key. An error is raised to all waiting callers and not cached."""

    def __init__(self, clock: Clock, cache_s: float, timeout_s: float) -> None:
        self._clock = clock
        self._cache_s = cache_s
        self._timeout_s = timeout_s
        self._cached: dict[Hashable, tuple[float, Any]] = {}
        self._running: dict[Hashable, asyncio.Task[Any]] = {}

    def __len__(self) -> int:
        return len(self._cached)

    async def get(
        self,
        key: Hashable,
        query: Callable[[], Awaitable[T]],
        *,
        cache_s: float | None = None,
        timeout_s: float | None = None,
    ) -> T:
        """The result of `query`, maybe cached. CallTimedOut if it takes longer than `timeout_s`."""
        cached = self._cached.get(key)
        if cached is not None and cached[0] > self._clock.monotonic():
            result: T = cached[1]
            return result
        task = self._running.get(key)
        if task is None:
            running = self._run(key, query, cache_s or self._cache_s, timeout_s or self._timeout_s)
            task = self._running[key] = asyncio.create_task(running)
            task.add_done_callback(lambda done: self._finished(key, done))
        found: T = await asyncio.shield(task)
        return found

    def clear(self) -> None:
        """Drop everything, after a change that may make cached results wrong."""
        self._cached.clear()

    async def _run(self, key: Hashable, query: Callable[[], Awaitable[T]], cache_s: float, timeout_s: float) -> T:
        try:
            async with asyncio.timeout(timeout_s):
                answer = await query()
        except TimeoutError as error:
            if isinstance(error, CallTimedOut):
                raise
            raise CallTimedOut(f"brokers did not answer within {timeout_s:g} s") from None
        self._cached.pop(key, None)
        self._evict()
        self._cached[key] = self._clock.monotonic() + cache_s, answer
        return answer

    def _evict(self) -> None:
        """Drop expired results, and the oldest one if there are too many."""
        now = self._clock.monotonic()
        while self._cached:
            first = next(iter(self._cached))
            if self._cached[first][0] > now and len(self._cached) < MAX_CACHED:
                return
            del self._cached[first]

    def _finished(self, key: Hashable, task: asyncio.Task[Any]) -> None:
        self._running.pop(key, None)
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not log it if no caller waits any more


log = logging.getLogger("pocketmq.console")

BATCH: Final = 64
"""Dead letters that are read and sent before the next check for a stop."""
MAX_KEPT: Final = 50
MAX_REASONS: Final = 5


class ReplayState(StrEnum):
    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"


class Replay:
    """One replay. `total` counts the dead letters at its start; later ones are not sent."""

    def __init__(self, number: int, group: str, topic: str | None, total: int, started_ms: int) -> None:
        self.number = number
        self.group = group
        self.topic = topic
        self.total = total
        self.started_ms = started_ms
        self.sent = 0
        self.failed = 0
        self.reasons: list[str] = []
        """The first errors of messages that were not sent."""
        self.state = ReplayState.RUNNING
        self.problem = ""
        self.task: asyncio.Task[None] | None = None

    @property
    def processed(self) -> int:
        return self.sent + self.failed


class Replays:
    """Running replays, and the last finished ones."""

    def __init__(self, admin: AsyncAdmin, clock: Clock) -> None:
        self._admin = admin
        self._clock = clock
        self._all: dict[int, Replay] = {}
        self._next = 1

    async def stop(self) -> None:
        tasks = [replay.task for replay in self._all.values() if replay.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def of_group(self, group: str) -> list[Replay]:
        """The newest first."""
        return [replay for replay in reversed(self._all.values()) if replay.group == group]

    async def begin(self, group: str, topic: str | None) -> Replay:
        """Start a replay. ImpossibleRequest while one of this group is running, since it would send dead letters twice."""
        if any(replay.state is ReplayState.RUNNING for replay in self.of_group(group)):
            raise ImpossibleRequest(f"a replay of {group} is already running; wait for it, or stop it first")
        ranges = await self._admin.dead_letters.ranges(group)
        replay = Replay(self._next, group, topic, sum(end - begin for _, begin, end in ranges), self._clock.now_ms())
        self._next += 1
        self._all[replay.number] = replay
        for number in [number for number, one in self._all.items() if one.state is not ReplayState.RUNNING]:
            if len(self._all) > MAX_KEPT:
                del self._all[number]
        replay.task = asyncio.create_task(self._run(replay), name=f"replay {replay.number}")
        return replay

    def end(self, number: int) -> None:
        """Stop after the current batch."""
        replay = self._all.get(number)
        if replay is not None and replay.state is ReplayState.RUNNING:
            replay.state = ReplayState.STOPPED

    async def _run(self, replay: Replay) -> None:
        try:
            await self._send_all(replay)
        except PocketMQError as error:
            replay.state, replay.problem = ReplayState.FAILED, sentence(error)
            log.warning("replay of dead letters of %s failed: %s", replay.group, error)

    async def _send_all(self, replay: Replay) -> None:
        for queue, begin, end in await self._admin.dead_letters.ranges(replay.group):
            offset = begin
            while offset < end and replay.processed < replay.total:
                if replay.state is not ReplayState.RUNNING:
                    return
                until = min(end, offset + BATCH)
                letters = await self._admin.dead_letters.in_queue(replay.group, queue, offset, until)
                outcome = await self._admin.dead_letters.resend(letters, topic=replay.topic)
                replay.sent += len(outcome.sent)
                replay.failed += len(outcome.failed)
                replay.reasons = (replay.reasons + [why for _, why in outcome.failed])[:MAX_REASONS]
                offset = until
        replay.state = ReplayState.DONE


class Site(NamedTuple):
    """The parts of a running console."""

    settings: ConsoleSettings
    clock: Clock
    admin: AsyncAdmin
    producer: AsyncProducer
    collector: Collector
    cache: QueryCache
    templates: Templates
    sessions: Sessions
    attempts: LoginAttempts
    users: UsersFile
    replays: Replays
    name_servers: str
    options: ClientOptions
    """Options of clients for this cluster."""


class Visit(msgspec.Struct, frozen=True, kw_only=True):
    """A request for a page or an action."""

    path: str
    parts: Mapping[str, str]
    """The variable parts of the path."""
    query: Mapping[str, str]
    form: Mapping[str, str] = {}
    """The submitted form; a page shows it again after an error."""

    def url(self, **changes: object) -> str:
        """The URL of this page with changes in its query; an empty value removes a parameter."""
        query = {**self.query, **{name: str(value) for name, value in changes.items()}}
        kept = {name: value for name, value in query.items() if value}
        path = quote(self.path)
        return f"{path}?{urlencode(kept)}" if kept else path


View = Callable[[Site, Visit], Awaitable[Mapping[str, Any]]]
ActionFunction = Callable[[Site, Visit], Awaitable["ActionResult"]]


class Page(NamedTuple):
    """A page. `name` is that of its template; a page that is not live has no template in `templates/live`."""

    path: str
    name: str
    view: View
    section: str
    """Its entry in the menu."""
    is_live: bool = True


class ActionResult(NamedTuple):
    """The next page, and a message that it shows."""

    url: str
    text: str = ""


class Action(NamedTuple):
    """An action by POST. If it fails, the page `back` shows the form again, with the error."""

    path: str
    run: ActionFunction
    back: str
    """A path with the same parts in braces as `path`."""
