"""Delayed messages that are not due: those with a delay level, and timed messages, which have a delivery time of their own.

SCHEDULE_TOPIC_XXXX   one queue for each level, delivered in order up to an offset that the broker reports
rmq_sys_wheel_timer   one queue; each message has its delivery time, and a recall has the id of its message
"""

import msgspec

from pocketmq.client.admin.messages import END_OF_TIME_MS, MAX_BY_KEY
from pocketmq.client.admin.targets import BrokerAddress, Operations, check_limit, read_queue, shown_message
from pocketmq.errors import ImpossibleRequest, NotFound
from pocketmq.model import DelayLevels, MessageQueue, StoredMessage
from pocketmq.model import properties as names
from pocketmq.model.delay import DELAY_LEVELS, queue_of_level
from pocketmq.model.message_id import RecallHandle
from pocketmq.model.names import INNER_PRODUCER_GROUP, SCHEDULE_TOPIC, TIMER_TOPIC
from pocketmq.protocol.api.messages import QueryMessage, RecallMessage
from pocketmq.protocol.pop import revive_topic

DEFAULT_LIMIT = 1_000
LEVELS_KEY = "messageDelayLevel"
MAX_DELAY_KEY = "timerMaxDelaySec"
DEFAULT_MAX_DELAY_S = 3 * 24 * 3600
ROLL_SLACK_MS = 3_600_000
"""A broker stores a timed message again at intervals if its time is beyond the timer wheel. This is the longest interval."""

_LEASES = revive_topic("")


class Delayed(msgspec.Struct, frozen=True, kw_only=True):
    """A message that is not due."""

    broker: str
    topic: str
    """The topic in which it will be delivered."""
    due_ms: int
    level: int | None
    """The delay level; None for a timed message."""
    message: StoredMessage


class DelayedMessages(msgspec.Struct, frozen=True, kw_only=True):
    """The delayed messages that were read, in order of delivery time. `is_complete` is False if there are more."""

    found: tuple[Delayed, ...]
    is_complete: bool


