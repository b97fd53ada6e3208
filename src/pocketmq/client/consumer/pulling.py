"""Pull requests, their responses, and their events for hooks.

    FOUND           messages, and the offset of the next pull
    NO_NEW          the end of the queue; no message arrived while the broker held the request
    NO_MATCHED      messages, but none that the filter selects
    OFFSET_ILLEGAL  the offset does not exist, or an administrator reset the group: continue at the offset of the response

A response may suggest another broker of the name, a slave, for the next pull. Offsets are committed in pulls from masters only, and after
a failed pull the next one goes to the master. If no known route has the broker, the route of the topic is fetched first. Brokers older
than RocketMQ 4.1 would read an SQL filter as a tag, so it is not sent to them.

Pulls are written from a template of each queue:

    | prefix 8 | {"code":11,"extFields":{"consumerGroup":"g","topic":"T","queueId":"3","queueOffset":" … ","sysFlag":" … ",…},…} |
                   fixed text with placeholders for offset, flags, committed offset and request number

A client that signs its requests has a second template for the signed content, and a placeholder for the signature in the first.
The bytes are those of `encode_command`, at a fraction of its cost.
"""

import logging
import struct
from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import partial
from operator import attrgetter
from typing import Final

import msgspec
from msgspec.structs import replace

from pocketmq.client.cluster.brokers import MASTER_ID
from pocketmq.client.cluster.calls import named
from pocketmq.client.cluster.instance import Instance
from pocketmq.client.cluster.routes import QueueNames
from pocketmq.client.cluster.rpc import RpcClient
from pocketmq.client.consumer.subscriptions import matching_messages
from pocketmq.client.hooks import FilterEvent, HookList, LeaveEvent, PauseEvent, PullEvent
from pocketmq.client.received import Pulled, name_first_topic, pulled_of, received
from pocketmq.codes import PullFlag, RequestCode, ResponseCode
from pocketmq.errors import RequestNotSupported
from pocketmq.model import MessageQueue, StoredMessage, Subscription
from pocketmq.model.names import RETRY_PREFIX
from pocketmq.net import Address, Peer, Waiting
from pocketmq.protocol.api.messages import PullMessage
from pocketmq.protocol.command import Command, header_template
from pocketmq.protocol.signing import SIGNATURE, Credentials, signature_of, signed_content

log = logging.getLogger("pocketmq.client")

PullWriter = Callable[[int, int, int, int], bytes]
"""Builds the frame of a pull from offset, flags, committed offset and request number. Thread-safe."""

_pack_prefix = struct.Struct(">II").pack
_PLACEHOLDERS: Final = {"queueOffset": "%d", "sysFlag": "%d", "commitOffset": "%d", SIGNATURE: "%b"}
"""In the order of the frame. The signed content is sorted by name, so the committed offset comes first there."""


def pull_writer(rpc: RpcClient, code: RequestCode, header: PullMessage, broker_name: str) -> PullWriter:
    """For all pulls that differ from this one in offset, flags and committed offset only, as the client of `links` sends them."""
    fields = rpc.signed_fields(header.encode() | named(broker_name)) or {}
    template = header_template(Command(int(code), fields), _PLACEHOLDERS)
    if rpc.credentials is None:
        return partial(_frame, template)
    escaped = {name: _PLACEHOLDERS.get(name) or value.replace("%", "%%") for name, value in fields.items()}
    return partial(_signed_frame, template, signed_content(escaped, b""), rpc.credentials)


def _frame(template: bytes, offset: int, flags: int, committed: int, number: int) -> bytes:
    header = template % (offset, flags, committed, number)
    size = len(header)
    return _pack_prefix(4 + size, size) + header


def _signed_frame(
    template: bytes, content: bytes, credentials: Credentials, offset: int, flags: int, committed: int, number: int
) -> bytes:
    signature = signature_of(content % (committed, offset, flags), credentials.secret)
    header = template % (offset, flags, committed, signature, number)
    size = len(header)
    return _pack_prefix(4 + size, size) + header


