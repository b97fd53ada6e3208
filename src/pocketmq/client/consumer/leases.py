"""The messages that brokers lease to a consumer, and what is known about the leases until their end.

    pop ──► open ─┬─ ack ──────────────────► done; several messages of a broker in one request
                  ├─ change ───────────────► open, with another receipt handle and another end
                  ├─ half over, if extended ► the same, up to the end of its extension
                  ├─ given back ───────────► the broker delivers the message after a time
                  └─ its end ──────────────► lost: the broker delivers the message again

The end of a lease is computed from the time before its request was sent, so it is never later than the broker's. Brokers
confirm acks that come too late. Therefore an ack counts only if its response arrives before the end of the lease.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from math import inf
from typing import Final, NamedTuple

from pocketmq.client.cluster.calls import LeaseCalls
from pocketmq.client.consumer.listening import ConsumeEvents
from pocketmq.client.hooks import ConsumeEvent, LeaseChange
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
from pocketmq.model import MessageQueue, StoredMessage
from pocketmq.model.properties import POP_CK, raw_property
from pocketmq.protocol.api.messages import AckMessage, ChangeInvisibleTime
from pocketmq.protocol.bodies.clients import LEASE_KEYS
from pocketmq.protocol.pop import (
    MAX_BITS,
    RETRY_V2,
    BatchAck,
    BatchAckEntry,
    Handle,
    encode_bits,
    pop_retry_topic,
)

log = logging.getLogger("pocketmq.client")

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
    """One leased message. Times are those of the monotonic clock."""

    __slots__ = (
        "changing",
        "event",
        "handle",
        "hold_until",
        "invisible_s",
        "is_acked",
        "is_done",
        "key",
        "message_id",
        "renew_at",
        "since",
        "topic",
        "until",
    )

    def __init__(self, message: StoredMessage, handle: Handle, topic: str, since: float, hold_s: float | None) -> None:
        """`topic` is the subscribed one. `hold_s`: how long the lease is extended; None: never, infinite: until it is handled."""
        self.key = key_of(message)
        self.message_id = message.message_id
        self.topic = topic
        self.handle = handle
        self.hold_until = 0.0 if hold_s is None else since + hold_s
        self.is_acked = False
        self.is_done = False
        """Whether its ack arrived in time. It stays in the table while a call that acknowledges others may be repeated."""
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


class LeaseCounts(NamedTuple):
    """The leased messages of a consumer, and what became of former ones."""

    in_flight: int = 0
    oldest_s: float = 0.0
    """How long the oldest of them is here."""
    returned: int = 0
    """Given back, for another attempt."""
    lapsed: int = 0
    """Their lease ended before they were handled."""
    rejected_acks: int = 0
    """Their ack came after the end of the lease."""

    def shown(self) -> dict[str, str]:
        """For the consumer's running info."""
        numbers = (self.in_flight, round(self.oldest_s * 1000), self.returned, self.lapsed, self.rejected_acks)
        return {key: str(number) for key, number in zip(LEASE_KEYS, numbers, strict=True)}


