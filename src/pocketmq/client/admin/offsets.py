"""Offsets of consumer groups: query, lag, reset, clone.

A reset first makes a plan for each queue, checks it at every broker, and then applies it in the way of the broker:

    server-side reset (5.x, PocketMQ)    the broker gets the offset of each queue; members get it with their next pull
    client-side reset (4.9)
        the group has members            the broker gets the time, finds the offsets, and sends them to the members
        it has no member                 the offsets are committed, as a member does
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from pocketmq.client.admin.lag import GroupLag, all_lags, group_lag, stored_offset
from pocketmq.client.admin.targets import BrokerAddress, Operations, Targets
from pocketmq.client.consumer.first_offsets import start_time_ms
from pocketmq.errors import ConsumerNotOnline, GroupNotFound, ImpossibleRequest, NotFound, UsageError
from pocketmq.model import GroupName, MessageQueue, TopicName
from pocketmq.protocol.api.messages import ResetOffset

ResetTo = Literal["earliest", "latest"] | int | datetime | timedelta | Mapping[MessageQueue, int]
"""`"earliest"`, `"latest"`, a time (milliseconds, a datetime, a timedelta before now), or offsets by queue."""

SERVER_SIDE_KEY = "useServerSideResetOffset"
LATEST_MS = -1
"""The time that brokers interpret as the end of a queue."""
EARLIEST_MS = 0


class QueueReset(msgspec.Struct, frozen=True, kw_only=True):
    """The reset of one queue: the committed offset before and after it."""

    queue: MessageQueue
    min_offset: int
    max_offset: int
    before: int | None
    """None without a committed offset."""
    after: int

    @property
    def again(self) -> int:
        """The number of messages that are delivered again."""
        return max(0, (self.before or 0) - self.after)

    @property
    def skipped(self) -> int:
        """The number of messages that are never delivered."""
        return max(0, self.after - max(self.before or 0, self.min_offset))


class Reset(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a reset, or its plan if `is_done` is False."""

    group: str
    topic: str
    queues: tuple[QueueReset, ...]
    is_done: bool


class ResetWay(NamedTuple):
    """How one broker resets the group."""

    broker: str
    is_server_side: bool
    has_members: bool


async def plan_reset(targets: Targets, group: GroupName, topic: TopicName, to: ResetTo) -> list[QueueReset]:
    """The new offset of each queue. Raises UsageError for offsets out of range."""
    queues = list((await targets.route(topic)).readable)
    if isinstance(to, Mapping):
        wanted = {targets.wire_queue(queue): offset for queue, offset in to.items()}
        if strange := [queue for queue in wanted if queue not in queues]:
            raise UsageError(f"{strange[0]} is not a readable queue of topic {topic!r}")
        return await targets.gather(
            list(wanted), lambda queue: _plan_queue(targets, group, queue, offset=wanted[queue])
        )
    time_ms = _time_ms(to, targets.clock.now_ms())
    return await targets.gather(queues, lambda queue: _plan_queue(targets, group, queue, time_ms=time_ms))


async def check_plan(targets: Targets, group: GroupName, to: ResetTo, plan: list[QueueReset]) -> list[ResetWay]:
    """How each broker resets the group. Raises GroupNotFound or ImpossibleRequest if one cannot, before any change."""
    brokers = sorted({row.queue.broker_name for row in plan})
    ways = await targets.gather(brokers, lambda broker: _way(targets, broker, group))
    for way in ways:
        if isinstance(to, Mapping) and way.has_members and not way.is_server_side:
            raise ImpossibleRequest(
                f"broker {way.broker} can reset running members to a time only: stop them first, or give a time"
            )
        rows = [row for row in plan if row.queue.broker_name == way.broker]
        is_new = not way.has_members and all(row.before is None for row in rows)
        if is_new and not await _is_known(targets, way.broker, group):
            raise GroupNotFound(f"broker {way.broker} does not have the group {targets.shown(group)!r}")
    return ways


