"""Lag: how far a group is behind, in messages and in time. What nobody knows is None, never 0 and never -1.

    min ────── committed ────────────── max
     │             │<──── messages ────>│        time: how long the oldest of them has been there
     committed │ min ──────────── max
               │<─────── messages ─>│            committed … min were deleted before the group had read them: `lost`
     min ───────── max      committed            beyond the end: the topic was made anew, or the group moved there;
                                                 how many it will miss is unknown until it is reset

Offsets of a group that broadcasts are kept by its members, so brokers know of none.

How far a group is behind, asked of all brokers at once; `lag` says what the answers mean.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from pocketmq.client.admin.targets import BrokerAddress, Targets, first_at
from pocketmq.codes import VERSION, Version
from pocketmq.errors import GroupNotFound, PocketMQError, TopicNotFound
from pocketmq.model.names import GroupName, TopicName
from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.bodies.stats import ConsumeStats, OffsetProgress


class QueueLag(msgspec.Struct, frozen=True, kw_only=True):
    """A group in one queue."""

    queue: MessageQueue
    min_offset: int | None = None
    max_offset: int | None = None
    committed: int | None = None
    """The offset of the next message that it will read."""
    messages: int | None = None
    time_ms: int | None = None
    """How long the oldest message that it has not read has been stored; 0 when it has read all."""
    lost: int = 0
    """Messages that were deleted before it had read them."""
    problem: str = ""
    """Why something is unknown."""


class GroupLag(msgspec.Struct, frozen=True, kw_only=True):
    """A group in all its queues, at one moment."""

    group: str
    at_ms: int
    queues: tuple[QueueLag, ...]
    per_s: float | None = None
    """Messages that it reads a second."""

    @property
    def is_known(self) -> bool:
        """Whether its lag is known in every queue, of which there is one at least: a group that reads nothing has no lag."""
        return bool(self.queues) and all(queue.messages is not None for queue in self.queues)

    @property
    def messages(self) -> int | None:
        """In all queues together; None when it is unknown in one of them."""
        return sum(queue.messages or 0 for queue in self.queues) if self.is_known else None

    @property
    def time_ms(self) -> int | None:
        """In the queue that is the furthest behind; None when it is unknown in one of them."""
        known = [queue.time_ms for queue in self.queues if queue.time_ms is not None]
        return max(known) if known and len(known) == len(self.queues) else None

    def of_topic(self, topic: str) -> "GroupLag":
        """The same, for one of its topics."""
        return msgspec.structs.replace(self, queues=tuple(each for each in self.queues if each.queue.topic == topic))


def queue_lag(queue: MessageQueue, min_offset: int | None, max_offset: int, committed: int | None) -> QueueLag:
    """From what a broker says. The time of a queue that is behind is still to be asked for: see `next_offset`."""
    messages, lost, problem = None, 0, ""
    if committed is None:
        problem = "the group has no offset in this queue"
    elif committed > max_offset:
        problem = f"the group is at {committed}, and the queue ends at {max_offset}: reset it"
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
    """The offset of the oldest message that the group has not read; None when there is none, or it is unknown."""
    if not lag.messages or lag.committed is None:
        return None
    return max(lag.committed, lag.min_offset or 0)


def with_time(lag: QueueLag, store_ms: int | None, now_ms: int) -> QueueLag:
    """Now that it is known when the oldest unread message was stored; None when it could not be read."""
    if store_ms is None:
        return msgspec.structs.replace(lag, problem="the oldest unread message could not be read")
    return msgspec.structs.replace(lag, time_ms=max(0, now_ms - store_ms))


def unknown(queue: MessageQueue, problem: str) -> QueueLag:
    """Of a queue that nobody could be asked about."""
    return QueueLag(queue=queue, problem=problem)


Limits = Mapping[MessageQueue, int]
"""Where queues begin."""
StoredOffsets = Mapping[str, Mapping[int, int]]
"""A broker's whole table: by `topic@group`, then by queue."""
Problems = Mapping[str, str]
"""Why a broker could not be asked, by its name."""


