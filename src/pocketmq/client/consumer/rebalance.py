"""Rebalance: sharing the queues of each topic out again, whenever something may have changed.

    every 20 s ─────────────────────────┐
    a broker says that members changed ─┼──► for each topic: queues, members ──► allocate ──► assignment
    other queues, other subscriptions ──┘        ▲
    not all as wanted: again after 1 s ──────────┘

Nobody leads: each member computes the same from the same two lists. Between two rounds lies a moment at least, so that a crowd of
members that come at once is not shared out anew with each; it is shorter than new owners wait for old ones. When a list of members cannot be had, everything stays as it is.
Each topic is handled separately: a strategy that raises for one topic leaves the queues of that topic as they are, and the others are rebalanced.
A topic that does not exist (yet) is looked for again after 1, 2, 4 … 20 s.

Shares: which queues of a topic are this member's.

ByStrategy    the members of the group share them, each computing the same
All           every member reads all of them: broadcasting
Chosen        the ones that the user named, whoever else reads them
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from math import inf
from shlex import quote
from typing import NamedTuple, Protocol

from pocketmq.client.cluster.instance import Instance
from pocketmq.client.cluster.routes import Routes, TopicRoute
from pocketmq.client.consumer.allocation import AllocationStrategy, allocate, sort_queues
from pocketmq.errors import PocketMQError, TopicNotFound, UsageError
from pocketmq.model.names import is_retry
from pocketmq.model.queue import MessageQueue


class Share(NamedTuple):
    """What this member gets of a topic. `is_shared`: queues may come from other members, who may still be at work on them."""

    all_queues: Sequence[MessageQueue]
    mine: Sequence[MessageQueue]
    is_shared: bool = False


class Shares(Protocol):
    """Tells this member's share."""

    async def of(self, route: TopicRoute) -> Share | None:
        """None when it cannot be known now: then everything stays as it is."""


class ByStrategy:
    """The queues of a topic are shared out among the members that a broker of the topic knows."""

    def __init__(self, instance: Instance, group: str, strategy: AllocationStrategy) -> None:
        self._instance = instance
        self._group = group
        self._strategy = strategy

    async def of(self, route: TopicRoute) -> Share | None:
        members = await self._members(route)
        if not members:
            return None
        queues = sort_queues(route.readable)
        mine = allocate(self._strategy, queues, members, self._instance.client_id)
        return Share(queues, mine, len(members) > 1)

    async def _members(self, route: TopicRoute) -> list[str]:
        """As one broker of the topic knows them; another one is asked when it is away, slaves last."""
        names = [data.broker_name for data in route.data.broker_datas if data.broker_name]
        self._instance.dice.shuffle(names)
        failure: PocketMQError | None = None
        brokers = self._instance.brokers
        known = [brokers.holders(name) for name in names if brokers.knows(name)]
        for address in [*(each[0] for each in known), *(slave for each in known for slave in each[1:])]:
            try:
                return await brokers.members.of_group(address, self._group)
            except PocketMQError as error:
                failure = error
        if failure is not None:
            raise failure
        return []


class All:
    """All queues."""

    async def of(self, route: TopicRoute) -> Share | None:
        queues = sort_queues(route.readable)
        return Share(queues, queues)


class Chosen:
    """The queues that the user named last; of those, the ones that exist."""

    def __init__(self) -> None:
        self.queues: frozenset[MessageQueue] = frozenset()

    async def of(self, route: TopicRoute) -> Share | None:
        queues = sort_queues(route.readable)
        return Share(queues, [queue for queue in queues if queue in self.queues])


log = logging.getLogger("pocketmq.client")

UNBALANCED_S = 1.0
"""After so long it is tried again what did not work out."""
MIN_GAP_S = 0.2
MISSING_S = 2.5
"""A topic that does not exist for so long is warned of: a topic that is made meanwhile is not worth a warning."""

OnShared = Callable[[str, Sequence[MessageQueue], Sequence[MessageQueue]], None]
"""Hears of a change: the topic, all its queues, and those that are ours."""


class Sharing(Protocol):
    """Who acts on shares; see `assignment.Assignment`."""

    def topics(self) -> set[str]:
        """The topics of which it has queues."""

    async def apply(
        self, topic: str, all_queues: Sequence[MessageQueue], wanted: Sequence[MessageQueue], *, is_shared: bool
    ) -> tuple[bool, bool]:
        """Whether anything changed, and whether it is all as wanted."""

    async def drop_topic(self, topic: str) -> None: ...