UNLIMITED_BYTES: Final = 2**31 - 1


class PullStatus(StrEnum):
    """The outcome of a pull."""

    FOUND = "FOUND"
    NO_NEW_MESSAGE = "NO_NEW_MSG"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MSG"
    OFFSET_ILLEGAL = "OFFSET_ILLEGAL"


_STATUSES: Final[dict[int, PullStatus]] = {
    ResponseCode.SUCCESS: PullStatus.FOUND,
    ResponseCode.PULL_NOT_FOUND: PullStatus.NO_NEW_MESSAGE,
    ResponseCode.PULL_RETRY_IMMEDIATELY: PullStatus.NO_MATCHED_MESSAGE,
    ResponseCode.PULL_OFFSET_MOVED: PullStatus.OFFSET_ILLEGAL,
}


class PullResult(msgspec.Struct, frozen=True):
    """The response to a pull. `messages` may be empty although the status is FOUND: the tag filter is checked again here."""

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    messages: Sequence[StoredMessage] = ()


class PullEvents:
    """Events of pulls for the hooks of one consumer. Callers check first whether there are hooks."""

    def __init__(self, hooks: HookList, group: str, namespace: str | None) -> None:
        self._hooks = hooks
        self._group = group
        self._names = QueueNames(namespace)
        self.are_watched = hooks.watch_pulls
        self.has_filters = hooks.filters

    def filtered(self, queue: MessageQueue, result: PullResult) -> PullResult:
        """The result without the messages that hooks remove."""
        if not result.messages:
            return result
        event = FilterEvent(group=self._group, queue=self._names.shown(queue), messages=result.messages)
        self._hooks.filter_messages(event)
        if not isinstance(event.messages, Sequence) or not all(
            isinstance(one, StoredMessage) for one in event.messages
        ):
            log.error(
                "a hook set the messages of %s to %r, which is not a list of messages; the filter is ignored",
                queue,
                event.messages,
            )
            return result
        # In queue order, whatever the hook did: process queues drop messages with smaller offsets than the last one.
        return replace(result, messages=sorted(event.messages, key=attrgetter("queue_offset")))

    def pulled(self, queue: MessageQueue, cached: int, result: PullResult, took_s: float) -> None:
        """A pull was answered, and its messages were added to the `cached` ones."""
        event = PullEvent(
            group=self._group,
            queue=self._names.shown(queue),
            messages=len(result.messages),
            cost_ms=took_s * 1000,
            behind=max(0, result.max_offset - result.next_offset),
            cached=cached,
        )
        self._hooks.after_pull(event)

    def paused(self, queue: MessageQueue, cause: str) -> None:
        self._hooks.after_pause(PauseEvent(group=self._group, queue=self._names.shown(queue), cause=cause))

    def left(self, queue: MessageQueue) -> None:
        self._hooks.after_leave(LeaveEvent(group=self._group, queue=self._names.shown(queue)))


