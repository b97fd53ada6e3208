"""Pulling: one request for the next messages of a queue, and what its answer means.

    FOUND          messages, and where the next pull begins
    NO_NEW         the end of the queue was reached, and nothing came while the broker held the request
    NO_MATCHED     there were messages, none of which the filter wants
    OFFSET_ILLEGAL the queue begins or ends elsewhere, or an administrator moved the group: go on where the answer says

A broker may suggest to read from another one of its name, a slave, next time. A slave is never told offsets, and after a pull that
failed the master is asked again. For a broker that is in no known route, the route of the topic is asked for again first. An SQL filter is
not sent to a broker that is older than RocketMQ 4.1, which would take it for a tag.

Pull requests as bytes, from texts that are composed once for each queue.

    | prefix 8 | {"code":11,"extFields":{"consumerGroup":"g","topic":"T","queueId":"3","queueOffset":" … ","sysFlag":" … ",…},…} |
                   fixed texts, with this pull's offset, flags, committed offset and number in the gaps

A client that signs its requests has a second text for each queue: what is signed, with the same gaps but the number's. The signature
over it has a gap of its own in the first.

They say what `encode_command` would say for the same request, at a fraction of its cost.
"""

import struct
from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import partial
from typing import Final

import msgspec

from pocketmq.client.cluster.brokers import MASTER_ID
from pocketmq.client.cluster.calls import named
from pocketmq.client.cluster.instance import Instance
from pocketmq.client.cluster.message_calls import Pulled, pulled_of
from pocketmq.client.cluster.rpc import RpcClient
from pocketmq.client.received import received
from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.errors import RequestNotSupported
from pocketmq.model.flags import PullFlag
from pocketmq.model.message import StoredMessage
from pocketmq.model.properties import TAGS, raw_property
from pocketmq.model.queue import MessageQueue
from pocketmq.model.subscription import Subscription
from pocketmq.net.address import Address
from pocketmq.net.peer import Peer, Waiting
from pocketmq.protocol.api.pulling import PullMessage
from pocketmq.protocol.command import Command, encode_command
from pocketmq.protocol.fields import write_fields
from pocketmq.protocol.frames import PREFIX_SIZE
from pocketmq.protocol.signing import SIGNATURE, Credentials, signature_of, signed_content

PullWriter = Callable[[int, int, int, int], bytes]
"""Makes the whole frame of a pull of its offset, flags, committed offset and number. Any thread may do it."""

_pack_prefix = struct.Struct(">II").pack
_GAPS: Final = {"queueOffset": "%d", "sysFlag": "%d", "commitOffset": "%d", SIGNATURE: "%b"}
"""In the order in which they stand on the wire. Signed are they by name: the committed offset comes first."""


def pull_writer(rpc: RpcClient, code: RequestCode, header: PullMessage, broker_name: str) -> PullWriter:
    """For all pulls that differ from this one in offset, flags and committed offset only, as the client of `links` sends them."""
    fields = rpc.signed_fields(write_fields(header) | named(broker_name)) or {}
    escaped = {name: _GAPS.get(name) or value.replace("%", "%%") for name, value in fields.items()}
    whole = encode_command(Command(int(code), escaped, opaque=0))[PREFIX_SIZE:]
    # Inside a JSON string every quote has a backslash before it, so this text is found at one place only.
    template = whole.replace(b',"opaque":0,', b',"opaque":%d,')
    if rpc.credentials is None:
        return partial(_frame, template)
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


_TAGS: Final = TAGS.encode()
UNLIMITED_BYTES: Final = 2**31 - 1


class PullStatus(StrEnum):
    """What a pull came to."""

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
    """The answer to a pull. `messages` are those that the subscription means; there may be none although some were FOUND."""

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    messages: Sequence[StoredMessage] = ()


