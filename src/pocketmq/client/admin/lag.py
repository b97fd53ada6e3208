"""The lag of consumer groups, in messages and in time. None stands for an unknown value, never 0 or -1.

    min ────── committed ────────────── max
     │             │<──── messages ────>│        time: since the oldest of these messages was stored
     committed │ min ──────────── max
               │<─────── messages ─>│            committed to min: `lost`, deleted before the group consumed them
     min ───────── max      committed            above the end: the topic was created again, or the offset was set there;
                                                 the lag is unknown until a reset

Members of a broadcast group keep their offsets themselves, so its lag is unknown.

Messages that members popped are before the committed offset. PocketMQ's broker says how many of them are leased, and
since when. Those that wait for another attempt are the lag of the retry topics.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from pocketmq.client.admin.targets import BrokerAddress, Targets, first_at
from pocketmq.codes import VERSION, Version
from pocketmq.errors import GroupNotFound, PocketMQError, TopicNotFound
from pocketmq.model import GroupName, MessageQueue, TopicName
from pocketmq.model.names import is_retry
from pocketmq.protocol.bodies.topics import ConsumeStats, OffsetProgress


class QueueLag(msgspec.Struct, frozen=True, kw_only=True):
    """The lag of a group in one queue."""

    queue: MessageQueue
    min_offset: int | None = None
    max_offset: int | None = None
    committed: int | None = None
    """The committed offset: the next message to consume."""
    messages: int | None = None
    time_ms: int | None = None
    """The time since the oldest unconsumed message was stored; 0 if all are consumed."""
    lost: int = 0
    """Messages that were deleted before the group consumed them."""
    problem: str = ""
    """The reason for unknown values."""
    leased: int | None = None
    """Messages that members popped and neither acknowledged nor gave back; None if the broker does not say it, or for none."""
    leased_ms: int | None = None
    """The time since the oldest of these leases began."""


class GroupLag(msgspec.Struct, frozen=True, kw_only=True):
    """The lag of a group in its queues at one moment."""

    group: str
    at_ms: int
    queues: tuple[QueueLag, ...]
    per_s: float | None = None
    """Messages consumed per second."""

    @property
    def is_known(self) -> bool:
        """Whether the lag of every queue is known, and there is at least one queue."""
        return bool(self.queues) and all(queue.messages is not None for queue in self.queues)

    @property
    def messages(self) -> int | None:
        """The sum of all queues; None if one is unknown."""
        return sum(queue.messages or 0 for queue in self.queues) if self.is_known else None

    @property
    def time_ms(self) -> int | None:
        """The maximum of all queues; None if one is unknown."""
        known = [queue.time_ms for queue in self.queues if queue.time_ms is not None]
        return max(known) if known and len(known) == len(self.queues) else None

    @property
    def leased(self) -> int:
        """Leased messages of all queues, as far as brokers say it."""
        return sum(queue.leased or 0 for queue in self.queues)

    @property
    def leased_ms(self) -> int | None:
        """The time since the oldest lease began; None without any."""
        return max((queue.leased_ms for queue in self.queues if queue.leased_ms is not None), default=None)

    @property
    def retries(self) -> int:
        """Messages that wait for another attempt, as far as they are known. They are part of the lag."""
        return sum(queue.messages or 0 for queue in self.queues if is_retry(queue.queue.topic))

    def of_topic(self, topic: str) -> "GroupLag":
        """The part of one topic."""
        return msgspec.structs.replace(self, queues=tuple(each for each in self.queues if each.queue.topic == topic))


def queue_lag(queue: MessageQueue, min_offset: int | None, max_offset: int, committed: int | None) -> QueueLag:
    """The lag in messages from the offsets at a broker. For the time, read the message at `next_offset` and call `with_time`."""
    messages, lost, problem = None, 0, ""
    if committed is None:
        problem = "the group has no offset in this queue"
    elif committed > max_offset:
        problem = f"the committed offset {committed} is above the end of the queue, {max_offset}: reset the group"
    else:
        first = max(committed, min_offset or 0)
        messages, lost = max(0, max_offset - first), first - committed
    return QueueLag(
        queue=queue,
        min_offset=min_offset,
        max_offset=max_offset,
        committed=committed,
        messages=messages,
        time_ms=0 if messages == 0 else None,
        lost=lost,
        problem=problem,
    )


def next_offset(lag: QueueLag) -> int | None:
    """The offset of the oldest unconsumed message; None without one, or if it is unknown."""
    if not lag.messages or lag.committed is None:
        return None
    return max(lag.committed, lag.min_offset or 0)


def with_time(lag: QueueLag, store_ms: int | None, now_ms: int) -> QueueLag:
    """The lag with its time, from the store time of the oldest unconsumed message; None if that could not be read."""
    if store_ms is None:
        return msgspec.structs.replace(lag, problem="the oldest unconsumed message could not be read")
    return msgspec.structs.replace(lag, time_ms=max(0, now_ms - store_ms))


def with_leases(lag: QueueLag, row: OffsetProgress, now_ms: int) -> QueueLag:
    """The lag with the leases of the queue."""
    if row.leased is None:
        return lag
    since_ms = None if row.leased_since is None else max(0, now_ms - row.leased_since)
    return replace(lag, leased=row.leased, leased_ms=since_ms)


def unknown(queue: MessageQueue, problem: str) -> QueueLag:
    """The lag of a queue whose broker did not answer."""
    return QueueLag(queue=queue, problem=problem)


Limits = Mapping[MessageQueue, int]
"""The minimum offsets of queues."""
StoredOffsets = Mapping[str, Mapping[int, int]]
"""All committed offsets at a broker: by `topic@group`, then by queue id."""
Problems = Mapping[str, str]
"""The errors of brokers that did not answer, by broker name."""


async def group_lag(targets: Targets, group: GroupName, topic: TopicName | None) -> GroupLag:
    """The lag in one topic, or in all topics with offsets or subscriptions of the group. Raises GroupNotFound, TopicNotFound."""
    stats, problems = await _stats(targets, group, topic)
    rows = {queue: row for one in stats for queue, row in one.offset_table.items()}
    topics = sorted({queue.topic for queue in rows} | ({topic} if topic else set()))
    begins = await _begins(targets, topics)
    absent = await _without_offset(targets, group, [queue for queue, row in rows.items() if not row.consumer_offset])

    async def of_queue(queue: MessageQueue) -> QueueLag:
        committed = None if queue in absent else rows[queue].consumer_offset
        try:
            return await _of_queue(targets, queue, begins.get(queue), rows[queue], committed)
        except PocketMQError as error:
            return unknown(queue, f"{type(error).__name__}: {error}")

    lags = await targets.gather(sorted(rows), of_queue)
    lags += await _unanswered(targets, topics, problems)
    if not lags:
        if not await _is_known(targets, group):
            raise GroupNotFound(f"no broker knows the group {targets.shown(group)!r}")
        if topic is not None:
            await targets.route(topic)  # raises TopicNotFound; a group without offsets in an existing topic is no error
    return GroupLag(
        group=targets.shown(group),
        at_ms=targets.clock.now_ms(),
        queues=tuple(replace(lag, queue=targets.shown_queue(lag.queue)) for lag in lags),
        per_s=sum(one.consume_tps for one in stats) if stats else None,
    )


async def all_lags(targets: Targets) -> list[GroupLag]:
    """The lag of every group that has offsets, in messages only, with two requests to each broker.

    Queues of brokers that do not answer are missing; `group_lag` reports them.
    """
    state = targets.brokers.state
    answers, failed = await targets.gather_with_errors(
        await targets.masters(), lambda broker: state.consume_stats(broker.address, is_order=False)
    )
    if failed and not answers:
        raise next(iter(failed.values()))
    stored = await targets.gather(list(answers), lambda broker: state.consumer_offsets(broker.address))
    lags: dict[str, list[GroupLag]] = {}
    for table, offsets in zip(answers.values(), stored, strict=True):
        for by_group in table.consume_stats_list:
            for group, stats in by_group.items():
                if targets.is_ours(group):
                    lags.setdefault(group, []).append(_without_time(targets, group, stats, offsets.offset_table))
    return [_merged(parts) for _, parts in sorted(lags.items())]


def _without_time(targets: Targets, group: str, stats: Iterable[ConsumeStats], stored: StoredOffsets) -> GroupLag:
    """A group at one broker. The statistics have offset 0 for a queue without a committed offset; only `stored` is exact."""
    queues = []
    for queue, row in ((queue, row) for one in stats for queue, row in one.offset_table.items()):
        has_offset = row.consumer_offset or queue.queue_id in stored.get(f"{queue.topic}@{group}", {})
        committed = row.consumer_offset if has_offset else None
        lag = queue_lag(targets.shown_queue(queue), None, row.broker_offset, committed)
        queues.append(with_leases(lag, row, targets.clock.now_ms()))
    per_s = sum(one.consume_tps for one in stats)
    return GroupLag(group=targets.shown(group), at_ms=targets.clock.now_ms(), queues=tuple(queues), per_s=per_s)


def _merged(parts: Sequence[GroupLag]) -> GroupLag:
    queues = tuple(queue for part in parts for queue in part.queues)
    return replace(parts[0], queues=queues, per_s=sum(part.per_s or 0 for part in parts))


async def stored_offset(targets: Targets, group: GroupName, queue: MessageQueue) -> int | None:
    """The committed offset of a group in one queue; None without one."""
    absent = await _without_offset(targets, group, [queue])
    return None if queue in absent else await targets.brokers.offsets.of_group(group, queue)


async def _stats(targets: Targets, group: GroupName, topic: TopicName | None) -> tuple[list[ConsumeStats], Problems]:
    """The statistics of each broker about all topics in which the group has offsets or subscriptions."""
    calls = targets.brokers.groups
    brokers = await targets.masters()
    found, failed = await targets.gather_with_errors(
        brokers, lambda broker: calls.progress(broker.address, group, topic)
    )
    stats = list(found.values())
    if topic is None:
        known = {queue.topic for one in stats for queue in one.offset_table}
        pairs = [
            (broker, wanted) for broker in found for wanted in sorted(await _subscribed(targets, group, broker) - known)
        ]
        more, _ = await targets.gather_with_errors(pairs, lambda pair: calls.progress(pair[0].address, group, pair[1]))
        stats += more.values()
    problems = {
        broker.name: f"{type(error).__name__}: {error}"
        for broker, error in failed.items()
        if not isinstance(error, TopicNotFound)
    }
    return stats, problems


async def _subscribed(targets: Targets, group: GroupName, broker: BrokerAddress) -> set[str]:
    """The topics to which members of the group subscribe; empty without members."""
    try:
        return set((await targets.brokers.members.consumers(broker.address, group)).subscription_table)
    except PocketMQError:
        return set()


async def _begins(targets: Targets, topics: Iterable[str]) -> Limits:
    pairs = [(broker, topic) for broker in await targets.masters() for topic in topics]
    calls = targets.brokers.topics
    found, _ = await targets.gather_with_errors(pairs, lambda pair: calls.stats(pair[0].address, pair[1]))
    return {queue: one.min_offset for table in found.values() for queue, one in table.offset_table.items()}


async def _without_offset(targets: Targets, group: GroupName, queues: Iterable[MessageQueue]) -> set[MessageQueue]:
    """The queues in which the group has no committed offset. The statistics have 0 for them, which may also be a real offset.

    RocketMQ 4.9 even answers 0 to a query of the offset; only its table of all offsets is exact.
    """
    absent = set()
    tables: dict[str, StoredOffsets] = {}
    for queue in queues:
        name = queue.broker_name
        if name not in tables and await _version(targets, name) < Version.V5_0_0:
            tables[name] = (await targets.brokers.state.consumer_offsets(name)).offset_table
        if name in tables:
            has_offset = queue.queue_id in tables[name].get(f"{queue.topic}@{group}", {})
        else:
            has_offset = await targets.brokers.offsets.of_group(group, queue) is not None
        if not has_offset:
            absent.add(queue)
    return absent


async def _version(targets: Targets, broker: str) -> int:
    """The version in the broker's response to our heartbeat."""
    address = targets.brokers.master(broker)
    await targets.brokers.peer(address)
    await targets.instance.heartbeats.wait_answered(address)
    return targets.instance.heartbeats.versions.get(address, VERSION)


