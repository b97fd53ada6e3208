"""Queries to brokers about queues, for the driver: in parallel, with retries, and cached for a while.

To find the first message that was stored at a time or later, brokers search, and not all of them find it:

    stored at   1  1  1  1  5  5  5  5        for time 5, RocketMQ 4.9 returns any of the last four offsets; for time 3, the one
    offset      0  1  2  3  4  5  6  7        nearest in time, 3 or 4. To start at 6, or to end at 3, would omit messages.

So the answer is a guess. The message there and its neighbour are checked, which suffices if the guess is right. Otherwise a binary
search finds the first message, for all queues in parallel. Within a queue, times are assumed to rise.
"""

import logging
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final, Generic, NamedTuple, Self, TypeVar

from pocketmq.client.admin.groups import GroupAdmin
from pocketmq.client.admin.lag import stored_offset
from pocketmq.client.admin.topics import TopicAdmin
from pocketmq.client.cluster.calls import first_of_topics
from pocketmq.clock import Clock, SystemClock
from pocketmq.errors import (
    GroupNotFound,
    ImpossibleRequest,
    NetworkError,
    PocketMQError,
    RemoteError,
    TopicNotFound,
)
from pocketmq.model import ExpressionType, MessageQueue, Subscription, TopicName
from pocketmq.model.names import TOOLS_GROUP
from pocketmq.protocol.record import decode_record
from pocketmq.spark.broker_facts import Bounds, LogState, refuses_sql
from pocketmq.spark.options.read_options import ReadOptions
from pocketmq.spark.read.offsets import QueueOffsets
from pocketmq.spark.shared_clients import READING, ReadingCore, SharedClient

Stored = Callable[[QueueOffsets], Mapping[MessageQueue, int]]
"""The store times of the messages at these offsets; deleted messages are omitted."""


