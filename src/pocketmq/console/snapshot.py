"""What the console knows of the cluster: one picture, asked by one collector, looked at by all pages and browsers.

    part       asked when watched   how                                        when it is large
    brokers    every 2 s            one question to each broker                –
    lags       every 5 s            two to each broker, for all groups         rests 40 times as long as it took,
    tables     every 10 s           two to each broker: topics, groups           as do all of these
    times      every 10 s           one for each of the groups furthest behind   30 of them
    letters    every 10 s           some for each group with dead letters
    members    every 10 s           one for each group and broker

Brokers of PocketMQ count how often topics, groups and members changed: tables and members are not asked for again without a change.
While nobody watches, only the brokers are asked, and the lags, every 15 s, so that the charts go on. A part that cannot be asked keeps what was
known, and says why in `problems`; `brokers` cannot be asked means that the cluster does not answer: pages turn grey.

What need not be asked again: brokers of PocketMQ count how often topics, groups and members of groups changed.

    the same numbers as before the last question ──► what is known is true still
    another number, another broker, a new start  ──► ask
    a broker that does not count: Apache's       ──► ask

The numbers come with what brokers say about themselves, which is asked all the time and costs nearly nothing.

The last hour in memory: a sample every few seconds, the oldest forgotten. Charts are drawn from it.

    append ──► │ s │ s │ s │ … │ s │ ──► older than an hour: gone

What was unknown at a moment is None there, and a gap in the chart: never 0.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Final, NamedTuple, Self

import msgspec
from msgspec.structs import replace

from pocketmq.client.admin.admin import AsyncAdmin
from pocketmq.client.admin.cluster import BrokerState
from pocketmq.client.admin.groups import Member
from pocketmq.client.admin.lag import GroupLag
from pocketmq.client.admin.reach import BrokerPlace
from pocketmq.clock import Clock
from pocketmq.console.group_progress import GroupProgress, ProgressSampler, ProgressTracker
from pocketmq.console.rendering import ordinary_topics, sentence
from pocketmq.console.settings import ConsoleSettings
from pocketmq.errors import NoPermission, PocketMQError, RequestNotSupported
from pocketmq.model.names import is_internal_group, is_system_group
from pocketmq.protocol.bodies.clients import ProducerInfo
from pocketmq.protocol.bodies.groups import SubscriptionGroupConfig
from pocketmq.protocol.bodies.topics import TopicConfig

Changes = Mapping[BrokerPlace, tuple[int | None, ...]]
"""When each master booted, and how often it has counted a change of something since."""


def counted(brokers: Iterable[BrokerState], *what: str) -> Changes | None:
    """How often each of `what`, words of `COUNTED`, changed at all masters; None where one of them does not count."""
    masters = [state for state in brokers if state.place.is_master]
    if not masters or not all(state.changes.keys() >= set(what) for state in masters):
        return None
    return {state.place: (state.booted_ms, *(state.changes[one] for one in what)) for state in masters}


SPAN_S: Final = 3_600.0
MAX_SAMPLES: Final = 3_600
"""Whatever the interval is."""


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster at one moment."""

    at: float
    """By the monotonic clock, in seconds."""
    put_per_s: float | None = None
    got_per_s: float | None = None
    lag: int | None = None
    """Of all groups whose lag is known, in messages."""
    disk_used: float | None = None
    """Of the fullest disk, from 0 to 1."""
    refused_per_s: float | None = None


