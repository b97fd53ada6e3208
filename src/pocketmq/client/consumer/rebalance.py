"""Rebalance: allocates the queues of each topic to the members of the group again when something may have changed.

    every 20 s ──────────────────────────────┐
    a broker reports that members changed ───┼──► for each topic: queues, members ──► allocator ──► assignment
    route or subscriptions changed ──────────┘        ▲
    assignment incomplete: again after 1 s ───────────┘

There is no leader: each member computes the same allocation from the same two lists. A short minimum interval between two rounds groups
changes, for example when many members start; it is shorter than the time that new owners wait for old ones. Without a list of members,
the assignment stays as it is. Topics are independent: if a strategy raises for one, the others are rebalanced. A topic that does not exist
is looked up again after 1, 2, 4 … 20 s.

    StrategyAllocator   the queues that the strategy gives this member
    AllQueues           all queues: broadcasting
    BrokerAllocator     the queues that brokers give this member, to be pulled or popped
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
from pocketmq.client.consumer.popping import ALL_QUEUES, too_old
from pocketmq.errors import PocketMQError, RequestNotSupported, TopicNotFound, UsageError
from pocketmq.model import MessageQueue
from pocketmq.model.names import is_retry
from pocketmq.protocol.bodies.clients import QueryAssignment, QueueAssignment


class Allocation(NamedTuple):
    """The queues of a topic, and those of this member. With `has_other_members`, these may still consume queues that move to this one."""

    all_queues: Sequence[MessageQueue]
    mine: Sequence[MessageQueue]
    has_other_members: bool = False
    popped: Sequence[MessageQueue] = ()
    """Queues that this member pops. Queue -1 means all of a broker."""
    is_complete: bool = True
    """False if a broker did not answer: the next round is soon."""


class Allocator(Protocol):
    """Computes the queues of this member."""

    async def allocate(self, route: TopicRoute) -> Allocation | None:
        """None when it is unknown now; the assignment stays as it is then."""


class StrategyAllocator:
    """Applies a strategy to the members that a broker of the topic knows."""

    def __init__(self, instance: Instance, group: str, strategy: AllocationStrategy) -> None:
        self._instance = instance
        self._group = group
        self._strategy = strategy

    async def allocate(self, route: TopicRoute) -> Allocation | None:
        members = await self._members(route)
        if not members:
            return None
        queues = sort_queues(route.readable)
        mine = allocate(self._strategy, queues, members, self._instance.client_id)
        return Allocation(queues, mine, len(members) > 1)

    async def _members(self, route: TopicRoute) -> list[str]:
        """The members that a broker of the topic knows. Masters are queried first, slaves only if no master answers."""
        names = [data.broker_name for data in route.data.broker_datas if data.broker_name]
        self._instance.dice.shuffle(names)
        failure: PocketMQError | None = None
        brokers = self._instance.brokers
        known = [brokers.addresses_of(name) for name in names if brokers.knows(name)]
        for address in [*(each[0] for each in known), *(slave for each in known for slave in each[1:])]:
            try:
                return await brokers.members.of_group(address, self._group)
            except PocketMQError as error:
                failure = error
        if failure is not None:
            raise failure
        return []


class AllQueues:
    """Allocates all queues."""

    async def allocate(self, route: TopicRoute) -> Allocation | None:
        queues = sort_queues(route.readable)
        return Allocation(queues, queues)


class BrokerAllocator:
    """Applies what each broker says about its own queues. A broker that does not answer keeps its last answer.

    `pops_always`: if a broker lets its members pull, each pops all its queues all the same.
    """

    def __init__(self, instance: Instance, group: str, strategy: AllocationStrategy, *, pops_always: bool) -> None:
        self._instance = instance
        self._group = group
        self._strategy = strategy
        self._pops_always = pops_always
        self._last: dict[tuple[str, str], Sequence[QueueAssignment]] = {}
        """By topic and broker."""

    async def allocate(self, route: TopicRoute) -> Allocation | None:
        queues = sort_queues(route.readable)
        names = list(dict.fromkeys(queue.broker_name for queue in queues))
        answers = await asyncio.gather(*(self._ask(route.topic, name) for name in names), return_exceptions=True)
        failures = [answer for answer in answers if isinstance(answer, BaseException)]
        if failures and (len(failures) == len(names) or not isinstance(failures[0], PocketMQError)):
            raise failures[0]
        pulled: list[MessageQueue] = []
        popped: list[MessageQueue] = []
        for name in names:
            assigned = self._last.get((route.topic, name), ())
            pops = [one.message_queue for one in assigned if one.mode == POP]
            if self._pops_always and not is_retry(route.topic):
                popped += pops or [MessageQueue(route.topic, name, ALL_QUEUES)]
            else:
                popped += pops
                pulled += [one.message_queue for one in assigned if one.mode != POP]
        return Allocation(queues, pulled, has_other_members=True, popped=popped, is_complete=not failures)

    async def _ask(self, topic: str, broker_name: str) -> None:
        body = QueryAssignment(topic, self._group, self._instance.client_id, self._strategy.name)
        try:
            answer = await self._instance.brokers.members.assignment(broker_name, body)
        except RequestNotSupported:
            raise too_old(broker_name) from None
        if (assigned := answer.message_queue_assignments) is not None:  # else the member keeps what it has
            self._last[topic, broker_name] = [one for one in assigned if one.message_queue.broker_name == broker_name]


log = logging.getLogger("pocketmq.client")

UNBALANCED_S = 1.0
"""The interval of rounds while the assignment is incomplete."""
MIN_GAP_S = 0.2
POP = "POP"
"""The mode of queues that are popped."""
MISSING_S = 2.5
"""A topic that does not exist is reported after this time: others may be creating it."""

OnRebalanced = Callable[[str, Sequence[MessageQueue], Sequence[MessageQueue]], None]
"""Called with a topic, all its queues, and those of this member."""


class RebalanceTarget(Protocol):
    """Applies allocations; see `assignment.Assignment`."""

    def topics(self) -> set[str]:
        """The topics of the assigned queues."""

    async def apply(self, topic: str, allocation: Allocation) -> tuple[bool, bool]:
        """Whether anything changed, and whether exactly the allocated queues are assigned now."""

    async def drop_topic(self, topic: str) -> None: ...


class Rebalance:
    """Rebalances the topics of one consumer."""

    def __init__(
        self,
        routes: Routes,
        topics: Callable[[], Iterable[str]],
        allocator: Allocator,
        assignment: RebalanceTarget,
        *,
        on_rebalanced: OnRebalanced,
        interval_s: float,
    ) -> None:
        self._routes = routes
        self._topics = topics
        self._allocator = allocator
        self._assignment = assignment
        self._on_rebalanced = on_rebalanced
        self._interval_s = interval_s
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._missing_s = UNBALANCED_S
        self._missing: dict[str, float] = {}
        """Topics that do not exist, with the time of the event loop at which to log a warning; infinite after the warning."""
        self._last_errors: dict[str, str] = {}
        self._waiting: list[asyncio.Future[None]] = []

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._rounds(), name="pocketmq rebalance")

    async def stop(self) -> None:
        """End the running round. May be called twice."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        self._end_waits(self._waiting)

    def soon(self) -> None:
        """Start a round as soon as the minimum interval allows."""
        self._wake.set()

    async def done(self) -> None:
        """Start a round as soon as the minimum interval allows, and wait for its end."""
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
                self._end_waits(waiting)
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._wake.wait()
            gap_s = began + MIN_GAP_S - asyncio.get_running_loop().time()
            if gap_s > 0:
                await asyncio.sleep(gap_s)

    def _end_waits(self, waiting: Iterable[asyncio.Future[None]]) -> None:
        for over in waiting:
            if not over.done():
                over.set_result(None)

    async def _round(self) -> float:
        """Rebalance each topic. Returns the delay of the next round in seconds."""
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
        """Release the queues of a topic that is not subscribed to any more; False if that failed."""
        try:
            await self._assignment.drop_topic(topic)
        except Exception as error:
            self._log_failure(topic, error)
            return False
        self._last_errors.pop(topic, None)
        return True

    async def _balance(self, topic: str) -> bool | None:
        """Whether the assignment of the topic is complete; None if the topic does not exist."""
        try:
            allocation = await self._allocator.allocate(await self._routes.find(topic))
            if allocation is None:
                return False
            changed, complete = await self._assignment.apply(topic, allocation)
            if changed:
                self._on_rebalanced(topic, allocation.all_queues, [*allocation.mine, *allocation.popped])
        except TopicNotFound:
            self._log_missing(topic)
            return None
        except Exception as error:  # also errors of the user's allocation strategy
            self._log_failure(topic, error)
            return False
        self._last_errors.pop(topic, None)
        self._missing.pop(topic, None)
        return complete

    def _log_missing(self, topic: str) -> None:
        """Log a warning once, but not for the retry topic of a group: brokers create it."""
        now = asyncio.get_running_loop().time()
        if is_retry(topic) or now < self._missing.setdefault(topic, now + MISSING_S):
            return
        self._missing[topic] = inf
        log.warning(
            "No route info of this topic: %s. Create it with `pocketmq topic create %s -n %s`; the consumer checks at least "
            "every %g s whether it exists",
            topic, topic, quote(str(self._routes.name_servers)), self._interval_s,
        )  # fmt: skip

    def _log_failure(self, topic: str, error: Exception) -> None:
        """Log an error unless it is of the same kind as the last one."""
        if self._last_errors.get(topic) == type(error).__name__:
            return
        self._last_errors[topic] = type(error).__name__
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