async def do_reset(
    targets: Targets, group: GroupName, topic: TopicName, to: ResetTo, plan: list[QueueReset], ways: list[ResetWay]
) -> None:
    """Apply the plan at every broker."""
    time_ms = None if isinstance(to, Mapping) else _time_ms(to, targets.clock.now_ms())
    for broker, is_server_side, has_members in ways:
        rows = [row for row in plan if row.queue.broker_name == broker]
        if is_server_side:
            for row in rows:
                queue_id = row.queue.queue_id
                header = ResetOffset(group, topic, LATEST_MS, is_force=True, queue_id=queue_id, offset=row.after)
                await targets.brokers.offsets.reset(broker, header)
        elif has_members:
            assert time_ms is not None, "check_plan has refused offsets"
            for row in rows:
                if row.before is None:  # RocketMQ 4.9 resets only groups with a committed offset in every queue
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
            raise UsageError(f"offset {offset} is out of range; {queue} has offsets {begin} to {end}")
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
    """Lists all groups, because a query for one group creates it at a broker of RocketMQ."""
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


class OffsetAdmin(Operations):
    """Offsets of groups."""

    async def committed(self, group: str, topic: str) -> dict[MessageQueue, int | None]:
        """The committed offset of a group in each queue of a topic; None without one."""
        name = self._targets.group(group)
        queues = list((await self._targets.route(self._targets.topic(topic))).readable)
        offsets = await self._targets.gather(queues, lambda queue: stored_offset(self._targets, name, queue))
        return {self._targets.shown_queue(queue): offset for queue, offset in zip(queues, offsets, strict=True)}

    async def lag(self, group: str, topic: str | None = None) -> GroupLag:
        """The lag of a group in messages and in time, in one topic, or in all its topics and the retry topic.

        The lag of a queue is unknown if its broker does not answer, or if the group has no committed offset in it. Raises
        GroupNotFound if no broker has the group, and TopicNotFound if the topic does not exist.
        """
        wire_topic = None if topic is None else self._targets.topic(topic)
        return await group_lag(self._targets, self._targets.group(group), wire_topic)

    async def all_lags(self) -> list[GroupLag]:
        """The lag of every group in messages, with two requests to each broker."""
        return await all_lags(self._targets)

    async def reset(self, group: str, topic: str, to: ResetTo, *, dry_run: bool = False) -> Reset:
        """Set the offsets of a group to `"earliest"`, `"latest"`, a time, or given offsets by queue.

        A time is milliseconds, a datetime, or a timedelta before now. With `dry_run`, this checks and returns the plan, and
        changes nothing. Brokers of RocketMQ 4.9 can reset a group with members to a time only.
        """
        name, wire_topic = self._targets.group(group), self._targets.topic(topic)
        plan = await plan_reset(self._targets, name, wire_topic, to)
        ways = await check_plan(self._targets, name, to, plan)
        if not dry_run:
            await do_reset(self._targets, name, wire_topic, to, plan, ways)
        rows = tuple(replace(row, queue=self._targets.shown_queue(row.queue)) for row in plan)
        return Reset(group=group, topic=topic, queues=rows, is_done=not dry_run)

    async def clone(self, source: str, target: str, topic: str, *, dry_run: bool = False) -> dict[MessageQueue, int]:
        """Copy the offsets of `source` in a topic to `target`, and return them. Raises GroupNotFound without `target`.

        Raises ImpossibleRequest if `target` has members, because they would overwrite the offsets, or if no member has
        applied an earlier reset of `target`, because that reset overrides committed offsets.
        """
        name = self._targets.group(target)
        where = await self.committed(source, topic)
        known = {queue: offset for queue, offset in where.items() if offset is not None}
        if not known:
            raise NotFound(f"group {source!r} has no offset in topic {topic!r}")
        brokers = await self._targets.masters()
        if any(await self._targets.gather(brokers, lambda broker: self._has_members(broker, name))):
            raise ImpossibleRequest(f"group {target!r} has members, which would overwrite its offsets: stop them first")
        if not dry_run:
            for queue, offset in known.items():
                await self._targets.brokers.offsets.commit(name, self._targets.wire_queue(queue), offset)
            now = await self.committed(target, topic)
            if any(now[queue] != offset for queue, offset in known.items()):
                raise ImpossibleRequest(
                    f"no member of group {target!r} has applied its reset in topic {topic!r}, which overrides the clone: "
                    "reset the group to these offsets instead, or start a member"
                )
        return known

    async def _has_members(self, broker: BrokerAddress, group: GroupName) -> bool:
        try:
            return bool((await self._targets.brokers.members.consumers(broker.address, group)).connection_set)
        except ConsumerNotOnline:
            return False
