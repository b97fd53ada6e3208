"""Offsets of groups: where they are, how far behind, moving them, and copying one group's to another.

Resets: a group is let go on elsewhere. First a plan, queue by queue; then it is done, in the way that a broker has for it.

the broker resets (5.x, PocketMQ)    told each queue's offset; running members are sent there with their next pull
it has its members reset (4.9)       members are there: told the time, and each broker finds its offsets by itself
                                     nobody is there: the offsets are committed, as a member would
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from pocketmq.client.admin.lag import GroupLag, all_lags, group_lag, stored_offset
from pocketmq.client.admin.targets import BrokerAddress, Targets
from pocketmq.client.consumer.first_offsets import start_time_ms
from pocketmq.errors import ConsumerNotOnline, GroupNotFound, ImpossibleRequest, NotFound, UsageError
from pocketmq.model.names import GroupName, TopicName
from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.api.offsets import ResetOffset

ResetTo = Literal["earliest", "latest"] | int | datetime | timedelta | Mapping[MessageQueue, int]
"""`"earliest"`, `"latest"`, a time (milliseconds, a datetime, a timedelta before now), or offsets by queue."""

SERVER_SIDE_KEY = "useServerSideResetOffset"
LATEST_MS = -1
"""What brokers take for: the end."""
EARLIEST_MS = 0


class QueueReset(msgspec.Struct, frozen=True, kw_only=True):
    """Where a group is in a queue, and where it goes."""

    queue: MessageQueue
    min_offset: int
    max_offset: int
    before: int | None
    """None when it never was there."""
    after: int

    @property
    def again(self) -> int:
        """Messages that come once more."""
        return max(0, (self.before or 0) - self.after)

    @property
    def skipped(self) -> int:
        """Messages that it will never get."""
        return max(0, self.after - max(self.before or 0, self.min_offset))


class Reset(msgspec.Struct, frozen=True, kw_only=True):
    """What a reset does, or would do: `is_done` tells."""

    group: str
    topic: str
    queues: tuple[QueueReset, ...]
    is_done: bool


class ResetWay(NamedTuple):
    """How a broker resets a group."""

    broker: str
    is_server_side: bool
    """By itself."""
    has_members: bool


async def plan_reset(targets: Targets, group: GroupName, topic: TopicName, to: ResetTo) -> list[QueueReset]:
    """Where each queue would go; UsageError for offsets that are not there."""
    queues = list((await targets.route(topic)).readable)
    if isinstance(to, Mapping):
        wanted = {targets.wire_queue(queue): offset for queue, offset in to.items()}
        if strange := [queue for queue in wanted if queue not in queues]:
            raise UsageError(f"{strange[0]} is no queue of topic {topic!r} that can be read")
        return await targets.gather(
            list(wanted), lambda queue: _plan_queue(targets, group, queue, offset=wanted[queue])
        )
    time_ms = _time_ms(to, targets.clock.now_ms())
    return await targets.gather(queues, lambda queue: _plan_queue(targets, group, queue, time_ms=time_ms))


async def look_ahead(targets: Targets, group: GroupName, to: ResetTo, plan: list[QueueReset]) -> list[ResetWay]:
    """How each broker would do it. One that cannot stops it before it has begun: GroupNotFound, ImpossibleRequest."""
    brokers = sorted({row.queue.broker_name for row in plan})
    ways = await targets.gather(brokers, lambda broker: _way(targets, broker, group))
    for way in ways:
        if isinstance(to, Mapping) and way.has_members and not way.is_server_side:
            raise ImpossibleRequest(
                f"broker {way.broker} cannot send running members to given offsets: stop them first, or reset to a time"
            )
        rows = [row for row in plan if row.queue.broker_name == way.broker]
        is_new = not way.has_members and all(row.before is None for row in rows)
        if is_new and not await _is_known(targets, way.broker, group):
            raise GroupNotFound(f"broker {way.broker} does not know the group {targets.shown(group)!r}")
    return ways


async def do_reset(
    targets: Targets, group: GroupName, topic: TopicName, to: ResetTo, plan: list[QueueReset], ways: list[ResetWay]
) -> None:
    """Do it at every broker, in its way."""
    time_ms = None if isinstance(to, Mapping) else _time_ms(to, targets.clock.now_ms())
    for broker, is_server_side, has_members in ways:
        rows = [row for row in plan if row.queue.broker_name == broker]
        if is_server_side:
            for row in rows:
                queue_id = row.queue.queue_id
                header = ResetOffset(group, topic, LATEST_MS, is_force=True, queue_id=queue_id, offset=row.after)
                await targets.brokers.offsets.reset(broker, header)
        elif has_members:
            assert time_ms is not None, "looked at above"
            for row in rows:
                if row.before is None:  # RocketMQ 4.9 knows of no group that has not committed everywhere
                    await targets.brokers.offsets.commit(group, row.queue, row.after)
            await targets.brokers.offsets.reset(broker, ResetOffset(group, topic, time_ms, is_force=True))
        else:
            for row in rows:
                await targets.brokers.offsets.commit(group, row.queue, row.after)


async def _plan_queue(
    targets: Targets, group: GroupName, queue: MessageQueue, *, offset: int | None = None, time_ms: int = LATEST_MS
) -> QueueReset:
    calls = targets.brokers.offsets
    begin, end = await calls.smallest(queue), await calls.largest(queue)
    if offset is not None:
        if not begin <= offset <= end:
            raise UsageError(f"{queue} has no offset {offset}; it has {begin} to {end}")
        after = offset
    elif time_ms in (LATEST_MS, EARLIEST_MS):
        after = end if time_ms == LATEST_MS else begin
    else:
        after = min(max(await calls.at_time(queue, time_ms), begin), end)
    before = await stored_offset(targets, group, queue)
    return QueueReset(queue=queue, min_offset=begin, max_offset=end, before=before, after=after)


async def _way(targets: Targets, broker: str, group: GroupName) -> ResetWay:
    return ResetWay(broker, await _resets_itself(targets, broker), await _is_online(targets, broker, group))


async def _is_known(targets: Targets, broker: str, group: GroupName) -> bool:
    """All are asked for: a broker of RocketMQ that is asked about one makes it."""
    return group in (await targets.brokers.groups.all_configs(broker)).subscription_group_table


async def _resets_itself(targets: Targets, broker: str) -> bool:
    return (await targets.brokers.state.settings(broker)).get(SERVER_SIDE_KEY) == "true"


async def _is_online(targets: Targets, broker: str, group: GroupName) -> bool:
    try:
        return bool((await targets.brokers.members.consumers(broker, group)).connection_set)
    except ConsumerNotOnline:
        return False


def _time_ms(to: ResetTo, now_ms: int) -> int:
    match to:
        case "earliest":
            return EARLIEST_MS
        case "latest":
            return LATEST_MS
        case datetime() | timedelta():
            return start_time_ms(to, now_ms)
        case int() if not isinstance(to, bool) and to >= 0:
            return to
    raise UsageError(f"cannot reset to {to!r}: give 'earliest', 'latest', a time, or offsets by queue")


class OffsetAdmin:
    """Where groups are."""

    def __init__(self, targets: Targets) -> None:
        self._targets = targets

    async def committed(self, group: str, topic: str) -> dict[MessageQueue, int | None]:
        """Where a group is in each queue of a topic; None where it never was."""
        name = self._targets.group(group)
        queues = list((await self._targets.route(self._targets.topic(topic))).readable)
        offsets = await self._targets.gather(queues, lambda queue: stored_offset(self._targets, name, queue))
        return {self._targets.shown_queue(queue): offset for queue, offset in zip(queues, offsets, strict=True)}

    async def lag(self, group: str, topic: str | None = None) -> GroupLag:
        """How far a group is behind, in messages and in time, in one topic or in all that it reads, its retries among them.

        What a broker says is of one moment. A broker that cannot be asked leaves its queues unknown, and so does a queue
        in which the group never was. GroupNotFound when no broker has heard of the group, TopicNotFound for a topic that is none.
        """
        wire_topic = None if topic is None else self._targets.topic(topic)
        return await group_lag(self._targets, self._targets.group(group), wire_topic)

    async def all_lags(self) -> list[GroupLag]:
        """How far every group is behind, in messages only. Two questions to each broker, however many groups there are."""
        return await all_lags(self._targets)

    async def reset(self, group: str, topic: str, to: ResetTo, *, dry_run: bool = False) -> Reset:
        """Let a group go on elsewhere: at `"earliest"`, `"latest"`, a time, or the offsets of a table by queue.

        A time is milliseconds, a datetime, or a timedelta before now. With `dry_run` nothing is done: what would be is
        returned, and what could not be done is refused. Running members at brokers of RocketMQ 4.9 can be sent to a time only, not to given offsets.
        """
        name, wire_topic = self._targets.group(group), self._targets.topic(topic)
        plan = await plan_reset(self._targets, name, wire_topic, to)
        ways = await look_ahead(self._targets, name, to, plan)
        if not dry_run:
            await do_reset(self._targets, name, wire_topic, to, plan, ways)
        rows = tuple(replace(row, queue=self._targets.shown_queue(row.queue)) for row in plan)
        return Reset(group=group, topic=topic, queues=rows, is_done=not dry_run)

    async def clone(self, source: str, target: str, topic: str, *, dry_run: bool = False) -> dict[MessageQueue, int]:
        """Let `target` stand in a topic where `source` stands, which is returned. GroupNotFound when there is no `target`.

        ImpossibleRequest while `target` has members, who would soon commit what they think; and when it was reset before and
        nobody has followed yet, for then the reset counts and not what was cloned.
        """
        name = self._targets.group(target)
        where = await self.committed(source, topic)
        known = {queue: offset for queue, offset in where.items() if offset is not None}
        if not known:
            raise NotFound(f"group {source!r} has no offset in topic {topic!r}")
        places = await self._targets.masters()
        if any(await self._targets.gather(places, lambda place: self._has_members(place, name))):
            raise ImpossibleRequest(f"group {target!r} has members, who would overwrite its offsets: stop them first")
        if not dry_run:
            for queue, offset in known.items():
                await self._targets.brokers.offsets.commit(name, self._targets.wire_queue(queue), offset)
            now = await self.committed(target, topic)
            if any(now[queue] != offset for queue, offset in known.items()):
                raise ImpossibleRequest(
                    f"group {target!r} was reset in topic {topic!r} and no member has followed yet, which comes first: "
                    "reset it to these offsets instead, or start a member"
                )
        return known

    async def _has_members(self, place: BrokerAddress, group: GroupName) -> bool:
        try:
            return bool((await self._targets.brokers.members.consumers(place.address, group)).connection_set)
        except ConsumerNotOnline:
            return False