class Rebalance:
    """Shares queues out for one consumer."""

    def __init__(
        self,
        routes: Routes,
        topics: Callable[[], Iterable[str]],
        shares: Shares,
        assignment: Sharing,
        *,
        on_shared: OnShared,
        interval_s: float,
    ) -> None:
        self._routes = routes
        self._topics = topics
        self._shares = shares
        self._assignment = assignment
        self._on_shared = on_shared
        self._interval_s = interval_s
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._missing_s = UNBALANCED_S
        self._missing: dict[str, float] = {}
        """Topics that do not exist, each with the loop's time from which on a warning is due; infinite after the warning."""
        self._complaints: dict[str, str] = {}
        self._waiting: list[asyncio.Future[None]] = []

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._rounds(), name="pocketmq rebalance")

    async def stop(self) -> None:
        """Nothing is shared out any more when this returns. Harmless when done twice."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        self._tell(self._waiting)

    def soon(self) -> None:
        """As soon as the gap allows."""
        self._wake.set()

    async def done(self) -> None:
        """Share out as soon as the gap allows, and return when that is over."""
        if self._task is not None:
            over = asyncio.get_running_loop().create_future()
            self._waiting.append(over)
            self.soon()
            await over

    async def _rounds(self) -> None:
        while True:
            self._wake.clear()
            waiting, self._waiting = self._waiting, []
            began = asyncio.get_running_loop().time()
            try:
                wait_s = await self._round()
            finally:
                self._tell(waiting)
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._wake.wait()
            gap_s = began + MIN_GAP_S - asyncio.get_running_loop().time()
            if gap_s > 0:
                await asyncio.sleep(gap_s)

    def _tell(self, waiting: Iterable[asyncio.Future[None]]) -> None:
        for over in waiting:
            if not over.done():
                over.set_result(None)

    async def _round(self) -> float:
        """Every topic once; how long to wait before the next round, in seconds."""
        topics = list(self._topics())
        states = [await self._drop(topic) for topic in sorted(self._assignment.topics() - set(topics))]
        states += [await self._balance(topic) for topic in topics]
        if False in states:
            return UNBALANCED_S
        if None not in states:
            self._missing_s = UNBALANCED_S
            return self._interval_s
        wait_s = self._missing_s
        self._missing_s = min(2 * wait_s, self._interval_s)
        return wait_s

    async def _drop(self, topic: str) -> bool | None:
        """Leave a topic that is not subscribed to any more; False when that failed."""
        try:
            await self._assignment.drop_topic(topic)
        except Exception as error:
            self._complain(topic, error)
            return False
        self._complaints.pop(topic, None)
        return True

    async def _balance(self, topic: str) -> bool | None:
        """Whether the topic is as it should be; None when there is no such topic."""
        try:
            share = await self._shares.of(await self._routes.find(topic))
            if share is None:
                return False
            changed, complete = await self._assignment.apply(
                topic, share.all_queues, share.mine, is_shared=share.is_shared
            )
            if changed:
                self._on_shared(topic, share.all_queues, share.mine)
        except TopicNotFound:
            self._note_missing(topic)
            return None
        except Exception as error:  # also one of the allocation strategy, which may be the user's
            self._complain(topic, error)
            return False
        self._complaints.pop(topic, None)
        self._missing.pop(topic, None)
        return complete

    def _note_missing(self, topic: str) -> None:
        """Warn once. Brokers make the retry topic of a group by themselves."""
        now = asyncio.get_running_loop().time()
        if is_retry(topic) or now < self._missing.setdefault(topic, now + MISSING_S):
            return
        self._missing[topic] = inf
        log.warning(
            "No route info of this topic: %s. Create it with `pocketmq topic create %s -n %s`; nothing of it is consumed "
            "until it exists, which the client looks for at least every %g s",
            topic, topic, quote(str(self._routes.name_servers)), self._interval_s,
        )  # fmt: skip

    def _complain(self, topic: str, error: Exception) -> None:
        """Once for each cause."""
        if self._complaints.get(topic) == type(error).__name__:
            return
        self._complaints[topic] = type(error).__name__
        is_foreseen = isinstance(error, PocketMQError)
        log.log(
            logging.WARNING if is_foreseen and not isinstance(error, UsageError) else logging.ERROR,
            "rebalance of %s failed: %s: %s; next attempt in %g s",
            topic,
            type(error).__name__,
            error,
            UNBALANCED_S,
            exc_info=None if is_foreseen else error,
        )
