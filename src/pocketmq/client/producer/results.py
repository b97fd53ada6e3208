"""The result of a send."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import msgspec

from pocketmq.codes import ResponseCode
from pocketmq.errors import HeaderError, error_for
from pocketmq.model import MessageQueue
from pocketmq.protocol.command import Command


class SendStatus(StrEnum):
    """SEND_OK, or the message is stored but not flushed or replicated as configured."""

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


STATUSES: Final[dict[int, SendStatus]] = {
    ResponseCode.SUCCESS: SendStatus.SEND_OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
}
"""Response codes of a stored message."""


class SendResult(msgspec.Struct, frozen=True, gc=False):
    """Where a message was stored. The producer assigned `message_id`, the broker `offset_id`."""

    status: SendStatus
    message_id: str
    offset_id: str
    queue: MessageQueue
    queue_offset: int
    transaction_id: str | None = None
    recall_handle: str | None = None
    region: str | None = None
    trace_on: bool = True

    @property
    def is_ok(self) -> bool:
        return self.status is SendStatus.SEND_OK


def result_of(answer: Command, message_id: str, queue: MessageQueue) -> SendResult:
    """The result in a response to a send; a failure raises its error. Parsed without msgspec for speed."""
    status = STATUSES.get(answer.code)
    if status is None:
        raise error_for(answer.code, answer.remark)
    ext = answer.ext or {}
    try:
        queue_id = int(ext["queueId"])
        if queue_id != queue.queue_id:  # the broker chose
            queue = MessageQueue(queue.topic, queue.broker_name, queue_id)
        return SendResult(
            status,
            message_id,
            ext["msgId"],
            queue,
            int(ext["queueOffset"]),
            ext.get("transactionId"),
            ext.get("recallHandle"),
            ext.get("MSG_REGION"),
            ext.get("TRACE_ON") != "false",
        )
    except (KeyError, ValueError) as error:
        raise HeaderError(f"invalid response to a send: missing or not a number ({error}): {ext}") from None


def split_result(result: SendResult, message_ids: Sequence[str]) -> list[SendResult]:
    """The result of each message of a batch. They have consecutive offsets."""
    offset_ids = result.offset_id.split(",")
    if len(offset_ids) != len(message_ids):  # a topic that stores batches as one record
        offset_ids = [result.offset_id] * len(message_ids)
    status, queue, region, trace_on = result.status, result.queue, result.region, result.trace_on
    return [
        SendResult(status, message_id, offset_id, queue, queue_offset, None, None, region, trace_on)
        for queue_offset, message_id, offset_id in zip(
            range(result.queue_offset, result.queue_offset + len(offset_ids)), message_ids, offset_ids, strict=True
        )
    ]
