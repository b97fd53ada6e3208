"""SendMessage, EndTransaction and RecallMessage.

    message group ──► one queue by consistent hashing, as in Apache RocketMQ
    others ─────────► each queue in turn, except those of brokers whose connection is lost; heartbeats connect again
    several messages of a request ──► one batch, with one result

A transaction is decided by the position of its half message, which the client does not know: `HalfMessages` remembers it, from the
answer to the send or from the latest check-back.
"""

from collections import OrderedDict
from collections.abc import Sequence
from itertools import count
from typing import Final, NamedTuple

from pocketmq.access.accounts import Action, Resource
from pocketmq.client.cluster.calls import named
from pocketmq.clock import Clock
from pocketmq.codes import RequestCode, ResponseCode, TransactionState
from pocketmq.errors import InvalidMessage, ProtocolError, TopicNotFound, error_for
from pocketmq.model import MessageQueue, OffsetId
from pocketmq.model import properties as names
from pocketmq.model.java_hash import java_hash
from pocketmq.model.message_id import RecallHandle
from pocketmq.model.names import AUTO_CREATE_TOPIC
from pocketmq.protocol.api import messages as api
from pocketmq.protocol.batch import encode_batch
from pocketmq.protocol.command import Command
from pocketmq.proxy.callers import Caller
from pocketmq.proxy.conversion import Converted, accepts, converted, topic_of
from pocketmq.proxy.messages import (
    Code,
    EndTransactionRequest,
    EndTransactionResponse,
    MessageType,
    RecallMessageRequest,
    RecallMessageResponse,
    SendMessageRequest,
    SendMessageResponse,
    SendResultEntry,
    TransactionResolution,
    TransactionSource,
)
from pocketmq.proxy.routes import Facts
from pocketmq.proxy.sessions import Session, Sessions
from pocketmq.proxy.settings import ProxySettings
from pocketmq.proxy.statuses import OK, Refused, status_of

_STORED: Final = (ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE, ResponseCode.FLUSH_SLAVE_TIMEOUT)
"""Answers to sends whose message is stored, but less safely than configured."""
_STATES: Final[dict[int, TransactionState]] = {
    TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED: TransactionState.UNKNOWN,
    TransactionResolution.COMMIT: TransactionState.COMMIT,
    TransactionResolution.ROLLBACK: TransactionState.ROLLBACK,
}
_BUCKET_FACTOR: Final = 2862933555777941757


class Half(NamedTuple):
    """Where a half message is."""

    broker_name: str
    queue_offset: int
    log_offset: int


