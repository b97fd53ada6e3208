"""The running info of a consumer, and the result of a direct consume request."""

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
"""Properties of a running info that tools read. A Java consumer adds all its settings."""


class ProcessQueueInfo(Body, frozen=True):
    """The process queue of one queue. `droped` is the spelling on the wire."""

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
    """Consume rates of a topic: times in milliseconds, rates per second, failures within the last hour."""

    pull_rt: float = msgspec.field(default=0.0, name="pullRT")
    pull_tps: float = msgspec.field(default=0.0, name="pullTPS")
    consume_rt: float = msgspec.field(default=0.0, name="consumeRT")
    consume_ok_tps: float = msgspec.field(default=0.0, name="consumeOKTPS")
    consume_failed_tps: float = msgspec.field(default=0.0, name="consumeFailedTPS")
    consume_failed_msgs: Int64 = 0


class ConsumerRunningInfo(Body, frozen=True):
    """The running info. `jstack` contains the stacks of all threads if requested."""

    properties: dict[str, str] = EMPTY_MAP
    subscription_set: tuple[Subscription, ...] = ()
    mq_table: dict[MessageQueue, ProcessQueueInfo] = EMPTY_MAP
    mq_pop_table: dict[MessageQueue, PopProcessQueueInfo] = EMPTY_MAP
    status_table: dict[str, ConsumeStatus] = EMPTY_MAP
    user_consumer_info: dict[str, str] = EMPTY_MAP
    jstack: str | None = None


class ConsumeOutcome(StrEnum):
    """The result of a listener."""

    CR_SUCCESS = "CR_SUCCESS"
    CR_LATER = "CR_LATER"
    CR_ROLLBACK = "CR_ROLLBACK"
    CR_COMMIT = "CR_COMMIT"
    CR_THROW_EXCEPTION = "CR_THROW_EXCEPTION"
    CR_RETURN_NULL = "CR_RETURN_NULL"


class DirectConsumption(Body, frozen=True):
    """The result of a direct consume request."""

    order: bool = False
    auto_commit: bool = True
    consume_result: ConsumeOutcome | None = None
    remark: str | None = None
    spent_time_mills: Int64 = 0