class _Span(NamedTuple):
    """The first message is at an offset from `low` to `high`; `probe` is checked next."""

    low: int
    high: int
    probe: int
    is_guess: bool = True

    def narrowed(self, is_late: bool) -> "_Span":
        """The span after checking `probe`; `is_late` if its message was stored at the time or later."""
        low, high = (self.low, self.probe) if is_late else (self.probe + 1, self.high)
        neighbour = self.probe - 1 if is_late else self.probe + 1
        return _Span(low, high, neighbour if self.is_guess else (low + high) // 2, is_guess=False)


def first_at(
    times_ms: Mapping[MessageQueue, int], guesses: QueueOffsets, bounds: Mapping[MessageQueue, Bounds], stored: Stored
) -> dict[MessageQueue, int]:
    """The first offset in each queue; the end of the queue if no message is that new."""
    spans = {queue: _span(guesses[queue], bounds[queue]) for queue in times_ms}
    while probes := {queue: span.probe for queue, span in spans.items() if span.low < span.high}:
        found = stored(probes)
        for queue in probes:
            # A deleted message counts as early: retention deletes the oldest first.
            spans[queue] = spans[queue].narrowed(queue in found and found[queue] >= times_ms[queue])
    return {queue: span.low for queue, span in spans.items()}


def _span(guess: int, bounds: Bounds) -> _Span:
    return _Span(bounds.min, bounds.max, min(max(guess, bounds.min), bounds.max - 1))


log = logging.getLogger("pocketmq.spark")

SAMPLED_MESSAGES: Final = 32
SAMPLED_BYTES: Final = 256 * 1024
ONE_MESSAGE_BYTES: Final = 8 * 1024 * 1024
RETENTION_TTL_S: Final = 600.0
"""How long a setting of a broker is cached: its retention time, and whether it filters by SQL92."""
_HOUR_MS: Final = 3_600_000

T = TypeVar("T")


class _Cached(NamedTuple, Generic[T]):
    found: T
    until: float


class ClientMetadata:
    """Implements `broker_facts.Metadata`. Queues and topics have their names without the namespace."""

    def __init__(
        self,
        client: SharedClient[ReadingCore],
        *,
        retries: int,
        retry_interval_ms: int,
        ttl_ms: int,
        pull_group: str = TOOLS_GROUP,
        clock: Clock | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client = client
        self._pull_group = pull_group
        self._retries = retries
        self._interval_s = retry_interval_ms / 1000
        self._ttl_s = ttl_ms / 1000
        self._clock = clock or SystemClock()
        self._sleep = sleep
        self.name_servers_problem = ""
        """Why the last query to the name servers failed; empty if it succeeded."""
        self._topics: _Cached[list[str]] | None = None
        self._queues: dict[str, _Cached[list[MessageQueue]]] = {}
        self._retention_ms: dict[str, _Cached[int | None]] = {}
        self._filters_by_sql: dict[str, _Cached[bool]] = {}

    @classmethod
    def of(cls, client: SharedClient[ReadingCore], options: ReadOptions, *, retries: int | None = None) -> Self:
        """With the options of a read; `retries` overrides their number of retries."""
        return cls(
            client,
            retries=options.fetch_retries if retries is None else retries,
            retry_interval_ms=options.fetch_interval_ms,
            ttl_ms=options.metadata_ttl_ms,
            pull_group=options.pull_group,
        )

    def topics(self) -> list[str]:
        self._topics = self._routed(self._topics, lambda core: TopicAdmin(core).names())
        return self._topics.found

    def queues(self, topic: str) -> list[MessageQueue]:
        known = self._queues[topic] = self._routed(self._queues.get(topic), lambda core: _readable(core, topic))
        return known.found

    def forget_queues(self) -> None:
        """Ask the name servers again, although their last answers are valid for a while."""
        self._topics = None
        self._queues.clear()

    def deleted(self, queues: Sequence[MessageQueue]) -> set[MessageQueue]:
        """The queues whose broker does not have their topic."""
        found = self._for_each(queues, lambda core, queue: core.is_deleted(queue))
        return {queue for queue, deleted in found.items() if deleted}

    def bounds(self, queues: Sequence[MessageQueue]) -> dict[MessageQueue, Bounds]:
        return self._for_each(queues, lambda core, queue: core.bounds(queue))

    def offsets_at(self, times_ms: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        async def found(core: ReadingCore, queue: MessageQueue) -> int:
            calls, wire_queue = core.targets.brokers.offsets, core.targets.wire_queue(queue)
            return await calls.at_time(wire_queue, times_ms[queue])

        guesses = self._for_each(list(times_ms), found)
        bounds = self.bounds(list(times_ms))
        return first_at(times_ms, guesses, bounds, partial(self.stored_ms, self._pull_group))

    def committed(self, group: str, queues: Sequence[MessageQueue]) -> dict[MessageQueue, int]:
        found = self._for_each(
            queues,
            lambda core, queue: stored_offset(core.targets, core.targets.group(group), core.targets.wire_queue(queue)),
        )
        return {queue: offset for queue, offset in found.items() if offset is not None}

    def commit(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Commit offsets of a group, and create the group at brokers that do not have it."""

        async def commit(core: ReadingCore, queue: MessageQueue) -> None:
            name, wire_queue = core.targets.group(group), core.targets.wire_queue(queue)
            try:
                await core.targets.brokers.offsets.commit(name, wire_queue, offsets[queue])
            except GroupNotFound:
                await _create_group(core, group, queue)
                await core.targets.brokers.offsets.commit(name, wire_queue, offsets[queue])

        first = first_of_topics(offsets)
        self._for_each(first, commit)
        self._for_each([queue for queue in offsets if queue not in first], commit)

    def earliest_store_ms(self, queues: Sequence[MessageQueue]) -> dict[MessageQueue, int]:
        return self._for_each(
            queues, lambda core, queue: core.targets.brokers.offsets.earliest_store_ms(core.targets.wire_queue(queue))
        )

    def retention_ms(self, brokers: frozenset[str]) -> dict[str, int]:
        """The retention time of brokers. Brokers that do not report it, for example for lack of permission, are omitted."""
        now = self._clock.monotonic()
        for broker in sorted(brokers):
            known = self._retention_ms.get(broker)
            if known is None or now >= known.until:
                self._retention_ms[broker] = _Cached(self._query_retention_ms(broker), now + RETENTION_TTL_S)
        found = {broker: self._retention_ms[broker].found for broker in brokers}
        return {broker: kept for broker, kept in found.items() if kept is not None}

    def _query_retention_ms(self, broker: str) -> int | None:
        async def query(core: ReadingCore) -> str | None:
            master = await core.targets.master(broker)
            return (await core.targets.brokers.state.settings(master.address)).get("fileReservedTime")

        try:
            hours = self.ask(query)
        except RemoteError as error:
            log.info(
                "Broker %s did not report its retention time: %s; warnings of deletion use the store times alone",
                broker,
                error,
            )
            return None
        return int(hours) * _HOUR_MS if hours is not None and hours.isdecimal() else None

    def brokers_without_sql(self, queues: Sequence[MessageQueue]) -> list[str]:
        """The brokers of these queues that do not filter by SQL92."""

        async def accepts(core: ReadingCore, queue: MessageQueue) -> bool | None:
            wanted = Subscription.parse(queue.topic, "TAGS IS NULL", ExpressionType.SQL92)
            try:
                await core.puller(self._pull_group).pull(queue, 0, wanted, 1, SAMPLED_BYTES)
            except TopicNotFound:
                return None  # a deleted topic says nothing about its broker
            except RemoteError as error:
                if not refuses_sql(error):
                    raise
                return False
            return True

        now = self._clock.monotonic()
        known = {name: one for name, one in self._filters_by_sql.items() if now < one.until}
        unknown = list({queue.broker_name: queue for queue in queues if queue.broker_name not in known}.values())
        found = (
            self.ask(lambda core: core.targets.gather(unknown, lambda queue: accepts(core, queue))) if unknown else []
        )
        for queue, answer in zip(unknown, found, strict=True):
            if answer is not None:
                known[queue.broker_name] = _Cached(answer, now + RETENTION_TTL_S)
        self._filters_by_sql = known
        return sorted({queue.broker_name for queue in queues} & {name for name, one in known.items() if not one.found})

    def log_states(self, brokers: Collection[str]) -> dict[str, LogState]:
        """The log states of brokers of topics whose queues were queried. Brokers that do not report one are omitted."""

        async def query(core: ReadingCore) -> dict[str, Mapping[str, str]]:
            infos, failed = await core.targets.gather_with_errors(
                sorted(brokers), core.targets.brokers.state.runtime_info
            )
            for broker, error in failed.items():
                if error.retriable or not isinstance(error, RemoteError):
                    raise error
                log.info("Broker %s did not report its log state: %s; not waiting for its queues", broker, error)
            return infos

        states = {broker: _log_state(infos) for broker, infos in self.ask(query).items()}
        return {broker: state for broker, state in states.items() if state is not None}

    def stored_ms(self, group: str, offsets: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """The store times of the messages at these offsets; deleted messages are omitted."""

        async def stored(core: ReadingCore, queue: MessageQueue) -> int | None:
            wanted = Subscription.parse(queue.topic)
            pulled = await core.puller(group).pull(queue, offsets[queue], wanted, 1, ONE_MESSAGE_BYTES)
            return decode_record(pulled.records, check_crc=False).store_ms if pulled.records else None

        found = self._for_each(list(offsets), stored)
        return {queue: stored_ms for queue, stored_ms in found.items() if stored_ms is not None}

    def bytes_per_message(self, group: str, offsets: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """The average size of messages after these offsets, by a sample of each queue; queues that end there are omitted."""

        async def size(core: ReadingCore, queue: MessageQueue) -> int:
            wanted = Subscription.parse(queue.topic)
            pulled = await core.puller(group).pull(queue, offsets[queue], wanted, SAMPLED_MESSAGES, SAMPLED_BYTES)
            return len(pulled.records) // max(1, pulled.next_offset - offsets[queue])

        return {queue: found for queue, found in self._for_each(list(offsets), size).items() if found}

    def _routed(self, known: _Cached[T] | None, query: Callable[[ReadingCore], Coroutine[Any, Any, T]]) -> _Cached[T]:
        """An answer of the name servers, cached. If none of them responds, the last answer stays valid."""
        if known is not None and self._clock.monotonic() < known.until:
            return known
        try:
            found = self.ask(query)
            self.name_servers_problem = ""
        except NetworkError as error:
            if known is None:
                raise
            found = known.found
            if not self.name_servers_problem:
                log.warning("No name server responds; using the last known topics and queues: %s", error)
            self.name_servers_problem = str(error)
        return _Cached(found, self._clock.monotonic() + self._ttl_s)

    def _for_each(
        self, queues: Sequence[MessageQueue], query: Callable[[ReadingCore, MessageQueue], Awaitable[T]]
    ) -> dict[MessageQueue, T]:
        async def all_of(core: ReadingCore) -> list[T]:
            for topic in {queue.topic for queue in queues}:
                await core.targets.instance.routes.find(core.targets.topic(topic))
            return await core.targets.gather(queues, lambda queue: query(core, queue))

        return dict(zip(queues, self.ask(all_of), strict=True)) if queues else {}

    def ask(self, query: Callable[[ReadingCore], Coroutine[Any, Any, T]]) -> T:
        """The answer, with retries after temporary failures."""
        for left in range(self._retries, -1, -1):
            try:
                return self._client.call(query(self._client.core()))
            except PocketMQError as error:
                if not (error.retriable and left):
                    raise
                log.warning(
                    "Query to brokers failed: %s: %s; retrying in %.1f s", type(error).__name__, error, self._interval_s
                )
                self._sleep(self._interval_s)
        raise AssertionError("the last attempt returns or raises")


@contextmanager
def borrowed_metadata(options: ReadOptions, *, retries: int | None = None) -> Iterator[ClientMetadata]:
    """Queries with the options of a read, by the shared client for its connection."""
    with READING.borrow(options.connection, options.idle_timeout_ms) as client:
        yield ClientMetadata.of(client, options, retries=retries)


def _log_state(infos: Mapping[str, str]) -> LogState | None:
    """The log state from a broker's runtime info; None if a number is missing. Apache reports the end of the log first, so messages
    that arrive meanwhile count as not entered. `dispatchBehindBytes` also covers keys; PocketMQ reports queues alone.
    """
    try:
        end = int(infos["commitLogMaxOffset"])
        behind = int(infos["queuesBehindBytes"] if "queuesBehindBytes" in infos else infos["dispatchBehindBytes"])
    except (KeyError, ValueError):
        return None
    return LogState(end, end - behind)


async def _readable(core: ReadingCore, topic: str) -> list[MessageQueue]:
    name: TopicName = core.targets.topic(topic)
    return [core.targets.shown_queue(queue) for queue in (await core.targets.route(name)).readable]


async def _create_group(core: ReadingCore, group: str, queue: MessageQueue) -> None:
    """Brokers create a group on its first pull, unless that is disabled. Then it is created explicitly, which needs permission."""
    try:
        await core.puller(group).pull(queue, 0, Subscription.parse(queue.topic), 1, SAMPLED_BYTES)
    except GroupNotFound:
        with suppress(ImpossibleRequest):  # another client created it in the meantime
            await GroupAdmin(core).create(group, brokers=[queue.broker_name])