class Pulling:
    """Sends the pulls of one consumer."""

    def __init__(
        self,
        instance: Instance,
        group: str,
        *,
        code: RequestCode = RequestCode.PULL_MESSAGE,
        flags: int,
        max_bytes: int = UNLIMITED_BYTES,
        wait_ms: int,
    ) -> None:
        self._rpc = instance.rpc
        self._brokers = instance.brokers
        self._heartbeats = instance.heartbeats
        self._routes = instance.routes
        self._group = group
        self._code = code
        self._flags = flags
        self._max_bytes = max_bytes
        self._wait_ms = wait_ms
        self._suggested: dict[MessageQueue, int] = {}
        self._writers: dict[MessageQueue, tuple[Subscription, int, PullWriter]] = {}
        self._uses_templates = code is RequestCode.PULL_MESSAGE and not instance.rpc.is_watched
        """False if the broker may reject the request code, or an RpcHook has to see the command."""
        self._without_lite_pulls: set[Address] = set()
        """Brokers of RocketMQ 4, which do not know LITE_PULL_MESSAGE."""

    def forget(self, queue: MessageQueue) -> None:
        """The queue is not pulled any more."""
        self._suggested.pop(queue, None)
        self._writers.pop(queue, None)

    def pulls_from_master(self, queue: MessageQueue) -> bool:
        """Whether the next pull goes to a master. Only masters know whether a topic exists."""
        return self._brokers.is_master(queue.broker_name, self.address_of(queue))

    def pull_failed(self, queue: MessageQueue) -> None:
        """Return to the master: the suggested broker may be gone."""
        self._suggested.pop(queue, None)

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        subscription: Subscription,
        limit: int,
        *,
        committed: int | None = None,
        timeout_s: float,
    ) -> PullResult:
        """One pull. A `committed` offset above 0 is committed by the same request. Raises PocketMQError."""
        pulled = await self.pull_records(queue, offset, subscription, limit, committed=committed, timeout_s=timeout_s)
        return self._result(pulled, queue, subscription)

    async def peek(self, queue: MessageQueue, offset: int, *, timeout_s: float) -> PullResult:
        """The message at `offset`, without filter. The broker answers at once."""
        address = self.address_of(queue)
        everything = Subscription(queue.topic)
        flags = self._flags & ~PullFlag.SUSPEND | PullFlag.SUBSCRIPTION
        await self._brokers.peer(address)
        await self._heartbeats.wait_answered(address)
        header = self._header(queue, everything, 1, offset, flags, 0)
        return _result_of(await self._call(address, queue.broker_name, header, timeout_s), queue, everything)

    def send(
        self,
        waiting: Waiting,
        queue: MessageQueue,
        offset: int,
        subscription: Subscription,
        limit: int,
        *,
        committed: int | None = None,
        deadline: float,
    ) -> bool:
        """Send a pull whose response `waiting` gets and passes to `parse`. `deadline` is a time of the event loop.

        Returns False and sends nothing when the pull would have to wait for a connection, a route or a heartbeat.
        """
        if not self._brokers.knows(queue.broker_name):
            return False
        address = self.address_of(queue)
        peer = self._ready_connection(address)
        if peer is None:
            return False
        if not subscription.is_tag:
            self._heartbeats.require_sql(address, queue.broker_name)
        write = self._writer(queue, subscription, limit)
        flags = self._flags_for(queue, address, committed)
        peer.ask_for(waiting, deadline, write, offset, flags, committed or 0)
        return True

    def parse(self, answer: Command, queue: MessageQueue, subscription: Subscription) -> PullResult:
        """The result of a pull that was sent with `send`. Raises the error of a response that reports one."""
        pulled = pulled_of(answer)
        self._suggested[queue] = pulled.header.suggest_which_broker_id
        return self._result(pulled, queue, subscription)

    def _result(self, pulled: Pulled, queue: MessageQueue, subscription: Subscription) -> PullResult:
        result = _result_of(pulled, queue, subscription)
        if queue.topic.startswith(RETRY_PREFIX):
            for message in result.messages:
                name_first_topic(message, self._group)
        return result

    async def pull_records(
        self,
        queue: MessageQueue,
        offset: int,
        subscription: Subscription,
        limit: int,
        *,
        committed: int | None = None,
        timeout_s: float,
    ) -> Pulled:
        """As `pull`, but returns encoded records. Their tags are filtered by hash only, as the broker does."""
        if not self._brokers.knows(queue.broker_name):
            await self._routes.refresh(queue.topic)
        address = self.address_of(queue)
        flags = self._flags_for(queue, address, committed)
        committed = committed or 0
        if not subscription.is_tag:
            await self._brokers.peer(address)
            await self._heartbeats.wait_answered(address)
            self._heartbeats.require_sql(address, queue.broker_name)
        peer = self._ready_connection(address)
        if peer is not None:
            write = self._writer(queue, subscription, limit)
            pulled = pulled_of(await peer.ask_encoded(int(self._code), write, timeout_s, offset, flags, committed))
        else:
            header = self._header(queue, subscription, limit, offset, flags, committed)
            await self._heartbeats.wait_answered(address)
            pulled = await self._call(address, queue.broker_name, header, timeout_s)
        self._suggested[queue] = pulled.header.suggest_which_broker_id
        return pulled

    # for threads with their own connections: see `direct_pulls`

    def address_of(self, queue: MessageQueue) -> Address:
        """The broker that serves the next pull of a queue."""
        return self._brokers.reader(queue.broker_name, self._suggested.get(queue, MASTER_ID))

    def frame(
        self, queue: MessageQueue, offset: int, subscription: Subscription, limit: int, more_flags: int, number: int
    ) -> bytes:
        """The request of a pull that commits no offset. `more_flags` are bits of `PullFlag`."""
        return self._writer(queue, subscription, limit)(offset, self._flags | more_flags, 0, number)

    def parse_records(self, queue: MessageQueue, answer: Command) -> Pulled:
        """The records of a pull that was sent with `frame`. Raises the error of a response that reports one."""
        pulled = pulled_of(answer)
        self._suggested[queue] = pulled.header.suggest_which_broker_id
        return pulled

    def _flags_for(self, queue: MessageQueue, address: Address, committed: int | None) -> int:
        """Commit the offset in the same request, if it goes to a master."""
        if committed and self._brokers.is_master(queue.broker_name, address):
            return self._flags | PullFlag.COMMIT_OFFSET
        return self._flags

    def _ready_connection(self, address: Address) -> Peer | None:
        """The connection to `address` if a templated pull can be sent on it now.

        A broker that has not handled our last heartbeat rejects the pull, because it knows another subscription.
        """
        if not self._uses_templates or not self._heartbeats.is_answered(address):
            return None
        peer = self._brokers.live(address)
        return peer if peer is not None and peer.connection.writable else None

    def _header(
        self, queue: MessageQueue, subscription: Subscription, limit: int, offset: int, flags: int, committed: int
    ) -> PullMessage:
        has_subscription = flags & PullFlag.SUBSCRIPTION
        return PullMessage(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=limit,
            sys_flag=flags,
            commit_offset=committed,
            suspend_timeout_millis=self._wait_ms,
            sub_version=0 if has_subscription and subscription.is_tag else subscription.sub_version,
            subscription=subscription.sub_string if has_subscription else None,
            expression_type=subscription.expression_type,
            max_msg_bytes=self._max_bytes,
        )

    def _writer(self, queue: MessageQueue, subscription: Subscription, limit: int) -> PullWriter:
        known = self._writers.get(queue)
        if known is not None and known[0] is subscription and known[1] == limit:
            return known[2]
        header = self._header(queue, subscription, limit, 0, self._flags, 0)
        writer = pull_writer(self._rpc, self._code, header, queue.broker_name)
        self._writers[queue] = subscription, limit, writer
        return writer

    async def _call(self, address: Address, broker_name: str, header: PullMessage, timeout_s: float) -> Pulled:
        call = self._brokers.messages.pull
        if address not in self._without_lite_pulls:
            try:
                return await call(address, broker_name, header, timeout_s=timeout_s, code=self._code)
            except RequestNotSupported:
                if self._code is RequestCode.PULL_MESSAGE:
                    raise
                self._without_lite_pulls.add(address)
        return await call(address, broker_name, header, timeout_s=timeout_s)


def _result_of(pulled: Pulled, queue: MessageQueue, subscription: Subscription) -> PullResult:
    header = pulled.header
    messages: Sequence[StoredMessage] = ()
    next_offset = header.next_begin_offset
    if pulled.code == ResponseCode.SUCCESS:
        messages, next_offset = received(pulled.records, queue, next_offset)
        if subscription.tags_set:
            messages = matching_messages(subscription, messages)
    return PullResult(_STATUSES[pulled.code], next_offset, header.min_offset, header.max_offset, messages)