async def group_lag(targets: Targets, group: GroupName, topic: TopicName | None) -> GroupLag:
    """A group in one topic, or in all that it has offsets in or wants; GroupNotFound and TopicNotFound when there is no such."""
    stats, problems = await _progress(targets, group, topic)
    rows = {queue: row for one in stats for queue, row in one.offset_table.items()}
    topics = sorted({queue.topic for queue in rows} | ({topic} if topic else set()))
    begins = await _begins(targets, topics)
    absent = await _never_there(targets, group, [queue for queue, row in rows.items() if not row.consumer_offset])

    async def of_queue(queue: MessageQueue) -> QueueLag:
        committed = None if queue in absent else rows[queue].consumer_offset
        try:
            return await _of_queue(targets, queue, begins.get(queue), rows[queue], committed)
        except PocketMQError as error:
            return unknown(queue, f"{type(error).__name__}: {error}")

    lags = await targets.gather(sorted(rows), of_queue)
    lags += await _unasked(targets, topics, problems)
    if not lags:
        if not await _is_known(targets, group):
            raise GroupNotFound(f"no broker knows the group {targets.shown(group)!r}")
        if topic is not None:
            await targets.route(topic)  # a group that has read nothing of a topic is not one that reads no such topic
    return GroupLag(
        group=targets.shown(group),
        at_ms=targets.clock.now_ms(),
        queues=tuple(replace(lag, queue=targets.shown_queue(lag.queue)) for lag in lags),
        per_s=sum(one.consume_tps for one in stats) if stats else None,
    )


async def all_lags(targets: Targets) -> list[GroupLag]:
    """Every group that has offsets, in messages only, by two questions to each broker: what lies how deep is not looked up.

    A broker that cannot be asked leaves out its queues; who needs to know asks for one group.
    """
    state = targets.brokers.state
    told, failed = await targets.gather_what_goes(
        await targets.masters(), lambda place: state.consume_stats(place.address)
    )
    if failed and not told:
        raise next(iter(failed.values()))
    stored = await targets.gather(list(told), lambda place: state.consumer_offsets(place.address))
    lags: dict[str, list[GroupLag]] = {}
    for table, offsets in zip(told.values(), stored, strict=True):
        for by_group in table.consume_stats_list:
            for group, stats in by_group.items():
                if targets.is_ours(group):
                    lags.setdefault(group, []).append(_without_time(targets, group, stats, offsets.offset_table))
    return [_together(parts) for _, parts in sorted(lags.items())]


def _without_time(targets: Targets, group: str, stats: Iterable[ConsumeStats], stored: StoredOffsets) -> GroupLag:
    """A group at one broker. Statistics say 0 of a queue in which the group never was; what is stored says whether it was."""
    queues = []
    for queue, row in ((queue, row) for one in stats for queue, row in one.offset_table.items()):
        was_there = row.consumer_offset or queue.queue_id in stored.get(f"{queue.topic}@{group}", {})
        committed = row.consumer_offset if was_there else None
        queues.append(queue_lag(targets.shown_queue(queue), None, row.broker_offset, committed))
    per_s = sum(one.consume_tps for one in stats)
    return GroupLag(group=targets.shown(group), at_ms=targets.clock.now_ms(), queues=tuple(queues), per_s=per_s)


def _together(parts: Sequence[GroupLag]) -> GroupLag:
    queues = tuple(queue for part in parts for queue in part.queues)
    return replace(parts[0], queues=queues, per_s=sum(part.per_s or 0 for part in parts))


async def stored_offset(targets: Targets, group: GroupName, queue: MessageQueue) -> int | None:
    """Where a group is in one queue; None when it never was there."""
    absent = await _never_there(targets, group, [queue])
    return None if queue in absent else await targets.brokers.offsets.of_group(group, queue)