async def _of_queue(
    targets: Targets, queue: MessageQueue, begin: int | None, row: OffsetProgress, committed: int | None
) -> QueueLag:
    end = row.broker_offset
    if committed is not None and committed > end:  # the group may have consumed more since the statistics were made
        end = await targets.brokers.offsets.largest(queue)
    lag = with_leases(queue_lag(queue, begin, end, committed), row, targets.clock.now_ms())
    offset = next_offset(lag)
    if offset is None:
        return lag
    message = await first_at(targets, queue, offset)
    return with_time(lag, None if message is None else message.store_ms, targets.clock.now_ms())


async def _unanswered(targets: Targets, topics: Iterable[str], problems: Problems) -> list[QueueLag]:
    """The queues of brokers that did not answer."""
    if not problems:
        return []
    routes = await targets.gather([TopicName(topic) for topic in topics], targets.route)
    queues = [queue for route in routes for queue in route.readable if queue.broker_name in problems]
    return [unknown(queue, problems[queue.broker_name]) for queue in queues]


async def _is_known(targets: Targets, group: GroupName) -> bool:
    calls = targets.brokers.groups
    found, _ = await targets.gather_with_errors(
        await targets.masters(), lambda broker: calls.all_configs(broker.address)
    )
    return any(group in table.subscription_group_table for table in found.values())
