"""Messages: find them by id, key, offset or time; read their traces; deliver them again.

The trace of a message consists of records that its producer and consumers write:

    Pub ──► sent      SubBefore ┐ same request id
                      SubAfter  ┘ ──► one attempt to consume it      EndTransaction ──► decided      Recall ──► recalled
"""

from collections.abc import Iterable

import msgspec

from pocketmq.client.admin.targets import Operations, check_limit, read_queue, shown_message
from pocketmq.client.received import readable
from pocketmq.codes import ResponseCode
from pocketmq.errors import NotFound, ServerFailed, UsageError
from pocketmq.model import MessageQueue, OffsetId, StoredMessage, TopicName, parse_topic
from pocketmq.net import Address
from pocketmq.protocol.api.messages import ConsumeMessageDirectly, QueryMessage, SendMessageBack
from pocketmq.protocol.bodies.clients import DirectConsumption
from pocketmq.protocol.trace_text import EndTransaction, Outcome, Pub, Recall, SubAfter, SubBefore, Trace, decode_trace


class TracedAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt to consume a message. None stands for a value that the consumer has not written."""

    group: str
    request_id: str
    started_ms: int | None = None
    retry_times: int | None = None
    cost_ms: int | None = None
    outcome: Outcome | None = None


class MessageTrace(msgspec.Struct, frozen=True, kw_only=True):
    """The trace records of a message, each kind in order of time."""

    message_id: str
    sent: tuple[Pub, ...] = ()
    attempts: tuple[TracedAttempt, ...] = ()
    decided: tuple[EndTransaction, ...] = ()
    recalled: tuple[Recall, ...] = ()


def trace_of(message_id: str, records: Iterable[Trace]) -> MessageTrace:
    """The trace of one message. A trace body has the records of several messages."""
    own = [record for record in records if getattr(record, "message_id", None) == message_id]
    before = {record.request_id: record for record in own if isinstance(record, SubBefore)}
    after = {record.request_id: record for record in own if isinstance(record, SubAfter)}
    attempts = [_attempt(number, before.get(number), after.get(number)) for number in {**before, **after}]
    return MessageTrace(
        message_id=message_id,
        sent=tuple(sorted((each for each in own if isinstance(each, Pub)), key=lambda each: each.time_ms)),
        attempts=tuple(sorted(attempts, key=lambda each: each.started_ms or 0)),
        decided=tuple(
            sorted((each for each in own if isinstance(each, EndTransaction)), key=lambda each: each.time_ms)
        ),
        recalled=tuple(sorted((each for each in own if isinstance(each, Recall)), key=lambda each: each.time_ms)),
    )


def _attempt(request_id: str, before: SubBefore | None, after: SubAfter | None) -> TracedAttempt:
    return TracedAttempt(
        group=before.group if before else after.group if after else "",
        request_id=request_id,
        started_ms=None if before is None else before.time_ms,
        retry_times=None if before is None else before.retry_times,
        cost_ms=None if after is None else after.cost_ms,
        outcome=None if after is None else after.outcome,
    )


END_OF_TIME_MS = 2**63 - 1
MAX_BY_KEY = 64
"""The limit of brokers for one query."""
DEFAULT_LIMIT = 1_000


class MessageAdmin(Operations):
    """Messages of the cluster. Bodies are decompressed, unless the option `decompress` is False."""

    # finding

    async def by_offset_id(self, offset_id: str, topic: str | None = None) -> StoredMessage:
        """The message with this offset id, such as `SendResult.offset_id`. Raises NotFound if it is deleted.

        Some brokers require `topic`, to check permissions.
        """
        location = OffsetId.parse(offset_id)
        wire_topic = None if topic is None else self._targets.topic(topic)
        address = Address(location.host.ip_text, location.host.port)
        try:
            found = await self._targets.brokers.messages.at_log_offset(address, location.offset, wire_topic)
        except ServerFailed as error:
            if error.response_code != ResponseCode.SYSTEM_ERROR:
                raise
            raise NotFound(f"{address} has no message {offset_id}; it may be deleted") from error
        return shown_message(self._targets, found)

    async def by_id(self, topic: str, message_id: str) -> list[StoredMessage]:
        """The messages with this id, such as `SendResult.message_id`, oldest first.

        There are several if the producer sent it again after a failure, and in retry topics.
        """
        found = await self._by_key(self._targets.topic(topic), message_id, 0, END_OF_TIME_MS, MAX_BY_KEY, is_id=True)
        return [message for message in found if message.message_id == message_id]

    async def by_key(
        self,
        topic: str,
        key: str,
        *,
        begin_ms: int = 0,
        end_ms: int = END_OF_TIME_MS,
        limit: int = MAX_BY_KEY,
    ) -> list[StoredMessage]:
        """Messages with this key, stored between two times, oldest first; at most 64 of each broker."""
        check_limit(limit)
        most = min(limit, MAX_BY_KEY)
        found = await self._by_key(self._targets.topic(topic), key, begin_ms, end_ms, most, is_id=False)
        return [message for message in found if key in message.keys][:limit]

    async def in_queue(
        self, queue: MessageQueue, begin: int, end: int | None = None, *, limit: int = DEFAULT_LIMIT
    ) -> list[StoredMessage]:
        """Messages of one queue with offsets from `begin` to below `end`, at most `limit`."""
        check_limit(limit)
        wire_queue = self._targets.wire_queue(queue)
        await self._targets.route(parse_topic(wire_queue.topic))
        if end is None:
            end = await self._targets.brokers.offsets.largest(wire_queue)
        return await self._read(wire_queue, begin, min(end, begin + limit))

    async def in_time(
        self, topic: str, begin_ms: int, end_ms: int, *, limit: int = DEFAULT_LIMIT
    ) -> list[StoredMessage]:
        """Messages of a topic that were stored from `begin_ms` to below `end_ms`, oldest first, at most `limit`."""
        check_limit(limit)
        route = await self._targets.route(self._targets.topic(topic))
        calls = self._targets.brokers.offsets

        async def of(queue: MessageQueue) -> list[StoredMessage]:
            # For a time after the last message, RocketMQ 4.9 answers the offset of that message and not the end.
            begin, end = await calls.at_time(queue, begin_ms), await calls.at_time(queue, end_ms) + 1
            found = await self._read(queue, begin, min(end, begin + limit))
            return [message for message in found if begin_ms <= message.store_ms < end_ms]

        return _oldest_first(await self._targets.gather(route.readable, of))[:limit]

    # traces and consumers

    async def trace(self, message_id: str, *, trace_topic: str | None = None) -> MessageTrace:
        """The trace of a message. It is empty unless its clients have the option `trace=True`."""
        topic = parse_topic(trace_topic or self._targets.settings.trace_topic)
        found = await self._by_key(topic, message_id, 0, END_OF_TIME_MS, MAX_BY_KEY, is_id=False)
        plain = (readable(message, None).body for message in found)
        return trace_of(message_id, (record for body in plain for record in decode_trace(body)))

    async def passed_by(self, queue: MessageQueue, offset: int) -> dict[str, bool]:
        """Whether the committed offset of each group is above a message, for groups with an offset in its queue."""
        wire_queue = self._targets.wire_queue(queue)
        await self._targets.route(parse_topic(wire_queue.topic))
        target = queue.broker_name
        groups = (await self._targets.brokers.groups.reading(target, wire_queue.topic)).group_list
        wanted = sorted(set(groups) - {wire_queue.topic})
        calls = self._targets.brokers.offsets
        offsets = await self._targets.gather(wanted, lambda group: calls.of_group(group, wire_queue))
        return {
            self._targets.shown(group): at > offset for group, at in zip(wanted, offsets, strict=True) if at is not None
        }

    # deliver again

    async def consume_directly(self, group: str, client_id: str, message: StoredMessage) -> DirectConsumption:
        """Make a member of a group consume a message now, and return the result. Offsets do not change."""
        header = ConsumeMessageDirectly(
            consumer_group=self._targets.group(group),
            client_id=client_id,
            msg_id=message.offset_id,
            topic=self._targets.topic(message.topic),
        )
        timeout_s = self._targets.settings.relay_timeout_ms / 1000
        return await self._targets.brokers.members.consume_directly(
            _broker_address(message), header, timeout_s=timeout_s
        )

    async def send_back(self, group: str, message: StoredMessage, *, delay_level: int = 0) -> None:
        """Deliver a message to a group again, through its retry topic; level -1 makes it a dead letter."""
        header = SendMessageBack(
            offset=message.log_offset,
            group=self._targets.group(group),
            delay_level=delay_level,
            origin_msg_id=message.message_id,
            origin_topic=self._targets.topic(message.topic),
        )
        brokers = {broker.address: broker.name for broker in await self._targets.masters()}
        address = _broker_address(message)
        if address not in brokers:
            raise UsageError(f"the message is stored at {address}, which is not a broker of this cluster")
        await self._targets.brokers.messages.send_back(brokers[address], header)

    async def _by_key(
        self, topic: TopicName, key: str, begin_ms: int, end_ms: int, limit: int, *, is_id: bool
    ) -> list[StoredMessage]:
        """Messages of all brokers of the topic, oldest first. The index is a hash table, so other keys may match."""
        header = QueryMessage(topic, key, limit, begin_ms, end_ms, is_id)
        route = await self._targets.route(topic)
        names = sorted({queue.broker_name for queue in route.readable})

        async def ask(broker: str) -> list[StoredMessage]:
            try:
                found, _ = await self._targets.brokers.messages.by_key(broker, header)
            except NotFound:
                return []
            return [shown_message(self._targets, message) for message in found]

        return _oldest_first(await self._targets.gather(names, ask))

    async def _read(self, queue: MessageQueue, begin: int, end: int) -> list[StoredMessage]:
        return [shown_message(self._targets, message) async for message in read_queue(self._targets, queue, begin, end)]


def _oldest_first(parts: Iterable[Iterable[StoredMessage]]) -> list[StoredMessage]:
    """Sorts by store time, and by log offset within a millisecond."""
    found = (message for part in parts for message in part)
    return sorted(found, key=lambda message: (message.store_ms, message.log_offset))


def _broker_address(message: StoredMessage) -> Address:
    """The address of the broker that stored a message."""
    return Address(message.store_host.ip_text, message.store_host.port)
