"""The messages that brokers lease to a simple consumer: pops, and what is known about the leases until their end.

    pop ──► open ─┬─ ack ──────────────────► done; several messages of a broker in one request
                  ├─ change ───────────────► open, with another receipt handle and another end
                  ├─ auto_renew, half over ─► the same, up to `max_hold_ms`
                  └─ its end ──────────────► lost: the broker delivers the message again

The end of a lease is computed from the time before its request was sent, so it is never later than the broker's. Brokers
confirm acks that come too late. Therefore an ack counts only if its response arrives before the end of the lease.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from pocketmq.client.cluster.calls import LeaseCalls
from pocketmq.client.cluster.instance import Instance
from pocketmq.client.consumer.listening import ConsumeEvents
from pocketmq.client.consumer.pulling import PullEvents, PullResult, PullStatus
from pocketmq.client.consumer.settings import SimpleSettings
from pocketmq.client.consumer.subscriptions import SubscriptionTable, matching_messages
from pocketmq.client.hooks import ConsumeEvent
from pocketmq.client.received import popped, readable
from pocketmq.clock import Clock
from pocketmq.errors import (
    ConnectFailed,
    FlushDiskTimeout,
    FlushSlaveTimeout,
    LeaseLost,
    PocketMQError,
    RemoteError,
    RequestNotSupported,
    SlaveNotAvailable,
    TooManyCalls,
)
from pocketmq.model import MessageQueue, StoredMessage, Subscription
from pocketmq.model.properties import POP_CK, raw_property
from pocketmq.protocol.api.messages import AckMessage, ChangeInvisibleTime, PopMessage, PopReply
from pocketmq.protocol.bodies.clients import ConsumeFromWhere
from pocketmq.protocol.pop import (
    MAX_BITS,
    RETRY_V2,
    BatchAck,
    BatchAckEntry,
    Handle,
    PoppedQueues,
    encode_bits,
    flag_of,
    pop_retry_topic,
)

log = logging.getLogger("pocketmq.client")

ALL_QUEUES: Final = -1
RETRY_S: Final = 1.0
"""When a renewal that failed is repeated."""
LEAST_PAUSE_S: Final = 0.05
_POP_CK: Final = POP_CK.encode()
_APPLIED: Final = (FlushDiskTimeout, FlushSlaveTimeout, SlaveNotAvailable)
"""Failures of a change after which the broker has the new lease."""

Key = tuple[bytes | None, int]


def key_of(message: StoredMessage) -> Key:
    """The receipt handle with which the message was received. Handles of retried messages may have no offset."""
    return raw_property(message.raw_properties, _POP_CK), message.queue_offset


class Lease:
    """One message that the user holds. Times are those of the monotonic clock."""

    __slots__ = (
        "changing",
        "event",
        "handle",
        "hold_until",
        "invisible_s",
        "is_acked",
        "key",
        "message_id",
        "renew_at",
        "since",
        "topic",
        "until",
    )

    def __init__(self, message: StoredMessage, handle: Handle, topic: str, since: float, hold_s: float | None) -> None:
        """`topic` is the subscribed one. `hold_s`: how long the lease is extended; None: never."""
        self.key = key_of(message)
        self.message_id = message.message_id
        self.topic = topic
        self.handle = handle
        self.hold_until = 0.0 if hold_s is None else since + hold_s
        self.is_acked = False
        self.since = since
        self.event: ConsumeEvent | None = None
        """Exists from the time when the user gets the message, if there are hooks for it."""
        self.changing: asyncio.Event | None = None
        """Exists while the handle changes."""
        self.extend(since, handle.invisible_ms / 1000)

    def extend(self, since: float, invisible_s: float) -> None:
        self.invisible_s = invisible_s
        self.until = since + invisible_s
        self.renew_at = since + invisible_s / 2

    @property
    def renews(self) -> bool:
        """Whether the lease is extended before its end."""
        return self.until < self.hold_until and not self.is_acked

    @property
    def due(self) -> float:
        return self.renew_at if self.renews and self.changing is None else self.until

    def real_topic(self, group: str) -> str:
        """The topic that the message is in."""
        flag = self.handle.flag
        return pop_retry_topic(group, self.topic, v2=flag == RETRY_V2) if flag else self.topic


class LeaseTable:
    """All messages that the user of one consumer holds."""

    def __init__(self, calls: LeaseCalls, clock: Clock, group: str, events: ConsumeEvents) -> None:
        self._calls = calls
        self._events = events
        self._clock = clock
        self._group = group
        self._open: dict[Key, Lease] = {}
        self._added = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._renewals: set[asyncio.Task[None]] = set()
        self._without_batches: set[str] = set()
        """Brokers that do not know BATCH_ACK."""

    def __len__(self) -> int:
        return len(self._open)

    def start(self) -> None:
        self._keeper = asyncio.get_running_loop().create_task(self._keep())

    async def stop(self) -> None:
        """Extend nothing any more: messages with an open lease return when their time is over."""
        tasks = [*self._renewals, *([self._keeper] if self._keeper is not None else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for lease in self._open.values():
            self._finished(lease, LeaseLost((lease.message_id,)))
        self._open.clear()

    def add(self, leases: Iterable[Lease]) -> None:
        for lease in leases:
            self._open[lease.key] = lease
        self._added.set()

    def holds(self, message: StoredMessage) -> bool:
        """Whether the lease of the message is not over."""
        lease = self._open.get(key_of(message))
        return lease is not None and self._clock.monotonic() < lease.until

    def reached_user(self, message: StoredMessage) -> None:
        """The user gets the message: its consumption begins for hooks, and ends with its lease."""
        lease = self._open.get(key_of(message))
        if lease is not None and self._events.are_watched:
            lease.event = self._events.before(message.queue, [message])

    def _finished(self, lease: Lease, result: LeaseLost | None) -> None:
        event, lease.event = lease.event, None
        if event is not None:
            self._events.after(event, result, self._clock.monotonic() - lease.since)

    def forget(self, message: StoredMessage) -> None:
        """Let a message return when its time is over."""
        self._open.pop(key_of(message), None)

    # acks

    async def acknowledge(self, messages: Sequence[StoredMessage]) -> None:
        """Acknowledge messages. Raises LeaseLost for those without an open lease, when the others are done. After another
        error it may be repeated with the same messages.
        """
        lost: list[str] = []
        claimed: list[Lease] = []
        for message in messages:
            lease = self._open.get(key_of(message))
            if lease is None:
                lost.append(message.message_id)
            elif not lease.is_acked:
                lease.is_acked = True
                claimed.append(lease)
        of_brokers: dict[str, list[Lease]] = {}
        for lease in claimed:
            of_brokers.setdefault(lease.handle.broker, []).append(lease)
        outcomes = await asyncio.gather(
            *(self._ack_all(broker, leases) for broker, leases in of_brokers.items()), return_exceptions=True
        )
        failures = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        lost += [message_id for outcome in outcomes if not isinstance(outcome, BaseException) for message_id in outcome]
        if failures:
            raise failures[0]
        for lease in claimed:
            self._open.pop(lease.key, None)
        if lost:
            error = LeaseLost(tuple(lost))
            log.warning("Group %s: an ack came too late; the broker may deliver again: %s", self._group, error)
            raise error

    async def _ack_all(self, broker: str, leases: list[Lease]) -> list[str]:
        """Acknowledge messages of one broker; return the ids of those whose lease was over."""
        acked: list[Lease] = []
        try:
            for lease in leases:
                while lease.changing is not None:
                    await lease.changing.wait()
            live = [lease for lease in leases if self._is_live(lease)]
            await self._send_acks(broker, live)
            acked = [lease for lease in live if self._is_live(lease)]
        except BaseException:  # also a cancellation: whether the broker has the ack is unknown, and it may be repeated
            for lease in leases:
                lease.is_acked = False
            raise
        done = set(acked)
        for lease in leases:
            self._finished(lease, None if lease in done else LeaseLost((lease.message_id,)))
        return [lease.message_id for lease in leases if lease not in done]

    def _is_live(self, lease: Lease) -> bool:
        return self._clock.monotonic() < lease.until

    async def _send_acks(self, broker: str, leases: list[Lease]) -> None:
        if len(leases) > 1 and broker not in self._without_batches:
            try:
                await self._calls.batch_ack(broker, BatchAck(broker, tuple(self._entries(leases))))
            except RequestNotSupported:
                self._without_batches.add(broker)
            else:
                return
        await asyncio.gather(*(self._calls.ack(broker, self._ack(lease)) for lease in leases))

    def _ack(self, lease: Lease) -> AckMessage:
        handle = lease.handle
        return AckMessage(self._group, lease.real_topic(self._group), handle.queue_id, handle.text(), handle.offset)

    def _entries(self, leases: Iterable[Lease]) -> Iterable[BatchAckEntry]:
        """One entry for the messages that were leased together."""
        together: dict[tuple[object, ...], list[Lease]] = {}
        for lease in leases:
            handle = lease.handle
            page = (handle.offset - handle.start) // MAX_BITS
            together.setdefault((lease.topic, *handle[:5], handle.queue_id, page), []).append(lease)
        for some in together.values():
            handle = some[0].handle
            yield BatchAckEntry(
                self._group,
                some[0].topic,
                str(handle.flag),
                handle.start,
                handle.queue_id,
                handle.revive_queue,
                handle.pop_ms,
                handle.invisible_ms,
                encode_bits(handle.start, [lease.handle.offset for lease in some]),
            )

    # changes

    async def change(self, message: StoredMessage, invisible_s: float) -> None:
        """Lease a message for another time from now on. Raises LeaseLost if it has no open lease."""
        lease = self._open.get(key_of(message))
        while lease is not None and lease.changing is not None:
            await lease.changing.wait()
        if lease is None or lease.is_acked or not self._is_live(lease):
            raise LeaseLost((message.message_id,))
        lease.hold_until = 0.0  # the user decides from now on when the message returns
        await self._change(lease, invisible_s)

    async def _change(self, lease: Lease, invisible_s: float) -> None:
        lease.changing = asyncio.Event()
        began, until = self._clock.monotonic(), lease.until
        is_known = False
        try:
            handle = lease.handle
            answer = await self._calls.change(
                handle.broker,
                ChangeInvisibleTime(
                    self._group,
                    lease.real_topic(self._group),
                    handle.queue_id,
                    handle.text(),
                    handle.offset,
                    round(invisible_s * 1000),
                ),
            )
            lease.handle = handle._replace(
                start=handle.offset,
                pop_ms=answer.pop_time,
                invisible_ms=answer.invisible_time,
                revive_queue=answer.revive_qid,
            )
            is_known = self._clock.monotonic() < until  # else the broker may have delivered it again
            lease.extend(began, invisible_s)
        except (RemoteError, ConnectFailed, TooManyCalls) as error:
            is_known = not isinstance(error, _APPLIED)
            lease.renew_at = self._clock.monotonic() + RETRY_S
            raise
        finally:
            if not is_known:
                self._lose(lease)
            lease.changing.set()
            lease.changing = None
            self._added.set()
        if not is_known:
            raise LeaseLost((lease.message_id,))

    def _lose(self, lease: Lease) -> None:
        lease.until = self._clock.monotonic()
        self._end(lease)

    # time

    async def _keep(self) -> None:
        """Extend leases in time, and forget those that are over."""
        while True:
            self._added.clear()
            now = self._clock.monotonic()
            for lease in tuple(self._open.values()):
                if now >= lease.until:
                    self._end(lease)
                elif now >= lease.due:
                    task = asyncio.get_running_loop().create_task(self._renew(lease))
                    self._renewals.add(task)
                    task.add_done_callback(self._renewals.discard)
            await self._sleep()

    async def _sleep(self) -> None:
        """Until the next lease is due. A lease whose renewal begins now is not."""
        await asyncio.sleep(LEAST_PAUSE_S)
        next_due = min((lease.due for lease in self._open.values()), default=None)
        try:
            async with asyncio.timeout(None if next_due is None else next_due - self._clock.monotonic()):
                await self._added.wait()
        except TimeoutError:
            return

    def _end(self, lease: Lease) -> None:
        self._open.pop(lease.key, None)
        self._finished(lease, LeaseLost((lease.message_id,)))
        if lease.hold_until and not lease.is_acked:
            log.warning(
                "Group %s: message %s was not acknowledged in time (max_hold_ms); the broker delivers it again",
                self._group,
                lease.message_id,
            )

    async def _renew(self, lease: Lease) -> None:
        if not lease.renews or lease.changing is not None:
            return  # it was acknowledged or changed meanwhile
        try:
            await self._change(lease, min(lease.invisible_s, lease.hold_until - self._clock.monotonic()))
        except PocketMQError as error:
            log.warning(
                "Group %s: the lease of message %s could not be extended: %s", self._group, lease.message_id, error
            )


class Source(NamedTuple):
    """A topic on one broker."""

    topic: str
    broker_name: str

    @property
    def queue(self) -> MessageQueue:
        """All its queues, for events."""
        return MessageQueue(self.topic, self.broker_name, ALL_QUEUES)


class Popping:
    """Pops, and what happens to their messages before the user gets them."""

    def __init__(
        self,
        instance: Instance,
        settings: SimpleSettings,
        subscriptions: SubscriptionTable,
        leases: LeaseTable,
        events: PullEvents,
    ) -> None:
        self._instance = instance
        self._calls = instance.brokers.leases
        self._clock = instance.clock
        self._group = settings.wire_group
        self._namespace = settings.namespace
        self._subscriptions = subscriptions
        self._leases = leases
        self._events = events
        self._hold_s = settings.max_hold_ms / 1000 if settings.auto_renew else None
        self._init_mode = int(settings.from_where is not ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)

    async def pop(self, source: Source, limit: int, invisible_s: float) -> list[StoredMessage]:
        subscription = self._subscriptions.get(source.topic)
        if subscription is None:
            return []
        since = self._clock.monotonic()
        header = PopMessage(
            self._group,
            source.topic,
            ALL_QUEUES,
            limit,
            round(invisible_s * 1000),
            poll_time=0,
            init_mode=self._init_mode,
            exp_type=subscription.expression_type,
            exp=subscription.sub_string,
        )
        answer = await self._calls.pop(source.broker_name, header)
        if answer is None:
            return []
        reply, records = answer
        leased = self._leased(source, reply, popped(records), since)
        if self._events.are_watched:
            result = PullResult(PullStatus.FOUND, 0, 0, reply.rest_num, leased)
            self._events.pulled(source.queue, len(self._leases), result, self._clock.monotonic() - since)
        return self._chosen(source, subscription, leased)

    def _leased(
        self, source: Source, reply: PopReply, messages: Iterable[StoredMessage], since: float
    ) -> list[StoredMessage]:
        """The messages of a response, and their leases in the table."""
        queues = PoppedQueues.parse(reply.start_offset_info, reply.msg_offset_info)
        leased: list[StoredMessage] = []
        for message in messages:
            try:
                handle = _handle(source, reply, queues, message)
            except PocketMQError as error:
                log.error("A message of %s is left out: %s", source.queue, error)
                continue
            message.topic = source.topic
            if raw_property(message.raw_properties, _POP_CK) is None:
                mark = b"" if not message.raw_properties or message.raw_properties.endswith(b"\x02") else b"\x02"
                message.raw_properties += mark + f"{POP_CK}\x01{handle.text()}\x02".encode()
            lease = Lease(message, handle, source.topic, since, self._hold_s)
            message._queue = MessageQueue(lease.real_topic(self._group), source.broker_name, handle.queue_id)
            self._leases.add((lease,))
            leased.append(message)
        return leased

    def _chosen(
        self, source: Source, subscription: Subscription, leased: Sequence[StoredMessage]
    ) -> list[StoredMessage]:
        """The messages for the user. Those that the filter or a hook removes are acknowledged; an unreadable one returns,
        and becomes a dead letter in the end.
        """
        result = PullResult(PullStatus.FOUND, 0, 0, 0, matching_messages(subscription, leased))
        if self._events.has_filters:
            result = self._events.filtered(source.queue, result)
        kept = {id(message) for message in result.messages}
        if removed := [message for message in leased if id(message) not in kept]:
            self._instance.start(self._drop(removed))
        chosen: list[StoredMessage] = []
        for message in result.messages:
            try:
                chosen.append(readable(message, self._namespace))
                self._leases.reached_user(chosen[-1])
            except PocketMQError as error:
                self._leases.forget(message)
                log.error(
                    "Group %s: %s; it returns, and becomes a dead letter after its last attempt", self._group, error
                )
        return chosen

    async def _drop(self, messages: Sequence[StoredMessage]) -> None:
        try:
            await self._leases.acknowledge(messages)
        except PocketMQError as error:
            log.warning("Group %s: %d filtered messages will return: %s", self._group, len(messages), error)


def _handle(source: Source, reply: PopReply, queues: PoppedQueues, message: StoredMessage) -> Handle:
    """The receipt handle of a message. Brokers add it to retried messages; others get theirs from the response."""
    offset, queue_id = message.queue_offset, message.queue_id
    text = raw_property(message.raw_properties, _POP_CK)
    if text is not None:
        return Handle.parse(text.decode("utf-8", "replace"))._replace(queue_id=queue_id, offset=offset)
    flag = flag_of(message.topic)
    start = queues.start(flag, queue_id, offset)
    times = reply.pop_time, reply.invisible_time
    return Handle(start, *times, reply.revive_qid, flag, source.broker_name, queue_id, offset)
