"""Requests that brokers send to a client, over the connections of the client. A member of the group handles each request.

40   the members of a group changed      its consumer schedules a rebalance
39   check a transaction                 a producer of the group checks it and sends the decision later
220  reset offsets                       its consumer continues from the new offsets
221  get consume offsets                 its consumer reports them
307  get running info                    its consumer reports it
309  consume a message directly          its consumer consumes it and reports the result
326  a reply to a request                the future of the request gets it

A reply to a request has the same three properties as the request:

request ── CORRELATION_ID, REPLY_TO_CLIENT, TTL ──► a consumer ── reply with the same properties ──► a broker
   ▲                                                                                                   │
   └──── the future with this correlation id ◄──── code 326, over a connection of this client ◄────────┘
"""

import asyncio
import struct
from collections.abc import Callable, Coroutine
from typing import Any

from pocketmq.client.cluster.heartbeats import ConsumerMember, Members
from pocketmq.codes import RequestCode, SysFlag
from pocketmq.errors import ProtocolError, RequestNotSupported, ServerFailed, TooManyCalls
from pocketmq.model import Host, StoredMessage
from pocketmq.model import properties as names
from pocketmq.net import Peer
from pocketmq.protocol.api.messages import (
    CheckTransactionState,
    ConsumeMessageDirectly,
    ForConsumerGroup,
    GetConsumerRunningInfo,
    GetConsumerStatus,
    PushReplyMessage,
    ResetOffset,
)
from pocketmq.protocol.bodies.topics import ConsumerStatus, ResetOffsets
from pocketmq.protocol.command import Command
from pocketmq.protocol.compression import decompress
from pocketmq.protocol.record import HOSTS_V6, decode_record, encode_record, host_flags

_NO_HOST = Host(b"\0\0\0\0", 0)


class WaitingReplies:
    """The requests of one client without a reply. `unmatched` counts replies without a request, mostly late ones."""

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.Future[StoredMessage]] = {}
        self.unmatched = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def expect(self, correlation_id: str, limit: int) -> asyncio.Future[StoredMessage]:
        """The future of the reply with this id; TooManyCalls when `limit` requests already wait."""
        if len(self._waiting) >= limit:
            raise TooManyCalls(
                f"{len(self._waiting)} requests already wait for a reply (max_waiting_requests); retry later"
            )
        future: asyncio.Future[StoredMessage] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = future
        future.add_done_callback(lambda _: self._waiting.pop(correlation_id, None))
        return future

    def arrived(self, header: PushReplyMessage, body: bytes) -> None:
        """Deliver a reply from a broker."""
        message = reply_message(header, body)
        future = self._waiting.get(message.properties.get(names.CORRELATION_ID, ""))
        if future is None or future.done():
            self.unmatched += 1
        else:
            future.set_result(message)


def reply_message(header: PushReplyMessage, body: bytes) -> StoredMessage:
    """The message in a pushed reply. It may not be stored, so it has no offsets."""
    plain = decompress(body, header.sys_flag)
    born_host, store_host = _host(header.born_host).packed(), _host(header.store_host).packed()
    sys_flag = header.sys_flag & ~(SysFlag.COMPRESSED | SysFlag.COMPRESSION_MASK | HOSTS_V6)
    try:
        record = encode_record(
            header.topic.encode(),
            header.queue_id,
            0,
            0,
            plain,
            (header.properties or "").encode(),
            header.flag,
            sys_flag | host_flags(born_host, store_host),
            header.born_timestamp,
            born_host,
            header.store_timestamp,
            store_host,
            header.reconsume_times or 0,
        )
    except struct.error as error:
        raise ProtocolError(f"cannot decode a pushed reply: {error}") from None
    return decode_record(record, check_crc=False)


def _host(text: str) -> Host:
    """Java may send a host name, which is not an address."""
    try:
        return Host.parse(text.removeprefix("/"))
    except ProtocolError:
        return _NO_HOST


Answer = Command | Coroutine[Any, Any, Command | None] | None


class BrokerRequests:
    """Handles the requests of brokers; the pool calls `serve`."""

    def __init__(self, members: Members, replies: WaitingReplies) -> None:
        self._members = members
        self._replies = replies
        self._handlers: dict[int, Callable[[Peer, Command], Answer]] = {
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._rebalance,
            RequestCode.CHECK_TRANSACTION_STATE: self._check_transaction,
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET: self._reset_offsets,
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: self._report_offsets,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self._report_running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self._consume_directly,
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: self._deliver_reply,
        }

    def serve(self, peer: Peer, command: Command) -> Answer:
        handler = self._handlers.get(command.code)
        if handler is None:
            raise RequestNotSupported(f" request type {command.code} not supported")
        return handler(peer, command)

    def _rebalance(self, peer: Peer, command: Command) -> None:
        consumer = self._members.consumer(ForConsumerGroup.decode(command.ext).consumer_group)
        if consumer is not None:
            consumer.rebalance_soon()

    def _check_transaction(self, peer: Peer, command: Command) -> None:
        header = CheckTransactionState.decode(command.ext)
        message = decode_record(command.body)
        decider = self._members.decider(message.properties.get(names.PRODUCER_GROUP, ""))
        if decider is not None:  # else the broker checks again, maybe with another client
            decider.check_transaction(peer, header, message, (command.ext or {}).get("bname"))

    async def _reset_offsets(self, peer: Peer, command: Command) -> None:
        header = ResetOffset.decode(command.ext)
        offsets = ResetOffsets.decode(command.body)
        consumer = self._members.consumer(header.group)
        if consumer is not None:
            await consumer.reset_offsets(header.topic, offsets)

    def _report_offsets(self, peer: Peer, command: Command) -> Command:
        header = GetConsumerStatus.decode(command.ext)
        positions = dict(self._consumer(header.group).positions(header.topic))
        return command.reply(body=ConsumerStatus(positions).encode())

    def _report_running_info(self, peer: Peer, command: Command) -> Command:
        header = GetConsumerRunningInfo.decode(command.ext)
        info = self._consumer(header.consumer_group).running_info(stacks=bool(header.jstack_enable))
        return command.reply(body=info.encode())

    async def _consume_directly(self, peer: Peer, command: Command) -> Command:
        header = ConsumeMessageDirectly.decode(command.ext)
        consumer = self._consumer(header.consumer_group)
        outcome = await consumer.consume_directly(decode_record(command.body), header.broker_name)
        return command.reply(body=outcome.encode())

    def _deliver_reply(self, peer: Peer, command: Command) -> Command:
        self._replies.arrived(PushReplyMessage.decode(command.ext), command.body)
        return command.reply()

    def _consumer(self, group: str) -> ConsumerMember:
        consumer = self._members.consumer(group)
        if consumer is None:
            raise ServerFailed(f"The Consumer Group <{group}> not exist in this consumer")
        return consumer