async def _progress(targets: Targets, group: GroupName, topic: TopicName | None) -> tuple[list[ConsumeStats], Problems]:
    """What each broker says of all topics in which the group has offsets, and of those that its members want."""
    calls = targets.brokers.groups
    places = await targets.masters()
    found, failed = await targets.gather_what_goes(places, lambda place: calls.progress(place.address, group, topic))
    stats = list(found.values())
    if topic is None:
        known = {queue.topic for one in stats for queue in one.offset_table}
        asked = [(place, wanted) for place in found for wanted in sorted(await _wanted(targets, group, place) - known)]
        more, _ = await targets.gather_what_goes(asked, lambda pair: calls.progress(pair[0].address, group, pair[1]))
        stats += more.values()
    problems = {
        place.name: f"{type(error).__name__}: {error}"
        for place, error in failed.items()
        if not isinstance(error, TopicNotFound)
    }
    return stats, problems


async def _wanted(targets: Targets, group: GroupName, place: BrokerAddress) -> set[str]:
    """The topics that members of the group subscribe to; none when it has no members."""
    try:
        return set((await targets.brokers.members.consumers(place.address, group)).subscription_table)
    except PocketMQError:
        return set()


async def _begins(targets: Targets, topics: Iterable[str]) -> Limits:
    asked = [(place, topic) for place in await targets.masters() for topic in topics]
    calls = targets.brokers.topics
    found, _ = await targets.gather_what_goes(asked, lambda pair: calls.stats(pair[0].address, pair[1]))
    return {queue: one.min_offset for table in found.values() for queue, one in table.offset_table.items()}


async def _never_there(targets: Targets, group: GroupName, queues: Iterable[MessageQueue]) -> set[MessageQueue]:
    """Those of `queues` in which the group has no offset. Statistics say 0 of them, as of one that stands at its begin.

    RocketMQ 4.9 says 0 even when asked for the offset itself. Only its whole table tells.
    """
    absent = set()
    tables: dict[str, StoredOffsets] = {}
    for queue in queues:
        name = queue.broker_name
        if name not in tables and await _version(targets, name) < Version.V5_0_0:
            tables[name] = (await targets.brokers.state.consumer_offsets(name)).offset_table
        if name in tables:
            is_there = queue.queue_id in tables[name].get(f"{queue.topic}@{group}", {})
        else:
            is_there = await targets.brokers.offsets.of_group(group, queue) is not None
        if not is_there:
            absent.add(queue)
    return absent


async def _version(targets: Targets, broker: str) -> int:
    """What a broker's answer to our heartbeat said."""
    address = targets.brokers.master(broker)
    await targets.brokers.peer(address)
    await targets.instance.heartbeats.wait_answered(address)
    return targets.instance.heartbeats.versions.get(address, VERSION)


async def _of_queue(
    targets: Targets, queue: MessageQueue, begin: int | None, row: OffsetProgress, committed: int | None
) -> QueueLag:
    end = row.broker_offset
    if committed is not None and committed > end:  # it may have gone on since the broker looked
        end = await targets.brokers.offsets.largest(queue)
    lag = queue_lag(queue, begin, end, committed)
    offset = next_offset(lag)
    if offset is None:
        return lag
    message = await first_at(targets, queue, offset)
    return with_time(lag, None if message is None else message.store_ms, targets.clock.now_ms())


async def _unasked(targets: Targets, topics: Iterable[str], problems: Problems) -> list[QueueLag]:
    """The queues of brokers that could not be asked."""
    if not problems:
        return []
    routes = await targets.gather([TopicName(topic) for topic in topics], targets.route)
    queues = [queue for route in routes for queue in route.readable if queue.broker_name in problems]
    return [unknown(queue, problems[queue.broker_name]) for queue in queues]


async def _is_known(targets: Targets, group: GroupName) -> bool:
    calls = targets.brokers.groups
    found, _ = await targets.gather_what_goes(await targets.masters(), lambda place: calls.all_configs(place.address))
    return any(group in table.subscription_group_table for table in found.values())