class LeaseTable:
    """All messages that are leased to one consumer."""

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
        self._ended: Counter[LeaseChange] = Counter()

    def __len__(self) -> int:
        return len(self._open)

    def counts(self) -> LeaseCounts:
        """Thread-safe."""
        since = [lease.since for lease in tuple(self._open.values()) if not lease.is_done]
        oldest_s = self._clock.monotonic() - min(since) if since else 0.0
        ended = (LeaseChange.RETURNED, LeaseChange.LAPSED, LeaseChange.REJECTED)
        return LeaseCounts(len(since), oldest_s, *(self._ended[change] for change in ended))

    def count(self, queue: MessageQueue) -> int:
        """Leased messages of the topic and broker of this queue."""
        return sum(one.topic == queue.topic and one.handle.broker == queue.broker_name for one in self._open.values())

    def start(self) -> None:
        self._keeper = asyncio.get_running_loop().create_task(self._keep())

    async def stop(self) -> None:
        """Extend nothing any more: messages with an open lease return when their time is over."""
        tasks = [*self._renewals, *([self._keeper] if self._keeper is not None else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for lease in tuple(self._open.values()):
            self._finished(lease, LeaseLost((lease.message_id,)))
        self._remove(tuple(self._open.values()), LeaseChange.LAPSED)

    def add(self, leases: Sequence[Lease]) -> None:
        for lease in leases:
            self._open[lease.key] = lease
        self._count(leases, LeaseChange.LEASED)
        self._added.set()

    def _remove(self, leases: Iterable[Lease], change: LeaseChange) -> None:
        """These leases ended, if they did not end before."""
        self._count([lease for lease in leases if self._open.pop(lease.key, None) is not None], change)

    def _count(self, leases: Sequence[Lease], change: LeaseChange) -> None:
        self._ended[change] += len(leases)
        for topic, count in Counter(lease.topic for lease in leases).items():
            self._events.lease_changed(topic, change, count)

    def holds(self, message: StoredMessage) -> bool:
        """Whether the lease of the message is not over. Threads of listeners call it, too."""
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
        if (lease := self._open.get(key_of(message))) is not None:
            self._remove((lease,), LeaseChange.LAPSED)

    # acks

    async def acknowledge(self, messages: Sequence[StoredMessage]) -> None:
        """Acknowledge messages. Raises LeaseLost for those without an open lease, when the others are done. After another
        error it may be repeated with the same messages.
        """
        lost: list[str] = []
        named: list[Lease] = []
        claimed: list[Lease] = []
        for message in messages:
            lease = self._open.get(key_of(message))
            if lease is None:
                lost.append(message.message_id)
                continue
            named.append(lease)
            if not lease.is_acked:
                lease.is_acked = True
                claimed.append(lease)
        of_brokers: dict[str, list[Lease]] = {}
        for lease in claimed:
            of_brokers.setdefault(lease.handle.broker, []).append(lease)
        outcomes = await asyncio.gather(
            *(self._ack_all(broker, leases) for broker, leases in of_brokers.items()), return_exceptions=True
        )
        failures = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        late = {lease for outcome in outcomes if not isinstance(outcome, BaseException) for lease in outcome}
        if failures:
            raise failures[0]
        self._remove([lease for lease in named if lease.is_done], LeaseChange.ACKNOWLEDGED)
        self._remove(late, LeaseChange.LAPSED)
        lost += [lease.message_id for lease in late]
        if lost:
            self._reject([message for message in messages if message.message_id in lost])
            error = LeaseLost(tuple(lost))
            log.warning("Group %s: an ack came too late; the broker may deliver again: %s", self._group, error)
            raise error

    def _reject(self, messages: Sequence[StoredMessage]) -> None:
        self._ended[LeaseChange.REJECTED] += len(messages)
        for topic, count in Counter(message.topic for message in messages).items():
            self._events.lease_changed(topic, LeaseChange.REJECTED, count)

    async def _ack_all(self, broker: str, leases: list[Lease]) -> list[Lease]:
        """Acknowledge messages of one broker; return the leases that were over."""
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
            lease.is_done = lease in done
            self._finished(lease, None if lease in done else LeaseLost((lease.message_id,)))
        return [lease for lease in leases if lease not in done]

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
        lease = await self._changeable(message)
        lease.hold_until = 0.0  # the user decides from now on when the message returns
        await self._change(lease, invisible_s)

    async def give_back(self, message: StoredMessage, after_s: float, *, was_tried: bool = True) -> None:
        """Let the broker deliver a message after this time. Raises LeaseLost if it has no open lease; after another error,
        it is still leased. With `was_tried` False, brokers of RocketMQ 5.5 do not count an attempt.
        """
        lease = await self._changeable(message)
        await self._change(lease, after_s, suspend=None if was_tried else True)
        self._remove((lease,), LeaseChange.RETURNED)

    async def _changeable(self, message: StoredMessage) -> Lease:
        lease = self._open.get(key_of(message))
        while lease is not None and lease.changing is not None:
            await lease.changing.wait()
        if lease is None or lease.is_acked or not self._is_live(lease):
            raise LeaseLost((message.message_id,))
        return lease

    async def _change(self, lease: Lease, invisible_s: float, *, suspend: bool | None = None) -> None:
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
                    suspend=suspend,
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
        self._remove((lease,), LeaseChange.ACKNOWLEDGED if lease.is_done else LeaseChange.LAPSED)
        self._finished(lease, LeaseLost((lease.message_id,)))
        if 0 < lease.hold_until < inf and not lease.is_acked:
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
