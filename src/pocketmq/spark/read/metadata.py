"""What brokers say about queues, asked by the driver: side by side, again when that helps, and remembered for a while.

The first message of a queue that was stored at a time or later. Brokers search for it, and not all of them find it.

    stored at   1  1  1  1  5  5  5  5        asked for 5, RocketMQ 4.9 names any of the last four; asked for 3, the one that is
    offset      0  1  2  3  4  5  6  7        nearest in time, 3 or 4. To begin at 6, or to end at 3, would leave messages out.

So what a broker names is a guess. It is looked at, and then its neighbour: that is all where the guess is right. Else the queue is
halved until the first one is found, all queues side by side. Times are taken for rising within a queue.
"""

import logging
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, Generic, NamedTuple, Self, TypeVar

from pocketmq.client.admin.groups import GroupAdmin
from pocketmq.client.admin.lag import stored_offset
from pocketmq.client.admin.topics import TopicAdmin
from pocketmq.client.cluster.message_calls import first_of_topics
from pocketmq.clock import Clock, SystemClock
from pocketmq.errors import GroupNotFound, ImpossibleRequest, NetworkError, PocketMQError, RemoteError
from pocketmq.model.names import TOOLS_GROUP, TopicName
from pocketmq.model.queue import MessageQueue
from pocketmq.model.subscription import Subscription
from pocketmq.protocol.record import decode_record
from pocketmq.spark.broker_facts import Bounds, LogState
from pocketmq.spark.options.read_options import ReadOptions
from pocketmq.spark.read.offsets import Places
from pocketmq.spark.worker_connections import Held, ReadingCore

Stored = Callable[[Places], Mapping[MessageQueue, int]]
"""When the messages at these places were stored; those that are gone are left out."""


