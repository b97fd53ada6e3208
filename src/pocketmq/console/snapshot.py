"""The state of the cluster: one snapshot, refreshed by one collector, used by all pages and browsers.

    part       interval   requests
    brokers    2 s        one to each broker
    lags       5 s        two to each broker, for all groups
    tables     10 s       two to each broker: topics, groups
    times      10 s       one for each of the 30 groups with the largest lag
    letters    10 s       some for each group with dead letters
    members    10 s       one for each group and broker

A query is not repeated for 40 times its duration, so that a large cluster gets fewer queries. While no page is open, only
brokers and lags are refreshed, every 15 s, for the charts. If a query fails, its part keeps the last values, and the error is in
`problems`. If `brokers` fails, the cluster does not answer, and pages turn grey.

PocketMQ's brokers count changes of topics, groups and members in their runtime information. Tables and members are not queried
again while these counts stay the same. Apache's brokers do not count, so they are always queried.

The charts show samples of the last hour. Unknown values appear as gaps in the chart, never as 0.
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
from pocketmq.client.admin.targets import BrokerAddress
from pocketmq.clock import Clock
from pocketmq.console.group_progress import GroupProgress, ProgressSampler, ProgressTracker
from pocketmq.console.rendering import sentence, user_topics
from pocketmq.console.settings import ConsoleSettings
from pocketmq.errors import NoPermission, PocketMQError, RequestNotSupported
from pocketmq.model import is_internal_group, is_system_group
from pocketmq.protocol.bodies.clients import ProducerInfo, SubscriptionGroupConfig
from pocketmq.protocol.bodies.topics import TopicConfig

Changes = Mapping[BrokerAddress, tuple[int | None, ...]]
"""The boot time of each master, with its counts of changes since."""


def change_counts(brokers: Iterable[BrokerState], *kinds: str) -> Changes | None:
    """The counts of these kinds of changes at all masters; None if one of them does not count."""
    masters = [state for state in brokers if state.broker.is_master]
    if not masters or not all(state.changes.keys() >= set(kinds) for state in masters):
        return None
    return {state.broker: (state.booted_ms, *(state.changes[one] for one in kinds)) for state in masters}


SPAN_S: Final = 3_600.0
MAX_SAMPLES: Final = 3_600
"""With any interval."""


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """Values of the cluster at one time."""

    at: float
    """By the monotonic clock, in seconds."""
    put_per_s: float | None = None
    got_per_s: float | None = None
    lag: int | None = None
    """The lag of all groups in messages, as far as it is known."""
    disk_used: float | None = None
    """The fullest disk, from 0 to 1."""
    rejected_per_s: float | None = None


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
"""Groups whose lag time is queried in advance, those with the largest lag first."""
PAGE_WATCHED_S: Final = 15.0
"""A loaded page counts as open for this time, even without a live connection."""
_WATCHED_ONLY: Final = frozenset({"tables", "times", "letters", "members"})
_NO_TOPICS: Final[Mapping[str, Mapping[str, TopicConfig]]] = {}
_NO_GROUPS: Final[Mapping[str, Mapping[str, SubscriptionGroupConfig]]] = {}


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The last known state of the cluster. Parts that are not loaded yet are empty and not in `updated_ms`."""

    number: int = 0
    """Increases with every update."""
    updated_ms: Mapping[str, int] = {}
    """When each part was last updated."""
    problems: Mapping[str, str] = {}
    """The error of each part whose last query failed."""
    refused: frozenset[str] = frozenset()
    """Parts whose last query failed with NO_PERMISSION."""
    brokers: tuple[BrokerState, ...] = ()
    topics: Mapping[str, Mapping[str, TopicConfig]] = _NO_TOPICS
    user_topics: tuple[str, ...] = ()
    """Sorted, without internal topics."""
    groups: Mapping[str, Mapping[str, SubscriptionGroupConfig]] = _NO_GROUPS
    lags: Mapping[str, GroupLag] = {}
    """In messages, without times."""
    lagging: Mapping[str, int] = {}
    """The lag in messages of each group that has one, the largest first, without internal groups."""
    times: Mapping[str, GroupLag] = {}
    """Lags with times, of the groups with the largest lag."""
    group_progress: Mapping[str, GroupProgress] = {}
    letters: Mapping[str, int] = {}
    members: Mapping[str, tuple[Member, ...]] = {}
    producers: Mapping[str, list[ProducerInfo]] | None = None
    """None if brokers cannot list producers: RocketMQ 4.9."""

    @property
    def problem(self) -> str:
        """Why the cluster does not answer; empty if it does."""
        silent = [state for state in self.brokers if state.problem]
        if "brokers" in self.problems:
            return self.problems["brokers"]
        if "brokers" in self.updated_ms and not self.brokers:
            return "No broker is registered at the name servers."
        if silent and len(silent) == len(self.brokers):
            return silent[0].problem
        return ""

    @property
    def is_refused(self) -> bool:
        """The account of the console has no permission to list brokers."""
        return "brokers" in self.refused

    @property
    def lag_messages(self) -> int | None:
        """The lag of all groups, as far as it is known; None before the first query."""
        if "lags" not in self.updated_ms:
            return None
        return sum(self.lagging.values())

    @property
    def rejections(self) -> dict[str, int]:
        """Rejected requests since the brokers started, by cause, without zeros."""
        found: dict[str, int] = {}
        for state in self.brokers:
            for name, text in state.runtime.items():
                if name.startswith("refused") and text.isdigit() and int(text):
                    found[name.removeprefix("refused")] = found.get(name.removeprefix("refused"), 0) + int(text)
        return dict(sorted(found.items(), key=lambda pair: -pair[1]))