class Pulling:
    """Pulls for one consumer. What does not change from pull to pull is said here."""

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
        self._is_written_beforehand = code is RequestCode.PULL_MESSAGE and not instance.rpc.is_watched
        """Else brokers may not know it, and are asked again in another way; or a hook is to see it."""
        self._older: set[Address] = set()
        """Brokers that know only the first kind of pull, as RocketMQ 4 does."""

    def forget(self, queue: MessageQueue) -> None:
        """Nobody pulls it any more."""
        self._suggested.pop(queue, None)
        self._writers.pop(queue, None)

    def asks_master(self, queue: MessageQueue) -> bool:
        """Whether the next pull of it goes to a master, which knows what exists."""
        return self._brokers.is_master(queue.broker_name, self.address_of(queue))

    def note_failure(self, queue: MessageQueue) -> None:
        """A pull of it failed. Where it was suggested to read may be gone; the master tells where to read now."""
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
        """One pull. `committed` above 0 is where the group is, told on the way. Failures are PocketMQErrors."""
        pulled = await self.pull_records(queue, offset, subscription, limit, committed=committed, timeout_s=timeout_s)
        return _result_of(pulled, queue, subscription)

    async def peek(self, queue: MessageQueue, offset: int, *, timeout_s: float) -> PullResult:
        """The message at `offset`, whatever the filter says of it. The broker does not wait for one."""
        address = self.address_of(queue)
        everything = Subscription(queue.topic)
        flags = self._flags & ~PullFlag.SUSPEND | PullFlag.SUBSCRIPTION
        await self._brokers.peer(address)
        await self._heartbeats.wait_heard(address)
        header = self._header(queue, everything, 1, offset, flags, 0)
        return _result_of(await self._ask(address, queue.broker_name, header, timeout_s), queue, everything)

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
        """The same for who cannot wait: `waiting` is told of the answer, and gives it to `hear`.

        False, and nothing is sent, when this would have to wait for something first. `deadline` is a time of the loop.
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
        flags = self._flags_to(queue, address, committed)
        peer.ask_for(waiting, deadline, write, offset, flags, committed or 0)
        return True

    def hear(self, answer: Command, queue: MessageQueue, subscription: Subscription) -> PullResult:
        """What the answer to a pull that was sent says; a failure is raised as the error that it stands for."""
        pulled = pulled_of(answer)
        self._suggested[queue] = pulled.header.suggest_which_broker_id
        return _result_of(pulled, queue, subscription)

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
        """The same for who decodes records by himself. Filters by tag are as good as the broker's, which compares hashes."""
        if not self._brokers.knows(queue.broker_name):
            await self._routes.refresh(queue.topic)
        address = self.address_of(queue)
        flags = self._flags_to(queue, address, committed)
        committed = committed or 0
        if not subscription.is_tag:
            await self._brokers.peer(address)
            await self._heartbeats.wait_heard(address)
            self._heartbeats.require_sql(address, queue.broker_name)
        peer = self._ready_connection(address)
        if peer is not None:
            write = self._writer(queue, subscription, limit)
            pulled = pulled_of(await peer.ask_encoded(int(self._code), write, timeout_s, offset, flags, committed))
        else:
            header = self._header(queue, subscription, limit, offset, flags, committed)
            await self._heartbeats.wait_heard(address)
            pulled = await self._ask(address, queue.broker_name, header, timeout_s)
        self._suggested[queue] = pulled.header.suggest_which_broker_id
        return pulled

    # for threads with connections of their own: see `direct_pulls`

    def address_of(self, queue: MessageQueue) -> Address:
        """The broker from which to pull a queue."""
        return self._brokers.reader(queue.broker_name, self._suggested.get(queue, MASTER_ID))

    def frame(
        self, queue: MessageQueue, offset: int, subscription: Subscription, limit: int, more_flags: int, number: int
    ) -> bytes:
        """The request of a pull that tells no offset. `more_flags` are bits of `PullFlag`."""
        return self._writer(queue, subscription, limit)(offset, self._flags | more_flags, 0, number)

    def heard(self, queue: MessageQueue, answer: Command) -> Pulled:
        """What the answer to such a request says; a failure is raised as the error that it stands for."""
        pulled = pulled_of(answer)
        self._suggested[queue] = pulled.header.suggest_which_broker_id
        return pulled

    def _flags_to(self, queue: MessageQueue, address: Address, committed: int | None) -> int:
        """Only a master is told offsets."""
        if committed and self._brokers.is_master(queue.broker_name, address):
            return self._flags | PullFlag.COMMIT_OFFSET
        return self._flags

    def _ready_connection(self, address: Address) -> Peer | None:
        """The connection to `address` if a pull that was written beforehand may leave on it at once.

        A broker that has not handled our last heartbeat yet takes the pull for one of another subscription, and refuses it.
        """
        if not self._is_written_beforehand or not self._heartbeats.is_heard(address):
            return None
        peer = self._brokers.live(address)
        return peer if peer is not None and peer.connection.writable else None

    def _header(
        self, queue: MessageQueue, subscription: Subscription, limit: int, offset: int, flags: int, committed: int
    ) -> PullMessage:
        carried = flags & PullFlag.SUBSCRIPTION
        return PullMessage(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=limit,
            sys_flag=flags,
            commit_offset=committed,
            suspend_timeout_millis=self._wait_ms,
            sub_version=0 if carried and subscription.is_tag else subscription.sub_version,
            subscription=subscription.sub_string if carried else None,
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

    async def _ask(self, address: Address, broker_name: str, header: PullMessage, timeout_s: float) -> Pulled:
        ask = self._brokers.messages.pull
        if address not in self._older:
            try:
                return await ask(address, broker_name, header, timeout_s=timeout_s, code=self._code)
            except RequestNotSupported:
                if self._code is RequestCode.PULL_MESSAGE:
                    raise
                self._older.add(address)
        return await ask(address, broker_name, header, timeout_s=timeout_s)


def _result_of(pulled: Pulled, queue: MessageQueue, subscription: Subscription) -> PullResult:
    told = pulled.header
    messages: Sequence[StoredMessage] = ()
    next_offset = told.next_begin_offset
    if pulled.code == ResponseCode.SUCCESS:
        messages, next_offset = received(pulled.records, queue, next_offset)
        if subscription.tags_set:
            messages = wanted_messages(subscription, messages)
    return PullResult(_STATUSES[pulled.code], next_offset, told.min_offset, told.max_offset, messages)


def wanted_messages(subscription: Subscription, messages: Sequence[StoredMessage]) -> Sequence[StoredMessage]:
    """Those that the tag filter really means; all of them for other filters, which the broker alone can judge."""
    tags = subscription.tags_set
    if not tags or not subscription.is_tag or subscription.class_filter_mode:
        return messages
    wanted = {tag.encode() for tag in tags}
    return [message for message in messages if raw_property(message.raw_properties, _TAGS) in wanted]
