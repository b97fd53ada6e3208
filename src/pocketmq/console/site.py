"""What all pages share, and what a page and an action are.

    Page      a path, its template, and the coroutine that finds what the template shows
    Action    a path to POST to, and the coroutine that does it and says where to go on

Views get a `Visit`: the path's parts, the query, and who asks. They never see a cookie or a header.

Answers that are shared: what one page asked is good for a moment for everybody, and is asked once however many want it now.

    ask(key) ─┬─ known and fresh ──────────────► the same answer
              ├─ somebody is asking already ───► wait for that
              └─ otherwise ── the question ────► remembered for `good_s`

So ten browsers on a page cost the brokers what one does.

Replays: all dead letters of a group sent once more, in the background, page by page; anybody can see how far it is, and stop it.

running ──► done · stopped · failed        one of a group at a time; the last few are remembered
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
from pocketmq.console.users import KnownUsers, LoginAttempts, Session, Sessions
from pocketmq.errors import CallTimedOut, ImpossibleRequest, PocketMQError

T = TypeVar("T")

MAX_ANSWERS: Final = 1_000


class Answers:
    """By key. A failure is told to all who wait, and not remembered."""

    def __init__(self, clock: Clock, good_s: float, timeout_s: float) -> None:
        self._clock = clock
        self._good_s = good_s
        self._timeout_s = timeout_s
        self._known: dict[Hashable, tuple[float, Any]] = {}
        self._asked: dict[Hashable, asyncio.Task[Any]] = {}

    def __len__(self) -> int:
        return len(self._known)

    async def ask(
        self,
        key: Hashable,
        question: Callable[[], Awaitable[T]],
        *,
        good_s: float | None = None,
        timeout_s: float | None = None,
    ) -> T:
        """CallTimedOut when the answer takes longer than a page waits."""
        known = self._known.get(key)
        if known is not None and known[0] > self._clock.monotonic():
            answer: T = known[1]
            return answer
        task = self._asked.get(key)
        if task is None:
            asking = self._ask(key, question, good_s or self._good_s, timeout_s or self._timeout_s)
            task = self._asked[key] = asyncio.create_task(asking)
            task.add_done_callback(lambda done: self._over(key, done))
        found: T = await asyncio.shield(task)
        return found

    def forget(self) -> None:
        """Somebody changed something: what was known may be wrong now."""
        self._known.clear()

    async def _ask(self, key: Hashable, question: Callable[[], Awaitable[T]], good_s: float, timeout_s: float) -> T:
        try:
            async with asyncio.timeout(timeout_s):
                answer = await question()
        except TimeoutError as error:
            if isinstance(error, CallTimedOut):
                raise
            raise CallTimedOut(f"brokers did not answer within {timeout_s:g} s") from None
        self._known.pop(key, None)
        self._make_room()
        self._known[key] = self._clock.monotonic() + good_s, answer
        return answer

    def _make_room(self) -> None:
        """The oldest go first: those that are not good any more, and one more if there are too many."""
        now = self._clock.monotonic()
        while self._known:
            first = next(iter(self._known))
            if self._known[first][0] > now and len(self._known) < MAX_ANSWERS:
                return
            del self._known[first]

    def _over(self, key: Hashable, task: asyncio.Task[Any]) -> None:
        self._asked.pop(key, None)
        if not task.cancelled():
            task.exception()  # whoever waited was told; if all of them left, nobody needs to be


log = logging.getLogger("pocketmq.console")

AT_ONCE: Final = 64
"""Letters that are read and sent before it is looked whether to go on."""
MAX_REMEMBERED: Final = 50
MAX_REASONS: Final = 5


class ReplayState(StrEnum):
    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"


class Replay:
    """One of them. `total` is what was there when it began: what dies later is not sent."""

    def __init__(self, number: int, group: str, topic: str | None, total: int, started_ms: int) -> None:
        self.number = number
        self.group = group
        self.topic = topic
        self.total = total
        self.started_ms = started_ms
        self.sent = 0
        self.failed = 0
        self.reasons: list[str] = []
        """Why some could not be sent; the first few."""
        self.state = ReplayState.RUNNING
        self.problem = ""
        self.task: asyncio.Task[None] | None = None

    @property
    def handled(self) -> int:
        return self.sent + self.failed


class Replays:
    """Those that run, and the last that ran."""

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
        """ImpossibleRequest while one of this group runs: letters would be sent twice."""
        if any(replay.state is ReplayState.RUNNING for replay in self.of_group(group)):
            raise ImpossibleRequest(f"dead letters of {group} are being sent already; wait, or stop that first")
        ranges = await self._admin.dead_letters.ranges(group)
        replay = Replay(self._next, group, topic, sum(end - begin for _, begin, end in ranges), self._clock.now_ms())
        self._next += 1
        self._all[replay.number] = replay
        for number in [number for number, one in self._all.items() if one.state is not ReplayState.RUNNING]:
            if len(self._all) > MAX_REMEMBERED:
                del self._all[number]
        replay.task = asyncio.create_task(self._run(replay), name=f"replay {replay.number}")
        return replay

    def end(self, number: int) -> None:
        """Stop after the letters that are under way."""
        replay = self._all.get(number)
        if replay is not None and replay.state is ReplayState.RUNNING:
            replay.state = ReplayState.STOPPED

    async def _run(self, replay: Replay) -> None:
        try:
            await self._send_all(replay)
        except PocketMQError as error:
            replay.state, replay.problem = ReplayState.FAILED, sentence(error)
            log.warning("the replay of dead letters of %s failed: %s", replay.group, error)

    async def _send_all(self, replay: Replay) -> None:
        for queue, begin, end in await self._admin.dead_letters.ranges(replay.group):
            offset = begin
            while offset < end and replay.handled < replay.total:
                if replay.state is not ReplayState.RUNNING:
                    return
                until = min(end, offset + AT_ONCE)
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
