"""What brokers say about queues, asked by the driver: side by side, again when that helps, and remembered for a while."""

import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeVar

from pocketmq.client.administration.groups import GroupAdmin
from pocketmq.client.administration.progress import stored_offset
from pocketmq.client.administration.topics import TopicAdmin
from pocketmq.clock import Clock, SystemClock
from pocketmq.errors import GroupNotFound, ImpossibleRequest, PocketMQError
from pocketmq.model.names import TopicName
from pocketmq.model.queue import MessageQueue
from pocketmq.model.subscription import Subscription
from pocketmq.spark.broker_facts import Bounds
from pocketmq.spark.worker_connections import Held, ReadingCore

log = logging.getLogger("pocketmq.spark")

SAMPLED_MESSAGES: Final = 32
SAMPLED_BYTES: Final = 256 * 1024

T = TypeVar("T")


class _Remembered(NamedTuple):
    queues: list[MessageQueue]
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
        clock: Clock | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client = client
        self._retries = retries
        self._interval_s = retry_interval_ms / 1000
        self._ttl_s = ttl_ms / 1000
        self._clock = clock or SystemClock()
        self._sleep = sleep
        self._queues: dict[str, _Remembered] = {}

    def topics(self) -> list[str]:
        return self._asked(lambda core: TopicAdmin(core.reach).names())

    def queues(self, topic: str) -> list[MessageQueue]:
        known = self._queues.get(topic)
        if known is None or self._clock.monotonic() >= known.until:
            found = self._asked(lambda core: _readable(core, topic))
            known = self._queues[topic] = _Remembered(found, self._clock.monotonic() + self._ttl_s)
        return known.queues

    def bounds(self, queues: Sequence[MessageQueue]) -> dict[MessageQueue, Bounds]:
        return self._of_each(queues, lambda core, queue: core.bounds(queue))

    def offsets_at(self, times_ms: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        return self._of_each(
            list(times_ms),
            lambda core, queue: core.reach.brokers.offsets.at_time(core.reach.wire_queue(queue), times_ms[queue]),
        )

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
                with suppress(ImpossibleRequest):  # somebody else was faster
                    await GroupAdmin(core.reach).create(group, brokers=[queue.broker_name])
                await core.reach.brokers.offsets.commit(name, wire_queue, places[queue])

        self._of_each(list(places), commit)

    def earliest_store_ms(self, queues: Sequence[MessageQueue]) -> dict[MessageQueue, int]:
        return self._of_each(
            queues, lambda core, queue: core.reach.brokers.offsets.earliest_store_ms(core.reach.wire_queue(queue))
        )

    def bytes_per_message(self, group: str, places: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """About how large messages are behind these places, by a look at some of each; queues that end there are left out."""

        async def size(core: ReadingCore, queue: MessageQueue) -> int:
            wanted = Subscription.parse(queue.topic)
            pulled = await core.puller(group).pull(queue, places[queue], wanted, SAMPLED_MESSAGES, SAMPLED_BYTES)
            return len(pulled.records) // max(1, pulled.next_offset - places[queue])

        return {queue: found for queue, found in self._of_each(list(places), size).items() if found}

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
                return self._client.run(ask(self._client.core()))
            except PocketMQError as error:
                if not (error.retriable and left):
                    raise
                log.warning("asking brokers failed and is tried again: %s: %s", type(error).__name__, error)
                self._sleep(self._interval_s)
        raise AssertionError("the last attempt returns or raises")


async def _readable(core: ReadingCore, topic: str) -> list[MessageQueue]:
    name: TopicName = core.reach.topic(topic)
    return [core.reach.shown_queue(queue) for queue in (await core.reach.route(name)).readable]
