"""Reading queues without being anybody's member: straight pulls, from one offset to another.

offset ── pull ── messages ──► handed out ──► pull again from where the broker says
             ├─ nothing there, or nothing more ──► the end
             └─ the queue begins later, or has a hole ──► go on there
"""

from collections.abc import AsyncIterator

from pocketmq.client.administration.reach import Reach
from pocketmq.client.calls.messages import is_hole
from pocketmq.client.received import readable, with_shown_topic
from pocketmq.codes import ResponseCode
from pocketmq.errors import ProtocolError, UsageError
from pocketmq.model.flags import PullFlag
from pocketmq.model.message import StoredMessage
from pocketmq.model.names import TOOLS_GROUP
from pocketmq.model.queue import MessageQueue
from pocketmq.model.subscription import ALL, ExpressionType
from pocketmq.protocol.api.pulling import PullMessage
from pocketmq.protocol.record import decode_records

PULL_MESSAGES = 64
"""Of one pull. Brokers give fewer when they like."""


def check_limit(limit: int) -> None:
    """UsageError for one that lets nothing through."""
    if limit < 1:
        raise UsageError(f"limit = {limit} must be above 0")


async def read_queue(reach: Reach, queue: MessageQueue, begin: int, end: int) -> AsyncIterator[StoredMessage]:
    """The messages of `queue`, of the wire, with offsets from `begin` to below `end`, as they are stored."""
    offset = begin
    while offset < end:
        messages, following = await _pull(reach, queue, offset, min(end - offset, PULL_MESSAGES))
        for message in messages:
            if message.queue_offset >= end:
                return
            yield message
        if following <= offset:
            return
        offset = following


async def first_at(reach: Reach, queue: MessageQueue, offset: int) -> StoredMessage | None:
    """The message at this offset, or the next one that is there."""
    messages, following = await _pull(reach, queue, offset, 1)
    while not messages and following > offset:
        offset = following
        messages, following = await _pull(reach, queue, offset, 1)
    return messages[0] if messages else None


def shown_message(reach: Reach, message: StoredMessage) -> StoredMessage:
    """A message as users see it; one whose body is damaged stays as it is stored, so that it can be looked at."""
    if not reach.settings.decompress:
        return with_shown_topic(message, reach.settings.namespace)
    try:
        return readable(message, reach.settings.namespace)
    except ProtocolError:
        return with_shown_topic(message, reach.settings.namespace)


async def _pull(reach: Reach, queue: MessageQueue, offset: int, limit: int) -> tuple[list[StoredMessage], int]:
    """Messages, and where to go on; the same offset when there is nothing more."""
    header = PullMessage(
        consumer_group=TOOLS_GROUP,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_msg_nums=limit,
        sys_flag=PullFlag.SUBSCRIPTION,
        commit_offset=0,
        suspend_timeout_millis=0,
        sub_version=0,
        subscription=ALL,
        expression_type=ExpressionType.TAG,
    )
    address = reach.brokers.reader(queue.broker_name)
    timeout_s = reach.settings.call_timeout_ms / 1000
    pulled = await reach.brokers.messages.pull(address, queue.broker_name, header, timeout_s=timeout_s)
    if pulled.code == ResponseCode.SUCCESS:
        return decode_records(pulled.records, queue=queue), pulled.header.next_begin_offset
    following = pulled.header.next_begin_offset
    if pulled.code == ResponseCode.PULL_NOT_FOUND and not is_hole(pulled.code, following, offset):
        return [], offset
    return [], following
