"""Pops: requests for leased messages, and what happens to the messages of a response before the user gets them.

    pop ──► records ──► a lease for each ──► tag filter, hooks ─┬─ selected ──► the caller
                                                                └─ others ────► acknowledged

A pop is sent to the queue -1 of a topic on one broker for all its queues there. It contains messages of the retry topics
of the group for this topic, too; they get the name of the topic itself.
"""

import logging
from collections.abc import Iterable, Sequence
from typing import Final

from pocketmq.client.cluster.instance import Instance
from pocketmq.client.consumer.leases import Lease, LeaseTable
from pocketmq.client.consumer.pulling import PullEvents, PullResult, PullStatus
from pocketmq.client.consumer.settings import GroupSettings
from pocketmq.client.consumer.subscriptions import SubscriptionTable, matching_messages
from pocketmq.client.received import add_property, popped, readable
from pocketmq.codes import Version
from pocketmq.errors import PocketMQError, RequestNotSupported
from pocketmq.model import MessageQueue, StoredMessage, Subscription
from pocketmq.model.properties import POP_CK, raw_property
from pocketmq.protocol.api.messages import PopMessage, PopReply
from pocketmq.protocol.bodies.clients import ConsumeFromWhere
from pocketmq.protocol.pop import Handle, PoppedQueues, flag_of, order_counts

log = logging.getLogger("pocketmq.client")

ALL_QUEUES: Final = -1
"""The queue id that means all queues of a topic on a broker."""
_POP_CK: Final = POP_CK.encode()


def too_old(broker_name: str) -> RequestNotSupported:
    return RequestNotSupported(
        f"broker {broker_name} cannot lease messages (POP), which RocketMQ 5 introduced; use a PushConsumer or a "
        "LitePullConsumer with it, or upgrade it"
    )


def require_pop(instance: Instance, broker_name: str) -> None:
    """RequestNotSupported if the broker is known to be too old."""
    for address in instance.brokers.addresses_of(broker_name):
        version = instance.heartbeats.versions.get(address)
        if version is not None and version < Version.V5_0_0:
            raise too_old(broker_name)


class Popping:
    """The pops of one consumer. `hold_s`: how long leases are extended, see `Lease`."""

    def __init__(
        self,
        instance: Instance,
        settings: GroupSettings,
        subscriptions: SubscriptionTable,
        leases: LeaseTable,
        events: PullEvents,
        *,
        hold_s: float | None,
        is_ordered: bool = False,
    ) -> None:
        self._instance = instance
        self._calls = instance.brokers.leases
        self._clock = instance.clock
        self._group = settings.wire_group
        self._namespace = settings.namespace
        self._subscriptions = subscriptions
        self._leases = leases
        self._events = events
        self._hold_s = hold_s
        self._is_ordered = is_ordered
        self._call_s = settings.call_timeout_ms / 1000
        self._init_mode = int(settings.from_where is not ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)

    def is_subscribed(self, topic: str) -> bool:
        return self._subscriptions.get(topic) is not None

    async def pop(
        self,
        queue: MessageQueue,
        limit: int,
        invisible_s: float,
        *,
        wait_s: float = 0.0,
        attempt_id: str | None = None,
    ) -> list[StoredMessage]:
        """Up to `limit` messages; none after `wait_s`. A pop with the `attempt_id` of the last ordered one gets its
        messages again. Raises RequestNotSupported if the broker is too old.
        """
        subscription = self._subscriptions.get(queue.topic)
        if subscription is None:
            return []
        since = self._clock.monotonic()
        header = PopMessage(
            self._group,
            queue.topic,
            queue.queue_id,
            limit,
            round(invisible_s * 1000),
            poll_time=round(wait_s * 1000),
            init_mode=self._init_mode,
            exp_type=subscription.expression_type,
            exp=subscription.sub_string,
            order=True if self._is_ordered else None,
            attempt_id=attempt_id,
        )
        try:
            answer = await self._calls.pop(queue.broker_name, header, timeout_s=wait_s + self._call_s)
        except RequestNotSupported:
            raise too_old(queue.broker_name) from None
        if answer is None:
            return []
        reply, records = answer
        leased = self._leased(queue, reply, popped(records), since)
        if self._events.are_watched:
            result = PullResult(PullStatus.FOUND, 0, 0, reply.rest_num, leased)
            self._events.pulled(queue, len(self._leases), result, self._clock.monotonic() - since)
        return self._chosen(queue, subscription, leased)

    def _leased(
        self, queue: MessageQueue, reply: PopReply, messages: Iterable[StoredMessage], since: float
    ) -> list[StoredMessage]:
        """The messages of a response, and their leases in the table."""
        queues = PoppedQueues.parse(reply.start_offset_info, reply.msg_offset_info)
        counts = order_counts(reply.order_count_info) if self._is_ordered else {}
        leased: list[StoredMessage] = []
        leases: list[Lease] = []
        for message in messages:
            try:
                handle = _handle(queue, reply, queues, message)
            except PocketMQError as error:
                log.error("A message of %s is left out: %s", queue, error)
                continue
            message.topic = queue.topic
            if raw_property(message.raw_properties, _POP_CK) is None:
                add_property(message, POP_CK, handle.text())
            if counts:
                message.reconsume_times = counts.get((handle.flag, handle.queue_id, handle.offset), 0)
            lease = Lease(message, handle, queue.topic, since, self._hold_s)
            message._queue = MessageQueue(lease.real_topic(self._group), queue.broker_name, handle.queue_id)
            leases.append(lease)
            leased.append(message)
        self._leases.add(leases)
        return leased

    def _chosen(
        self, queue: MessageQueue, subscription: Subscription, leased: Sequence[StoredMessage]
    ) -> list[StoredMessage]:
        """The messages that the filters select. The others are acknowledged."""
        result = PullResult(PullStatus.FOUND, 0, 0, 0, matching_messages(subscription, leased))
        if self._events.has_filters:
            result = self._events.filtered(queue, result)
        kept = {id(message) for message in result.messages}
        if removed := [message for message in leased if id(message) not in kept]:
            self._instance.start(self._drop(removed))
        return list(result.messages)

    async def _drop(self, messages: Sequence[StoredMessage]) -> None:
        try:
            await self._leases.acknowledge(messages)
        except PocketMQError as error:
            log.warning("Group %s: %d filtered messages will return: %s", self._group, len(messages), error)

    def for_user(self, messages: Iterable[StoredMessage]) -> list[StoredMessage]:
        """The messages that the user gets now. An unreadable one returns, and becomes a dead letter in the end."""
        chosen: list[StoredMessage] = []
        for message in messages:
            try:
                chosen.append(readable(message, self._namespace))
                self._leases.reached_user(chosen[-1])
            except PocketMQError as error:
                self._leases.forget(message)
                log.error(
                    "Group %s: %s; it returns, and becomes a dead letter after its last attempt", self._group, error
                )
        return chosen


def _handle(queue: MessageQueue, reply: PopReply, queues: PoppedQueues, message: StoredMessage) -> Handle:
    """The receipt handle of a message. Brokers add it to retried messages; others get theirs from the response."""
    offset, queue_id = message.queue_offset, message.queue_id
    text = raw_property(message.raw_properties, _POP_CK)
    if text is not None:
        return Handle.parse(text.decode("utf-8", "replace"))._replace(queue_id=queue_id, offset=offset)
    flag = flag_of(message.topic)
    start = queues.start(flag, queue_id, offset)
    times = reply.pop_time, reply.invisible_time
    return Handle(start, *times, reply.revive_qid, flag, queue.broker_name, queue_id, offset)
