"""Recalls: a producer cancels a timed message before it is due, with the handle from its send.

    send, timed ──► answer with a recall handle: topic, broker, TIMER_OUT_MS + 1, unique key
    RECALL_MESSAGE with it ──► a message with TIMER_DEL_UNIQKEY = topic+unique key, timed for the same second
                                   └─ when that second is over, `timers` delivers neither of them

The broker does not check whether the message still exists: a successful recall means that it is not delivered from now on.
"""

from pocketmq.broker.messages import Draft, packed_host
from pocketmq.broker.state import BrokerState
from pocketmq.codes import Perm, RequestCode, ResponseCode
from pocketmq.errors import (
    IllegalOperation,
    NoPermission,
    ProtocolError,
    ServiceNotAvailable,
    TopicNotFound,
    UsageError,
)
from pocketmq.model import TIMER_TOPIC, is_retry
from pocketmq.model import properties as names
from pocketmq.model.message_id import RecallHandle
from pocketmq.net import Handler, Reply, Request
from pocketmq.protocol.api.messages import RecallMessage, RecallReply

_BODY = b"0"
"""A message needs a body; this one is never read."""
_REMARK = "not set any response code"
"""RocketMQ's remark for every successful recall."""


def recall_handle_for(draft: Draft, broker_name: str) -> str | None:
    """The recall handle of `draft`, which has been routed; None if it does not wait for a time."""
    topic = draft.properties.get(names.REAL_TOPIC, "")
    if draft.topic != TIMER_TOPIC or not topic or is_retry(topic) or names.TIMER_DEL_UNIQKEY in draft.properties:
        return None
    deliver_ms = int(draft.properties[names.TIMER_OUT_MS]) + 1
    try:
        return str(RecallHandle(topic, broker_name, deliver_ms, draft.properties.get(names.UNIQ_KEY, "")))
    except UsageError:
        return None  # a unique key with a blank: its handle could not be parsed


def delete_key(topic: str, unique_key: str) -> str:
    """The key by which a recall names its message."""
    return f"{topic}+{unique_key}"


class RecallHandlers:
    def __init__(self, state: BrokerState) -> None:
        self._state = state

    def table(self) -> dict[RequestCode, Handler]:
        return {RequestCode.RECALL_MESSAGE: self.recall}

    async def recall(self, request: Request[RecallMessage]) -> Reply:
        settings = self._state.settings.now
        self._check_allowed(request.header.topic)
        handle = self._read(request.header)
        draft = Draft(
            topic=handle.topic,
            queue_id=0,
            body=_BODY,
            properties={
                names.UNIQ_KEY: handle.unique_id,
                names.TIMER_DEL_UNIQKEY: delete_key(handle.topic, handle.unique_id),
                names.TIMER_DELIVER_MS: str(handle.deliver_ms),
                names.CLUSTER: settings.cluster,
            },
            born_ms=self._state.clock.now_ms(),
            born_host=packed_host(request.peer.address),
        )
        self._state.appender.append(draft)
        is_safe = await self._state.appender.safe()
        code = ResponseCode.SUCCESS if is_safe else ResponseCode.FLUSH_DISK_TIMEOUT
        return Reply(RecallReply(handle.unique_id, settings.region), code=code, remark=_REMARK if is_safe else None)

    def _check_allowed(self, topic: str) -> None:
        settings = self._state.settings.now
        if not settings.timer.recall_enabled:
            raise NoPermission("recall failed, operation is forbidden: recallMessageEnable is off on this broker")
        if not settings.permission & Perm.WRITE:
            raise ServiceNotAvailable("recall failed, broker service not available: the broker is not writable")
        if topic not in self._state.topics:
            raise TopicNotFound(f"recall failed, the topic[{topic}] not exist")

    def _read(self, header: RecallMessage) -> RecallHandle:
        """The handle, if it belongs to this broker and to a message that is not due yet."""
        settings = self._state.settings.now
        try:
            handle = RecallHandle.parse(header.recall_handle)
        except ProtocolError as error:
            raise IllegalOperation(f"recall failed, decode handle error: {error}") from None
        if handle.topic != header.topic:
            raise IllegalOperation(f"recall failed, topic not match: the handle is of topic {handle.topic}")
        if handle.broker_name != settings.broker_name:
            raise IllegalOperation(
                f"recall failed, broker service not available: the handle is of broker {handle.broker_name}"
            )
        left_ms = handle.deliver_ms - self._state.clock.now_ms()
        if not 0 < left_ms < settings.timer.max_delay_s * 1000:
            raise IllegalOperation(f"recall failed, timestamp invalid: the message is due in {left_ms} ms")
        return handle