class DelayAdmin(Operations):
    """Delayed messages of the cluster."""

    async def waiting(self, *, limit: int = DEFAULT_LIMIT) -> DelayedMessages:
        """Messages that are not due. Reads at most `limit` messages of each level, and `limit` timed messages."""
        check_limit(limit)
        brokers = await self._targets.masters()
        parts = await self._targets.gather(brokers, lambda broker: self._by_level(broker, limit))
        parts += await self._targets.gather(brokers, lambda broker: self._by_time(broker, limit))
        found = sorted((one for part, _ in parts for one in part), key=lambda one: one.due_ms)
        return DelayedMessages(found=tuple(found), is_complete=all(is_complete for _, is_complete in parts))

    async def cancel(self, delayed: Delayed) -> str:
        """Recall a timed message. Returns its id. Raises ImpossibleRequest for a message with a delay level.

        The broker does not check that the message is not delivered yet: use `waiting` or `find_by_handle` first.
        """
        if delayed.level is not None:
            raise ImpossibleRequest(
                f"message {delayed.message.message_id} has delay level {delayed.level}: brokers can recall timed "
                "messages only"
            )
        wire_topic = self._targets.topic(delayed.topic)
        handle = RecallHandle(wire_topic, delayed.broker, delayed.due_ms + 1, delayed.message.message_id)
        return await self.cancel_by_handle(str(handle))

    async def find_by_handle(self, handle: str, *, limit: int = DEFAULT_LIMIT) -> Delayed | None:
        """The message of a `recall_handle` if it is not due; None if it was delivered or recalled, or never existed.

        If the broker has no index of ids, this searches the last `limit` timed messages.
        """
        check_limit(limit)
        meant = RecallHandle.parse(handle)
        broker = await self._targets.master(meant.broker_name)
        if records := await self._with_id(broker, meant.unique_id):
            found = [self._delayed(broker, one, meant.deliver_ms - 1, None) for one in records if _is_meant(one, meant)]
            is_over = meant.deliver_ms <= self._targets.clock.now_ms() or any(_recalls(one, meant) for one in records)
            return found[0] if found and not is_over else None
        waiting, _ = await self._by_time(broker, limit)
        shown = self._targets.shown(meant.topic), meant.deliver_ms - 1, meant.unique_id
        return next((one for one in waiting if (one.topic, one.due_ms, one.message.message_id) == shown), None)

    async def cancel_by_handle(self, handle: str) -> str:
        """Recall a timed message by the `recall_handle` of its send. The broker does not check that the message exists."""
        read = RecallHandle.parse(handle)
        await self._targets.master(read.broker_name)
        header = RecallMessage(read.topic, handle, INNER_PRODUCER_GROUP)
        return await self._targets.brokers.messages.recall(read.broker_name, header)

    async def _with_id(self, broker: BrokerAddress, unique_id: str) -> list[StoredMessage]:
        """Records of the timer topic with this id: the message, its copies, and recalls of it."""
        header = QueryMessage(TIMER_TOPIC, unique_id, MAX_BY_KEY, 0, END_OF_TIME_MS, True)
        try:
            found, _ = await self._targets.brokers.messages.by_key(broker.name, header)
        except NotFound:
            return []
        return found

    async def _by_level(self, broker: BrokerAddress, limit: int) -> tuple[list[Delayed], bool]:
        settings = await self._targets.brokers.state.settings(broker.address)
        levels = DelayLevels(settings[LEVELS_KEY]) if settings.get(LEVELS_KEY) else DELAY_LEVELS
        progress = (await self._targets.brokers.state.delay_offsets(broker.address)).offset_table
        found: list[Delayed] = []
        is_complete = True
        for level in range(1, len(levels) + 1):
            queue = MessageQueue(SCHEDULE_TOPIC, broker.name, queue_of_level(level))
            begin, end = progress.get(level, 0), await self._targets.brokers.offsets.largest(queue)
            is_complete = is_complete and end - begin <= limit
            found += [
                self._delayed(broker, message, levels.due_ms(level, message.store_ms), level)
                async for message in read_queue(self._targets, queue, begin, min(end, begin + limit))
            ]
        return found, is_complete

    async def _by_time(self, broker: BrokerAddress, limit: int) -> tuple[list[Delayed], bool]:
        """Timed messages, each once even if it was stored again, without those that were recalled, and without the records
        of leases.
        """
        settings = await self._targets.brokers.state.settings(broker.address)
        longest_s = settings.get(MAX_DELAY_KEY, "")
        window_ms = (int(longest_s) if longest_s.isdecimal() else DEFAULT_MAX_DELAY_S) * 1000 + ROLL_SLACK_MS
        now_ms = self._targets.clock.now_ms()
        queue = MessageQueue(TIMER_TOPIC, broker.name, 0)
        calls = self._targets.brokers.offsets
        begin, end = await calls.at_time(queue, now_ms - window_ms), await calls.largest(queue)
        waiting: dict[str, Delayed] = {}
        async for message in read_queue(self._targets, queue, max(begin, end - limit), end):
            due_ms = _number(message.properties.get(names.TIMER_OUT_MS))
            topic = message.properties.get(names.REAL_TOPIC, "")
            recalled = message.properties.get(names.TIMER_DEL_UNIQKEY)
            if recalled is not None:
                waiting.pop(recalled, None)
            elif due_ms is not None and due_ms > now_ms and not topic.startswith(_LEASES):
                key = f"{topic}+{message.message_id}"
                waiting[key] = self._delayed(broker, message, due_ms, None)
        return list(waiting.values()), end - begin <= limit

    def _delayed(self, broker: BrokerAddress, message: StoredMessage, due_ms: int, level: int | None) -> Delayed:
        return Delayed(
            broker=broker.name,
            topic=self._targets.shown(message.properties.get(names.REAL_TOPIC, "")),
            due_ms=due_ms,
            level=level,
            message=shown_message(self._targets, message),
        )


def _is_meant(message: StoredMessage, meant: RecallHandle) -> bool:
    """Whether a record of the timer topic is the message of a handle. Brokers compare the delivery time, too."""
    return (
        names.TIMER_DEL_UNIQKEY not in message.properties
        and message.message_id == meant.unique_id
        and message.properties.get(names.REAL_TOPIC) == meant.topic
        and _number(message.properties.get(names.TIMER_OUT_MS)) == meant.deliver_ms - 1
    )


def _recalls(message: StoredMessage, meant: RecallHandle) -> bool:
    return message.properties.get(names.TIMER_DEL_UNIQKEY) == f"{meant.topic}+{meant.unique_id}"


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() and len(text) < 19 else None
