"""Offsets of groups: where they are, how far behind, moving them, and copying one group's to another."""

from msgspec.structs import replace

from pocketmq.client.administration.lag import GroupLag
from pocketmq.client.administration.progress import all_lags, group_lag, stored_offset
from pocketmq.client.administration.reach import BrokerPlace, Reach
from pocketmq.client.administration.resets import Reset, ResetTo, do_reset, look_ahead, plan_reset
from pocketmq.errors import ConsumerNotOnline, ImpossibleRequest, NotFound
from pocketmq.model.names import GroupName
from pocketmq.model.queue import MessageQueue


class OffsetAdmin:
    """Where groups are."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    async def committed(self, group: str, topic: str) -> dict[MessageQueue, int | None]:
        """Where a group is in each queue of a topic; None where it never was."""
        name = self._reach.group(group)
        queues = list((await self._reach.route(self._reach.topic(topic))).readable)
        offsets = await self._reach.gather(queues, lambda queue: stored_offset(self._reach, name, queue))
        return {self._reach.shown_queue(queue): offset for queue, offset in zip(queues, offsets, strict=True)}

    async def lag(self, group: str, topic: str | None = None) -> GroupLag:
        """How far a group is behind, in messages and in time, in one topic or in all that it reads, its retries among them.

        What a broker says is of one moment. A broker that cannot be asked leaves its queues unknown, and so does a queue
        in which the group never was. GroupNotFound when no broker has heard of the group, TopicNotFound for a topic that is none.
        """
        wire_topic = None if topic is None else self._reach.topic(topic)
        return await group_lag(self._reach, self._reach.group(group), wire_topic)

    async def all_lags(self) -> list[GroupLag]:
        """How far every group is behind, in messages only. Two questions to each broker, however many groups there are."""
        return await all_lags(self._reach)

    async def reset(self, group: str, topic: str, to: ResetTo, *, dry_run: bool = False) -> Reset:
        """Let a group go on elsewhere: at `"earliest"`, `"latest"`, a time, or the offsets of a table by queue.

        A time is milliseconds, a datetime, or a timedelta before now. With `dry_run` nothing is done: what would be is
        returned, and what could not be done is refused. Running members at brokers of RocketMQ 4.9 can be sent to a time only, not to given offsets.
        """
        name, wire_topic = self._reach.group(group), self._reach.topic(topic)
        plan = await plan_reset(self._reach, name, wire_topic, to)
        ways = await look_ahead(self._reach, name, to, plan)
        if not dry_run:
            await do_reset(self._reach, name, wire_topic, to, plan, ways)
        rows = tuple(replace(row, queue=self._reach.shown_queue(row.queue)) for row in plan)
        return Reset(group=group, topic=topic, queues=rows, is_done=not dry_run)

    async def clone(self, source: str, target: str, topic: str, *, dry_run: bool = False) -> dict[MessageQueue, int]:
        """Let `target` stand in a topic where `source` stands, which is returned. GroupNotFound when there is no `target`.

        ImpossibleRequest while `target` has members, who would soon commit what they think; and when it was reset before and
        nobody has followed yet, for then the reset counts and not what was cloned.
        """
        name = self._reach.group(target)
        where = await self.committed(source, topic)
        known = {queue: offset for queue, offset in where.items() if offset is not None}
        if not known:
            raise NotFound(f"group {source!r} has no offset in topic {topic!r}")
        places = await self._reach.masters()
        if any(await self._reach.gather(places, lambda place: self._has_members(place, name))):
            raise ImpossibleRequest(f"group {target!r} has members, who would overwrite its offsets: stop them first")
        if not dry_run:
            for queue, offset in known.items():
                await self._reach.brokers.offsets.commit(name, self._reach.wire_queue(queue), offset)
            now = await self.committed(target, topic)
            if any(now[queue] != offset for queue, offset in known.items()):
                raise ImpossibleRequest(
                    f"group {target!r} was reset in topic {topic!r} and no member has followed yet, which comes first: "
                    "reset it to these offsets instead, or start a member"
                )
        return known

    async def _has_members(self, place: BrokerPlace, group: GroupName) -> bool:
        try:
            return bool((await self._reach.brokers.members.consumers(place.address, group)).connection_set)
        except ConsumerNotOnline:
            return False
