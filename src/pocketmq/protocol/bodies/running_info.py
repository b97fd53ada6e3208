"""What a consumer tells about itself when asked, and what became of a message it was told to consume."""

from enum import StrEnum

import msgspec

from pocketmq.model.queue import MessageQueue
from pocketmq.model.subscription import Subscription
from pocketmq.protocol.bodies.body import EMPTY_MAP, Body
from pocketmq.protocol.fields import Int32, Int64

NAMESERVER_ADDR = "PROP_NAMESERVER_ADDR"
CONSUME_TYPE = "PROP_CONSUME_TYPE"
CONSUME_ORDERLY = "PROP_CONSUMEORDERLY"
THREADPOOL_CORE_SIZE = "PROP_THREADPOOL_CORE_SIZE"
CONSUMER_START_TIMESTAMP = "PROP_CONSUMER_START_TIMESTAMP"
CLIENT_VERSION = "PROP_CLIENT_VERSION"
"""Properties of a running info that tools look for; a Java consumer adds all its settings to them."""


class ProcessQueueInfo(Body, frozen=True):
    """The messages of one queue that the consumer holds. `droped` is the wire's spelling."""

    commit_offset: Int64 = 0
    cached_msg_min_offset: Int64 = 0
    cached_msg_max_offset: Int64 = 0
    cached_msg_count: Int32 = 0
    cached_msg_size_in_mib: Int32 = msgspec.field(default=0, name="cachedMsgSizeInMiB")
    transaction_msg_min_offset: Int64 = 0
    transaction_msg_max_offset: Int64 = 0
    transaction_msg_count: Int32 = 0
    locked: bool = False
    try_unlock_times: Int64 = 0
    last_lock_timestamp: Int64 = 0
    dropped: bool = msgspec.field(default=False, name="droped")
    last_pull_timestamp: Int64 = 0
    last_consume_timestamp: Int64 = 0


class PopProcessQueueInfo(Body, frozen=True):
    """The same for pop consumption."""

    wait_ack_count: Int32 = 0
    dropped: bool = msgspec.field(default=False, name="droped")
    last_pop_timestamp: Int64 = 0


class ConsumeStatus(Body, frozen=True):
    """How fast a topic is consumed. Times in milliseconds, rates per second, failures within the last hour."""

    pull_rt: float = msgspec.field(default=0.0, name="pullRT")
    pull_tps: float = msgspec.field(default=0.0, name="pullTPS")
    consume_rt: float = msgspec.field(default=0.0, name="consumeRT")
    consume_ok_tps: float = msgspec.field(default=0.0, name="consumeOKTPS")
    consume_failed_tps: float = msgspec.field(default=0.0, name="consumeFailedTPS")
    consume_failed_msgs: Int64 = 0


class ConsumerRunningInfo(Body, frozen=True):
    """A consumer from the inside. `jstack` holds the stacks of its threads, when they were asked for."""

    properties: dict[str, str] = EMPTY_MAP
    subscription_set: tuple[Subscription, ...] = ()
    mq_table: dict[MessageQueue, ProcessQueueInfo] = EMPTY_MAP
    mq_pop_table: dict[MessageQueue, PopProcessQueueInfo] = EMPTY_MAP
    status_table: dict[str, ConsumeStatus] = EMPTY_MAP
    user_consumer_info: dict[str, str] = EMPTY_MAP
    jstack: str | None = None


class ConsumeOutcome(StrEnum):
    """What a listener made of a message."""

    CR_SUCCESS = "CR_SUCCESS"
    CR_LATER = "CR_LATER"
    CR_ROLLBACK = "CR_ROLLBACK"
    CR_COMMIT = "CR_COMMIT"
    CR_THROW_EXCEPTION = "CR_THROW_EXCEPTION"
    CR_RETURN_NULL = "CR_RETURN_NULL"


class DirectConsumption(Body, frozen=True):
    """The end of a message that was consumed on request."""

    order: bool = False
    auto_commit: bool = True
    consume_result: ConsumeOutcome | None = None
    remark: str | None = None
    spent_time_mills: Int64 = 0