class HalfMessages:
    """The positions of open transactions, by topic and transaction id."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._halves: OrderedDict[tuple[str, str], Half] = OrderedDict()

    def __len__(self) -> int:
        return len(self._halves)

    def remember(self, topic: str, transaction_id: str, half: Half) -> None:
        self._halves[topic, transaction_id] = half
        self._halves.move_to_end((topic, transaction_id))
        if len(self._halves) > self._limit:
            self._halves.popitem(last=False)

    def pop(self, topic: str, transaction_id: str) -> Half:
        half = self._halves.pop((topic, transaction_id), None)
        if half is None:
            raise Refused(
                Code.INTERNAL_SERVER_ERROR,
                f"transaction {transaction_id[:80]!r} of topic {topic} is not known here: it was decided already, or its next "
                "check-back decides it",
            )
        return half


class SendCalls:
    """Calls of producers."""

    def __init__(
        self, sessions: Sessions, facts: Facts, halves: HalfMessages, settings: ProxySettings, clock: Clock
    ) -> None:
        self._sessions = sessions
        self._facts = facts
        self._halves = halves
        self._settings = settings
        self._clock = clock
        self._turns = count()

    async def send(self, caller: Caller, request: SendMessageRequest) -> SendMessageResponse:
        found = [converted(message, self._clock.now_ms(), self._settings) for message in request.messages]
        if not found:
            raise Refused(Code.MESSAGE_CORRUPTED, "the request has no message")
        topic = found[0].topic
        if any(message.topic != topic for message in found):
            raise Refused(Code.MESSAGE_CORRUPTED, "the messages of one request have different topics")
        caller.require(Resource.TOPIC, topic, Action.PUB)
        session = self._sessions.of(caller)
        try:
            wanted = await self._facts.topic_type(session, topic)
        except TopicNotFound:
            wanted = MessageType.MESSAGE_TYPE_UNSPECIFIED.name
        for message in found:
            if not accepts(wanted, topic, message.type):
                raise Refused(
                    Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
                    f"topic {topic} accepts messages of type {wanted}, not {message.type.name}",
                )
        queue = await self._queue(session, topic, found)
        entry = await self._send(session, queue, found)
        return SendMessageResponse(status=entry.status, entries=[entry])

    async def _queue(self, session: Session, topic: str, found: Sequence[Converted]) -> MessageQueue:
        queues = (await session.route(topic)).writable
        if not queues:
            raise Refused(Code.FORBIDDEN, f"topic {topic} has no writable queue")
        group = found[0].properties.get(names.SHARDING_KEY) if len(found) == 1 else None
        if group is not None:
            return queues[consistent_hash(java_hash(group), len(queues))]
        for _ in queues:
            queue = queues[next(self._turns) % len(queues)]
            peer = session.brokers.master_peer(queue.broker_name)
            if peer is None or peer.is_open:
                return queue
        return queues[next(self._turns) % len(queues)]

    async def _send(self, session: Session, queue: MessageQueue, found: Sequence[Converted]) -> SendResultEntry:
        command = _command(session, queue, found)
        answer = await session.brokers.call(queue.broker_name, command)
        if answer.code in _STORED:
            return SendResultEntry(status=status_of(error_for(answer.code, answer.remark)))
        if (error := answer.error()) is not None:
            raise error
        reply, first = api.SendReply.decode(answer.ext), found[0]
        if first.type is MessageType.TRANSACTION:
            position = Half(queue.broker_name, reply.queue_offset, OffsetId.parse(reply.msg_id).offset)
            self._halves.remember(first.topic, first.message_id, position)
        return SendResultEntry(
            status=OK,
            message_id=first.message_id,
            transaction_id=first.message_id,
            offset=reply.queue_offset,
            recall_handle=reply.recall_handle,
        )

    async def end_transaction(self, caller: Caller, request: EndTransactionRequest) -> EndTransactionResponse:
        topic = topic_of(request.topic)
        caller.require(Resource.TOPIC, topic, Action.PUB)
        if not request.transaction_id.strip():
            raise Refused(Code.INVALID_TRANSACTION_ID, "the transaction id is empty")
        state = _STATES.get(request.resolution)
        if state is None:
            raise Refused(Code.BAD_REQUEST, f"a transaction has no resolution {request.resolution}")
        session = self._sessions.of(caller)
        await session.route(topic)
        half = self._halves.pop(topic, request.transaction_id)
        header = api.EndTransaction(
            producer_group=topic,
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=half.log_offset,
            commit_or_rollback=state,
            msg_id=request.message_id,
            topic=topic,
            from_transaction_check=request.source == TransactionSource.SOURCE_SERVER_CHECK,
            transaction_id=request.transaction_id,
        )
        try:
            await session.brokers.messages.decide(half.broker_name, half.broker_name, header)
        except BaseException:  # also the end of the call by the client, which may try again
            self._halves.remember(topic, request.transaction_id, half)
            raise
        return EndTransactionResponse(status=OK)

    async def recall(self, caller: Caller, request: RecallMessageRequest) -> RecallMessageResponse:
        topic = topic_of(request.topic)
        caller.require(Resource.TOPIC, topic, Action.PUB)
        session = self._sessions.of(caller)
        if (wanted := await self._facts.topic_type(session, topic)) not in ("DELAY", "MIXED"):
            raise Refused(
                Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, f"topic {topic} has messages of type {wanted}, not DELAY"
            )
        try:
            handle = RecallHandle.parse(request.recall_handle)
        except ProtocolError as error:
            raise Refused(Code.INTERNAL_SERVER_ERROR, str(error)) from None
        if not session.brokers.knows(handle.broker_name):
            raise Refused(Code.BAD_REQUEST, f"broker {handle.broker_name} is not known")
        header = api.RecallMessage(topic, request.recall_handle, topic)
        message_id = await session.brokers.messages.recall(handle.broker_name, header)
        return RecallMessageResponse(status=OK, message_id=message_id)


def _command(session: Session, queue: MessageQueue, found: Sequence[Converted]) -> Command:
    first, is_batch = found[0], len(found) > 1
    header = api.SendMessageV2(
        producer_group=queue.topic,
        topic=queue.topic,
        default_topic=AUTO_CREATE_TOPIC,
        default_topic_queue_nums=4,
        queue_id=queue.queue_id,
        sys_flag=first.sys_flag,
        born_timestamp=first.born_ms,
        flag=0,
        properties="" if is_batch else first.properties_text,
        reconsume_times=0,
        unit_mode=False,
        batch=is_batch,
        broker_name=queue.broker_name,
    )
    if not is_batch:
        return session.brokers.command(RequestCode.SEND_MESSAGE_V2, header, first.body, named(queue.broker_name))
    if any(message.type is not first.type or first.type is not MessageType.NORMAL for message in found):
        raise Refused(Code.MESSAGE_CORRUPTED, "only normal messages can be sent together")
    try:
        body = encode_batch((0, message.body, message.properties_text.encode()) for message in found)
    except InvalidMessage as error:
        raise Refused(Code.MESSAGE_CORRUPTED, str(error)) from None
    return session.brokers.command(RequestCode.SEND_BATCH_MESSAGE, header, body, named(queue.broker_name))


def consistent_hash(key: int, buckets: int) -> int:
    """The bucket of a key: most keys keep theirs when a bucket is added."""
    state, bucket, candidate = key & 0xFFFF_FFFF_FFFF_FFFF, 0, 0
    while True:
        state = (state * _BUCKET_FACTOR + 1) & 0xFFFF_FFFF_FFFF_FFFF
        candidate = int((bucket + 1) / (((state >> 33) + 1) / 2**31))
        if not 0 <= candidate < buckets:
            return bucket
        bucket = candidate