class Ring:
    """Samples of the last hour, oldest first."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque(maxlen=MAX_SAMPLES)

    def __len__(self) -> int:
        return len(self._samples)

    def append(self, sample: Sample) -> None:
        self._samples.append(sample)
        while self._samples[0].at < sample.at - SPAN_S:
            self._samples.popleft()

    def samples(self) -> Sequence[Sample]:
        return tuple(self._samples)


log = logging.getLogger("pocketmq.console")

TIMED_GROUPS: Final = 30
"""Groups whose lag in time is looked up in advance, the furthest behind first."""
LOOKED_AT_S: Final = 15.0
"""So long after a page was loaded somebody is taken to watch, without a stream of changes, too."""
_WATCHED_ONLY: Final = frozenset({"tables", "times", "letters", "members"})
_NO_TOPICS: Final[Mapping[str, Mapping[str, TopicConfig]]] = {}
_NO_GROUPS: Final[Mapping[str, Mapping[str, SubscriptionGroupConfig]]] = {}


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster as it was last seen. Parts that were never seen are empty, and not in `seen_ms`."""

    number: int = 0
    """Of this picture: it grows."""
    seen_ms: Mapping[str, int] = {}
    """When each part was last seen."""
    problems: Mapping[str, str] = {}
    """Why a part cannot be asked now."""
    refused: frozenset[str] = frozenset()
    """Those of them that servers answer with NO_PERMISSION."""
    brokers: tuple[BrokerState, ...] = ()
    topics: Mapping[str, Mapping[str, TopicConfig]] = _NO_TOPICS
    ordinary: tuple[str, ...] = ()
    """Those of the topics that people made, sorted."""
    groups: Mapping[str, Mapping[str, SubscriptionGroupConfig]] = _NO_GROUPS
    lags: Mapping[str, GroupLag] = {}
    """In messages."""
    behind: Mapping[str, int] = {}
    """The same as one number for each group that is behind, most first. Internal groups, and those whose lag is unknown, are not here."""
    times: Mapping[str, GroupLag] = {}
    """The same in time too, of those that are furthest behind."""
    group_progress: Mapping[str, GroupProgress] = {}
    letters: Mapping[str, int] = {}
    members: Mapping[str, tuple[Member, ...]] = {}
    producers: Mapping[str, list[ProducerInfo]] | None = None
    """None where brokers cannot tell: RocketMQ 4.9."""

    @property
    def problem(self) -> str:
        """Why the cluster does not answer at all; empty when it does."""
        silent = [state for state in self.brokers if state.problem]
        if "brokers" in self.problems:
            return self.problems["brokers"]
        if "brokers" in self.seen_ms and not self.brokers:
            return "No broker is registered at the name servers."
        if silent and len(silent) == len(self.brokers):
            return silent[0].problem
        return ""

    @property
    def is_refused(self) -> bool:
        """The servers answer, and the account of this console may not ask for the brokers."""
        return "brokers" in self.refused

    @property
    def lag_messages(self) -> int | None:
        """Of all groups whose lag is known; None before anything is."""
        if "lags" not in self.seen_ms:
            return None
        return sum(self.behind.values())

    @property
    def refusals(self) -> dict[str, int]:
        """How many requests brokers refused since they started, by cause; causes that never happened are left out."""
        found: dict[str, int] = {}
        for state in self.brokers:
            for name, text in state.runtime.items():
                if name.startswith("refused") and text.isdigit() and int(text):
                    found[name.removeprefix("refused")] = found.get(name.removeprefix("refused"), 0) + int(text)
        return dict(sorted(found.items(), key=lambda pair: -pair[1]))


class _Part(NamedTuple):
    name: str
    every_s: float
    ask: Callable[[], Awaitable[Mapping[str, Any]]]
    needs: str = ""
    """The part that it looks at: there is nothing to ask before that is seen."""