class _Span(NamedTuple):
    """The first message lies at `low` or behind, and at `high` or before; `probe` is looked at next."""

    low: int
    high: int
    probe: int
    is_guess: bool = True

    def narrowed(self, is_late: bool) -> "_Span":
        """By whether the message at `probe` was stored at the time or later."""
        low, high = (self.low, self.probe) if is_late else (self.probe + 1, self.high)
        neighbour = self.probe - 1 if is_late else self.probe + 1
        return _Span(low, high, neighbour if self.is_guess else (low + high) // 2, is_guess=False)


def first_at(
    times_ms: Mapping[MessageQueue, int], guesses: Places, bounds: Mapping[MessageQueue, Bounds], stored: Stored
) -> dict[MessageQueue, int]:
    """Where it is in each queue; where the queue ends if no message is that new."""
    spans = {queue: _span(guesses[queue], bounds[queue]) for queue in times_ms}
    while asked := {queue: span.probe for queue, span in spans.items() if span.low < span.high}:
        found = stored(asked)
        for queue in asked:
            # One that is gone was taken by retention, which begins with the oldest.
            spans[queue] = spans[queue].narrowed(queue in found and found[queue] >= times_ms[queue])
    return {queue: span.low for queue, span in spans.items()}


def _span(guess: int, held: Bounds) -> _Span:
    return _Span(held.min, held.max, min(max(guess, held.min), held.max - 1))


log = logging.getLogger("pocketmq.spark")

SAMPLED_MESSAGES: Final = 32
SAMPLED_BYTES: Final = 256 * 1024
ONE_MESSAGE_BYTES: Final = 8 * 1024 * 1024
KEPT_TTL_S: Final = 600.0
"""How long a broker's time of retention is believed to be the same."""
_HOUR_MS: Final = 3_600_000

T = TypeVar("T")


class _Remembered(NamedTuple, Generic[T]):
    found: T
    until: float


class ClientMetadata:
    """See `broker_facts.Metadata`. Queues and topics have the names that users know."""

    def __init__(
        self,
        client: Held[ReadingCore],
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
        """Why no name server answered the last question about topics and queues; empty when one did."""
        self._topics: _Remembered[list[str]] | None = None
        self._queues: dict[str, _Remembered[list[MessageQueue]]] = {}
        self._kept_ms: dict[str, _Remembered[int | None]] = {}

    @classmethod
    def of(cls, client: Held[ReadingCore], options: ReadOptions, *, retries: int | None = None) -> Self:
        """As the options of a read say, unless `retries` says how often to ask again."""
        return cls(
            client,
            retries=options.fetch_retries if retries is None else retries,
            retry_interval_ms=options.fetch_interval_ms,
            ttl_ms=options.metadata_ttl_ms,
            pull_group=options.pull_group,
        )

    def topics(self) -> list[str]:
        self._topics = self._routed(self._topics, lambda core: TopicAdmin(core.reach).names())
        return self._topics.found

    def queues(self, topic: str) -> list[MessageQueue]:
        known = self._queues[topic] = self._routed(self._queues.get(topic), lambda core: _readable(core, topic))
        return known.found

    def bounds(self, queues: Sequence[MessageQueue]) -> dict[MessageQueue, Bounds]:
        return self._of_each(queues, lambda core, queue: core.bounds(queue))

    def offsets_at(self, times_ms: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        async def found(core: ReadingCore, queue: MessageQueue) -> int:
            calls, wire_queue = core.reach.brokers.offsets, core.reach.wire_queue(queue)
            return await calls.at_time(wire_queue, times_ms[queue])

        guesses = self._of_each(list(times_ms), found)
        bounds = self.bounds(list(times_ms))
        return first_at(times_ms, guesses, bounds, partial(self.stored_ms, self._pull_group))

    def committed(self, group: str, queues: Sequence[MessageQueue]) -> dict[MessageQueue, int]:
        found = self._of_each(
            queues, lambda core, queue: stored_offset(core.reach, core.reach.group(group), core.reach.wire_queue(queue))
        )
        return {queue: offset for queue, offset in found.items() if offset is not None}

    def commit(self, group: str, places: Mapping[MessageQueue, int]) -> None:
        """Let a group stand there; brokers that do not have the group get it."""

        async def commit(core: ReadingCore, queue: MessageQueue) -> None:
            name, wire_queue = core.reach.group(group), core.reach.wire_queue(queue)
            try:
                await core.reach.brokers.offsets.commit(name, wire_queue, places[queue])
            except GroupNotFound:
                await _make_known(core, group, queue)
                await core.reach.brokers.offsets.commit(name, wire_queue, places[queue])

        first = first_of_topics(places)
        self._of_each(first, commit)
        self._of_each([queue for queue in places if queue not in first], commit)

    def earliest_store_ms(self, queues: Sequence[MessageQueue]) -> dict[MessageQueue, int]:
        return self._of_each(
            queues, lambda core, queue: core.reach.brokers.offsets.earliest_store_ms(core.reach.wire_queue(queue))
        )

    def kept_ms(self, brokers: frozenset[str]) -> dict[str, int]:
        """How long brokers keep messages. One that does not tell, as to somebody without the right to ask, is left out."""
        now = self._clock.monotonic()
        for broker in sorted(brokers):
            known = self._kept_ms.get(broker)
            if known is None or now >= known.until:
                self._kept_ms[broker] = _Remembered(self._ask_kept_ms(broker), now + KEPT_TTL_S)
        found = {broker: self._kept_ms[broker].found for broker in brokers}
        return {broker: kept for broker, kept in found.items() if kept is not None}

    def _ask_kept_ms(self, broker: str) -> int | None:
        async def ask(core: ReadingCore) -> str | None:
            place = await core.reach.master(broker)
            return (await core.reach.brokers.state.settings(place.address)).get("fileReservedTime")

        try:
            hours = self._asked(ask)
        except RemoteError as error:
            log.info("the broker %s does not tell how long it keeps messages: %s", broker, error)
            return None
        return int(hours) * _HOUR_MS if hours is not None and hours.isdecimal() else None

    def log_states(self, brokers: Collection[str]) -> dict[str, LogState]:
        """How far brokers are, of topics whose queues were asked for. One that does not tell is left out."""

        async def ask(core: ReadingCore) -> dict[str, Mapping[str, str]]:
            told, failed = await core.reach.gather_what_goes(sorted(brokers), core.reach.brokers.state.runtime_info)
            for broker, error in failed.items():
                if error.retriable or not isinstance(error, RemoteError):
                    raise error
                log.info("the broker %s does not tell how far its queues are: %s", broker, error)
            return told

        states = {broker: _log_state(told) for broker, told in self._asked(ask).items()}
        return {broker: state for broker, state in states.items() if state is not None}

    def stored_ms(self, group: str, places: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """When the messages at these places were stored; those that are gone are left out."""

        async def stored(core: ReadingCore, queue: MessageQueue) -> int | None:
            wanted = Subscription.parse(queue.topic)
            pulled = await core.puller(group).pull(queue, places[queue], wanted, 1, ONE_MESSAGE_BYTES)
            return decode_record(pulled.records, check_crc=False).store_ms if pulled.records else None

        found = self._of_each(list(places), stored)
        return {queue: stored_ms for queue, stored_ms in found.items() if stored_ms is not None}

    def bytes_per_message(self, group: str, places: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """About how large messages are behind these places, by a look at some of each; queues that end there are left out."""

        async def size(core: ReadingCore, queue: MessageQueue) -> int:
            wanted = Subscription.parse(queue.topic)
            pulled = await core.puller(group).pull(queue, places[queue], wanted, SAMPLED_MESSAGES, SAMPLED_BYTES)
            return len(pulled.records) // max(1, pulled.next_offset - places[queue])

        return {queue: found for queue, found in self._of_each(list(places), size).items() if found}

    def _routed(
        self, known: _Remembered[T] | None, ask: Callable[[ReadingCore], Coroutine[Any, Any, T]]
    ) -> _Remembered[T]:
        """What name servers say, remembered for a while. While none of them answers, what they said last stays true."""
        if known is not None and self._clock.monotonic() < known.until:
            return known
        try:
            found = self._asked(ask)
            self.name_servers_problem = ""
        except NetworkError as error:
            if known is None:
                raise
            found = known.found
            if not self.name_servers_problem:
                log.warning("no name server answers, so topics and queues are those that it named last: %s", error)
            self.name_servers_problem = str(error)
        return _Remembered(found, self._clock.monotonic() + self._ttl_s)

    def _of_each(
        self, queues: Sequence[MessageQueue], ask: Callable[[ReadingCore, MessageQueue], Awaitable[T]]
    ) -> dict[MessageQueue, T]:
        async def all_of(core: ReadingCore) -> list[T]:
            for topic in {queue.topic for queue in queues}:
                await core.reach.instance.routes.find(core.reach.topic(topic))
            return await core.reach.gather(queues, lambda queue: ask(core, queue))

        return dict(zip(queues, self._asked(all_of), strict=True)) if queues else {}

    def _asked(self, ask: Callable[[ReadingCore], Coroutine[Any, Any, T]]) -> T:
        """The answer; asked again after a failure that may pass."""
        for left in range(self._retries, -1, -1):
            try:
                return self._client.call(ask(self._client.core()))
            except PocketMQError as error:
                if not (error.retriable and left):
                    raise
                log.warning("asking brokers failed and is tried again: %s: %s", type(error).__name__, error)
                self._sleep(self._interval_s)
        raise AssertionError("the last attempt returns or raises")


def _log_state(told: Mapping[str, str]) -> LogState | None:
    """By what a broker tells of itself; None where a number is missing. Apache takes the end of the log first, so that what comes
    meanwhile counts as not entered. Its queues are as far as its keys are; PocketMQ tells of queues alone.
    """
    try:
        end = int(told["commitLogMaxOffset"])
        behind = int(told["queuesBehindBytes"] if "queuesBehindBytes" in told else told["dispatchBehindBytes"])
    except (KeyError, ValueError):
        return None
    return LogState(end, end - behind)


async def _readable(core: ReadingCore, topic: str) -> list[MessageQueue]:
    name: TopicName = core.reach.topic(topic)
    return [core.reach.shown_queue(queue) for queue in (await core.reach.route(name)).readable]


async def _make_known(core: ReadingCore, group: str, queue: MessageQueue) -> None:
    """Brokers make a group for whoever pulls as it, unless they are told not to. Then it is created, which not everybody may."""
    try:
        await core.puller(group).pull(queue, 0, Subscription.parse(queue.topic), 1, SAMPLED_BYTES)
    except GroupNotFound:
        with suppress(ImpossibleRequest):  # somebody else was faster
            await GroupAdmin(core.reach).create(group, brokers=[queue.broker_name])