class _Part(NamedTuple):
    name: str
    every_s: float
    query: Callable[[], Awaitable[Mapping[str, Any]]]
    needs: str = ""
    """The part that must be loaded before this one."""


class Collector:
    """Queries the cluster in the background. `watched` counts live pages; `changed` is notified after every update."""

    def __init__(self, admin: AsyncAdmin, clock: Clock, settings: ConsoleSettings) -> None:
        self._admin = admin
        self._clock = clock
        self._settings = settings
        self._progress = ProgressTracker()
        self.sampler = ProgressSampler(admin, clock, settings.rest_factor)
        self._tasks: list[asyncio.Task[None]] = []
        self._refresh_events: dict[str, asyncio.Event] = {}
        self.changed = asyncio.Condition()
        self.ring = Ring()
        self.snapshot = Snapshot()
        self.watched = 0
        self._page_loaded_at = -PAGE_WATCHED_S
        self._changes: dict[str, Changes | None] = {}
        """The brokers' counts before the last query of each part."""
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
        self._refresh_events = {part.name: asyncio.Event() for part in self._parts}
        self._tasks = [asyncio.create_task(self._repeat(part), name=f"console {part.name}") for part in self._parts]
        self._tasks.append(asyncio.create_task(self.sampler.run(self._update_groups), name="console sampler"))
        return self

    async def __aexit__(self, *exc: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def refresh_soon(self) -> None:
        """Query again soon, after a change or when a page is opened."""
        for event in self._refresh_events.values():
            event.set()

    def page_loaded(self) -> None:
        """A page was loaded, maybe without a live connection: refresh the snapshot for the next one."""
        if not self._is_watched:
            self.refresh_soon()
        self._page_loaded_at = self._clock.monotonic()

    @property
    def _is_watched(self) -> bool:
        return self.watched > 0 or self._clock.monotonic() - self._page_loaded_at < PAGE_WATCHED_S

    async def refresh_now(self, *names: str) -> None:
        """Query these parts now, so that the next page shows a change."""
        for part in self._parts:
            if part.name in names:
                self._changes.pop(part.name, None)  # the counts are older than the change
                await self._update(part)

    async def next_after(self, number: int) -> Snapshot:
        """The next snapshot after this one."""
        async with self.changed:
            await self.changed.wait_for(lambda: self.snapshot.number > number)
        return self.snapshot

    async def _repeat(self, part: _Part) -> None:
        async with self.changed:
            await self.changed.wait_for(lambda: not part.needs or part.needs in self.snapshot.updated_ms)
        while True:
            if self._is_watched or part.name not in _WATCHED_ONLY or part.name not in self.snapshot.updated_ms:
                started = self._clock.monotonic()
                await self._update(part)
                took_s = self._clock.monotonic() - started
            else:
                took_s = 0.0
            every_s = part.every_s if self._is_watched else max(part.every_s, self._settings.unwatched_s)
            await self._wait(part, max(every_s, took_s * self._settings.rest_factor), took_s)

    async def _wait(self, part: _Part, rest_s: float, took_s: float) -> None:
        """Wait for `rest_s`, or until `refresh_soon`, but not shorter than a slow query allows."""
        refresh_soon = self._refresh_events[part.name]
        least_s = took_s * self._settings.rest_factor / 4
        refresh_soon.clear()
        await asyncio.sleep(least_s)
        with suppress(TimeoutError):
            async with asyncio.timeout(rest_s - least_s):
                await refresh_soon.wait()

    async def _update(self, part: _Part) -> None:
        known = self.snapshot
        try:
            found = dict(await part.query())
        except PocketMQError as error:
            if part.name not in known.problems:
                log.warning("cannot query %s: %s; showing the last known values", part.name, error)
            found = {"problems": {**self.snapshot.problems, part.name: sentence(error)}}
            is_refused = isinstance(error, NoPermission)
        else:
            is_refused = False
            found["problems"] = {name: why for name, why in self.snapshot.problems.items() if name != part.name}
            found["updated_ms"] = {**self.snapshot.updated_ms, part.name: self._clock.now_ms()}
        others = self.snapshot.refused - {part.name}
        found["refused"] = others | {part.name} if is_refused else others
        before, self.snapshot = self.snapshot, replace(self.snapshot, number=self.snapshot.number + 1, **found)
        if part.name == "brokers":
            self._sample(before)
        async with self.changed:
            self.changed.notify_all()

    def _update_groups(self, found: Mapping[str, GroupLag], sampled_at: float) -> None:
        """Update some groups between two queries of all, without a new number, so that no live page renders again."""
        known = self.snapshot
        self._progress.record_some(found, sampled_at, self._clock.now_ms())
        self.snapshot = replace(
            known, lags={**known.lags, **found}, times={**known.times, **found}, group_progress=self._progress.all()
        )

    def _sample(self, before: Snapshot) -> None:
        """Add a sample for the charts. Without brokers it is empty, which shows as a gap."""
        now, at = self.snapshot, self._clock.monotonic()
        if "brokers" in now.problems:
            self.ring.append(Sample(at=at))
            return
        earlier = self.ring.samples()
        since_s = at - earlier[-1].at if earlier else 0
        rejected = sum(now.rejections.values()) - sum(before.rejections.values())
        self.ring.append(
            Sample(
                at=at,
                put_per_s=_sum([state.put_per_s for state in now.brokers]),
                got_per_s=_sum([state.got_per_s for state in now.brokers]),
                lag=now.lag_messages,
                disk_used=max((state.disk_used for state in now.brokers if state.disk_used is not None), default=None),
                rejected_per_s=max(0, rejected) / since_s if since_s > 0 else None,
            )
        )

    # the parts

    async def _brokers(self) -> Mapping[str, Any]:
        return {"brokers": tuple(await self._admin.cluster.describe())}

    async def _tables(self) -> Mapping[str, Any]:
        changes = change_counts(self.snapshot.brokers, "topic", "group")
        if changes is not None and changes == self._changes.get("tables"):
            return {}
        topics, groups = await self._admin.topics.configs(), await self._admin.groups.configs()
        shown = user_topics(topics, await self._admin.cluster.brokers())
        self._changes["tables"] = changes
        return {"topics": topics, "user_topics": shown, "groups": groups}

    async def _lags(self) -> Mapping[str, Any]:
        sampled_at = self._clock.monotonic()
        lags = {lag.group: lag for lag in await self._admin.offsets.all_lags() if not is_system_group(lag.group)}
        self._progress.record(lags, sampled_at, self._clock.now_ms())
        shown = ((group, lag) for group, lag in lags.items() if not is_internal_group(group))
        lagging = {group: many for group, lag in shown if (many := lag.messages)}
        sorted_lags = dict(sorted(lagging.items(), key=lambda pair: -pair[1]))
        return {"lags": lags, "lagging": sorted_lags, "group_progress": self._progress.all()}

    async def _times(self) -> Mapping[str, Any]:
        largest = islice(self.snapshot.lagging, TIMED_GROUPS)
        return {"times": {group: await self._admin.offsets.lag(group) for group in largest}}

    async def _letters(self) -> Mapping[str, Any]:
        return {"letters": await self._admin.dead_letters.counts()}

    async def _members(self) -> Mapping[str, Any]:
        """Members of new groups if no member has changed elsewhere; otherwise of all groups."""
        names = [group for group in self.snapshot.groups if not is_system_group(group)]
        changes = change_counts(self.snapshot.brokers, "member")
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
    """The sum of known values; None if none is known."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None