class Collector:
    """Asks in the background. `watched` counts who looks; `changed` wakes whoever waits for the next picture."""

    def __init__(self, admin: AsyncAdmin, clock: Clock, settings: ConsoleSettings) -> None:
        self._admin = admin
        self._clock = clock
        self._settings = settings
        self._progress = ProgressTracker()
        self.pace = ProgressSampler(admin, clock, settings.rest_factor)
        self._tasks: list[asyncio.Task[None]] = []
        self._hurry: dict[str, asyncio.Event] = {}
        self.changed = asyncio.Condition()
        self.ring = Ring()
        self.snapshot = Snapshot()
        self.watched = 0
        self._looked_at = -LOOKED_AT_S
        self._changes: dict[str, Changes | None] = {}
        """By part, as brokers counted before it was asked for."""
        watched_s = settings.watched_s
        self._parts = (
            _Part("brokers", watched_s, self._brokers),
            _Part("tables", watched_s * 5, self._tables),
            _Part("lags", watched_s * 2.5, self._lags),
            _Part("times", watched_s * 5, self._times, needs="lags"),
            _Part("letters", watched_s * 5, self._letters),
            _Part("members", watched_s * 5, self._members, needs="tables"),
        )

    async def __aenter__(self) -> Self:
        self._hurry = {part.name: asyncio.Event() for part in self._parts}
        self._tasks = [asyncio.create_task(self._repeat(part), name=f"console {part.name}") for part in self._parts]
        self._tasks.append(asyncio.create_task(self.pace.run(self._see_closely), name="console pace"))
        return self

    async def __aexit__(self, *exc: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def hurry(self) -> None:
        """Somebody changed something, or came to look: ask again soon."""
        for event in self._hurry.values():
            event.set()

    def looked_at(self) -> None:
        """Somebody looks at a page, maybe with a browser that is not kept up to date: let what it shows next be new."""
        if not self._is_watched:
            self.hurry()
        self._looked_at = self._clock.monotonic()

    @property
    def _is_watched(self) -> bool:
        return self.watched > 0 or self._clock.monotonic() - self._looked_at < LOOKED_AT_S

    async def ask_now(self, *names: str) -> None:
        """These parts, at once: for who changed something and must see it."""
        for part in self._parts:
            if part.name in names:
                self._changes.pop(part.name, None)  # what brokers counted is from before
                await self._ask(part)

    async def next_after(self, number: int) -> Snapshot:
        """The first picture that is newer than this one."""
        async with self.changed:
            await self.changed.wait_for(lambda: self.snapshot.number > number)
        return self.snapshot

    async def _repeat(self, part: _Part) -> None:
        async with self.changed:
            await self.changed.wait_for(lambda: not part.needs or part.needs in self.snapshot.seen_ms)
        while True:
            if self._is_watched or part.name not in _WATCHED_ONLY or part.name not in self.snapshot.seen_ms:
                started = self._clock.monotonic()
                await self._ask(part)
                took_s = self._clock.monotonic() - started
            else:
                took_s = 0.0
            every_s = part.every_s if self._is_watched else max(part.every_s, self._settings.unwatched_s)
            await self._rest(part, max(every_s, took_s * self._settings.rest_factor), took_s)

    async def _rest(self, part: _Part, rest_s: float, took_s: float) -> None:
        """As long as told; not as long when somebody is in a hurry, unless it is a question that took long."""
        hurry = self._hurry[part.name]
        least_s = took_s * self._settings.rest_factor / 4
        hurry.clear()
        await asyncio.sleep(least_s)
        with suppress(TimeoutError):
            async with asyncio.timeout(rest_s - least_s):
                await hurry.wait()

    async def _ask(self, part: _Part) -> None:
        known = self.snapshot
        try:
            found = dict(await part.ask())
        except PocketMQError as error:
            if part.name not in known.problems:
                log.warning("%s cannot be asked: %s", part.name, error)
            found = {"problems": {**self.snapshot.problems, part.name: sentence(error)}}
            is_refused = isinstance(error, NoPermission)
        else:
            is_refused = False
            found["problems"] = {name: why for name, why in self.snapshot.problems.items() if name != part.name}
            found["seen_ms"] = {**self.snapshot.seen_ms, part.name: self._clock.now_ms()}
        others = self.snapshot.refused - {part.name}
        found["refused"] = others | {part.name} if is_refused else others
        before, self.snapshot = self.snapshot, replace(self.snapshot, number=self.snapshot.number + 1, **found)
        if part.name == "brokers":
            self._sample(before)
        async with self.changed:
            self.changed.notify_all()

    def _see_closely(self, found: Mapping[str, GroupLag], asked_at: float) -> None:
        """Some groups between two looks at all: no new picture, which would wake everybody, but truer."""
        known = self.snapshot
        self._progress.note_some(found, asked_at, self._clock.now_ms())
        self.snapshot = replace(
            known, lags={**known.lags, **found}, times={**known.times, **found}, group_progress=self._progress.all()
        )

    def _sample(self, before: Snapshot) -> None:
        """A point of the charts. What nobody could be asked about is a gap."""
        now, at = self.snapshot, self._clock.monotonic()
        if "brokers" in now.problems:
            self.ring.append(Sample(at=at))
            return
        earlier = self.ring.samples()
        since_s = at - earlier[-1].at if earlier else 0
        refused = sum(now.refusals.values()) - sum(before.refusals.values())
        self.ring.append(
            Sample(
                at=at,
                put_per_s=_sum([state.put_per_s for state in now.brokers]),
                got_per_s=_sum([state.got_per_s for state in now.brokers]),
                lag=now.lag_messages,
                disk_used=max((state.disk_used for state in now.brokers if state.disk_used is not None), default=None),
                refused_per_s=max(0, refused) / since_s if since_s > 0 else None,
            )
        )

    # the parts

    async def _brokers(self) -> Mapping[str, Any]:
        return {"brokers": tuple(await self._admin.cluster.describe())}

    async def _tables(self) -> Mapping[str, Any]:
        changes = counted(self.snapshot.brokers, "topic", "group")
        if changes is not None and changes == self._changes.get("tables"):
            return {}
        topics, groups = await self._admin.topics.configs(), await self._admin.groups.configs()
        ordinary = ordinary_topics(topics, await self._admin.cluster.brokers())
        self._changes["tables"] = changes
        return {"topics": topics, "ordinary": ordinary, "groups": groups}

    async def _lags(self) -> Mapping[str, Any]:
        asked_at = self._clock.monotonic()
        lags = {lag.group: lag for lag in await self._admin.offsets.all_lags() if not is_system_group(lag.group)}
        self._progress.note(lags, asked_at, self._clock.now_ms())
        shown = ((group, lag) for group, lag in lags.items() if not is_internal_group(group))
        behind = {group: many for group, lag in shown if (many := lag.messages)}
        sorted_behind = dict(sorted(behind.items(), key=lambda pair: -pair[1]))
        return {"lags": lags, "behind": sorted_behind, "group_progress": self._progress.all()}

    async def _times(self) -> Mapping[str, Any]:
        furthest = islice(self.snapshot.behind, TIMED_GROUPS)
        return {"times": {group: await self._admin.offsets.lag(group) for group in furthest}}

    async def _letters(self) -> Mapping[str, Any]:
        return {"letters": await self._admin.dead_letters.counts()}

    async def _members(self) -> Mapping[str, Any]:
        """Of groups that are new, where brokers count changes and there was none; else of all."""
        names = [group for group in self.snapshot.groups if not is_system_group(group)]
        changes = counted(self.snapshot.brokers, "member")
        known = self.snapshot.members if changes is not None and changes == self._changes.get("members") else {}
        found = await self._admin.groups.members_of_many([group for group in names if group not in known])
        members = {group: known[group] if group in known else tuple(found[group]) for group in names}
        self._changes["members"] = changes
        try:
            producers = await self._admin.cluster.all_producers()
        except RequestNotSupported:
            return {"members": members}
        return {"members": members, "producers": producers}


def _sum(values: list[float | None]) -> float | None:
    """Of those that are known."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None
