"""Queue assignment by the broker, and POP consumption: types only, not served yet."""

from enum import StrEnum

import msgspec

from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.bodies.body import EMPTY_MAP, Body
from pocketmq.protocol.bodies.clients import MessageModel
from pocketmq.protocol.fields import Int32, Int64


class MessageRequestMode(StrEnum):
    """How a group gets its messages."""

    PULL = "PULL"
    POP = "POP"


class QueryAssignment(Body, frozen=True):
    """A client requests its queues from the broker."""

    topic: str
    consumer_group: str
    client_id: str
    strategy_name: str | None = None
    message_model: MessageModel | None = None


class QueueAssignment(Body, frozen=True):
    """One assigned queue."""

    message_queue: MessageQueue | None = None
    mode: MessageRequestMode = MessageRequestMode.PULL
    attachments: dict[str, str] | None = None


class QueueAssignments(Body, frozen=True):
    message_queue_assignments: tuple[QueueAssignment, ...] = ()


class RequestMode(Body, frozen=True):
    """How a group consumes a topic, as set by an administrator."""

    topic: str
    consumer_group: str
    mode: MessageRequestMode = MessageRequestMode.PULL
    pop_share_queue_num: Int32 = 0


class RequestModes(Body, frozen=True):
    """All such settings of a broker: topic → group → mode."""

    message_request_mode_map: dict[str, dict[str, RequestMode]] = EMPTY_MAP


class BatchAck(Body, frozen=True):
    """Messages of one pop that were consumed: bit n of `offsets` (lowest first) is `start_offset` + n."""

    consumer_group: str = msgspec.field(name="c")
    topic: str = msgspec.field(name="t")
    retry: str | None = msgspec.field(default=None, name="r")
    start_offset: Int64 = msgspec.field(default=0, name="so")
    queue_id: Int32 = msgspec.field(default=0, name="q")
    revive_queue_id: Int32 = msgspec.field(default=0, name="rq")
    pop_time: Int64 = msgspec.field(default=0, name="pt")
    invisible_time: Int64 = msgspec.field(default=0, name="it")
    offsets: bytes = msgspec.field(default=b"", name="b")


class BatchAcks(Body, frozen=True):
    broker_name: str | None = None
    acks: tuple[BatchAck, ...] = ()


class PopOrder(Body, frozen=True):
    """The state of an orderly POP group in a queue."""

    pop_time: Int64 = 0
    invisible_time: Int64 | None = msgspec.field(default=None, name="i")
    offset_list: tuple[Int64, ...] | None = msgspec.field(default=None, name="o")
    offset_next_visible_time: dict[Int64, Int64] | None = msgspec.field(default=None, name="ot")
    offset_consumed_count: dict[Int64, Int32] | None = msgspec.field(default=None, name="oc")
    last_consume_timestamp: Int64 = msgspec.field(default=0, name="l")
    commit_offset_bit: Int64 = msgspec.field(default=0, name="cm")
    attempt_id: str | None = msgspec.field(default=None, name="a")


class PopOrderTable(Body, frozen=True):
    """The file consumerOrderInfo.json: `topic@group` → queue id → state."""

    table: dict[str, dict[Int32, PopOrder]] = EMPTY_MAP
