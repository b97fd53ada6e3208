"""What became of a send."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import msgspec

from pocketmq.codes import ResponseCode
from pocketmq.errors import HeaderError, error_for
from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.command import Command


class SendStatus(StrEnum):
    """SEND_OK, or stored, but not as safely as the broker promises."""

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
"""The answers that mean stored."""


class SendResult(msgspec.Struct, frozen=True, gc=False):
    """Where a message was stored. `message_id` is the one that it was sent with, `offset_id` the broker's own."""

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
    """What a broker's answer to a send means; the error that it stands for is raised. Once per send, hence by hand."""
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
        raise HeaderError(f"the answer to a send lacks {error}, or it is no number: {ext}") from None


def split_result(result: SendResult, message_ids: Sequence[str]) -> list[SendResult]:
    """What the result of a batch means for each of its messages: they lie side by side in the queue."""
    offset_ids = result.offset_id.split(",")
    if len(offset_ids) != len(message_ids):  # a topic whose queues keep batches whole
        offset_ids = [result.offset_id] * len(message_ids)
    status, queue, region, trace_on = result.status, result.queue, result.region, result.trace_on
    return [
        SendResult(status, message_id, offset_id, queue, queue_offset, None, None, region, trace_on)
        for queue_offset, message_id, offset_id in zip(
            range(result.queue_offset, result.queue_offset + len(offset_ids)), message_ids, offset_ids, strict=True
        )
    ]
