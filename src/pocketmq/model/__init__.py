"""Values that client and servers share, and small pure rules. No I/O, no clock, no encoding of the wire.

What most of the program uses is imported from here; other rules and constants from their modules.

Modules in reading order:

    message        a message before it is sent, and after it was stored
    properties     message properties as one text
    message_id     both kinds of message ids, and handles that recall timed messages
    names          validated names of topics, groups and namespaces
    queue          message queues and ranges of offsets
    subscription   what a consumer subscribes to: everything, tags, or a SQL92 expression
    sql92/         the SQL92 filter language
    java_hash      Java's `String.hashCode`
    delay          delay levels
    retries        how often and when a failed message is retried
    transactions   half messages and op messages
    durations      histograms of durations
    human          numbers, durations, times and sizes as people read and write them
    setting_keys   settings in properties files and admin requests
"""

from pocketmq.model.delay import DELAY_LEVELS, DelayLevels, queue_of_level
from pocketmq.model.message import Message, StoredMessage
from pocketmq.model.message_id import Host, OffsetId, UniqueIds, offset_id, pack_ip
from pocketmq.model.names import (
    CHECK_MAX_TIME_TOPIC,
    DLQ_PREFIX,
    HALF_TOPIC,
    LMQ_PREFIX,
    OP_HALF_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRANSACTION_CHECK_GROUP,
    UNSENDABLE_TOPICS,
    GroupName,
    TopicName,
    dlq_topic,
    group_of,
    is_group_topic,
    is_internal_group,
    is_retry,
    is_system_group,
    is_system_topic,
    is_topic,
    parse_broker,
    parse_group,
    parse_topic,
    retry_topic,
)
from pocketmq.model.queue import MessageQueue, QueueOffset, QueueRange
from pocketmq.model.subscription import ExpressionType, Subscription
from pocketmq.model.transactions import Undecided, checks_of, describe, origin_of

__all__ = [
    "CHECK_MAX_TIME_TOPIC",
    "DELAY_LEVELS",
    "DLQ_PREFIX",
    "HALF_TOPIC",
    "LMQ_PREFIX",
    "OP_HALF_TOPIC",
    "SCHEDULE_TOPIC",
    "TIMER_TOPIC",
    "TRANSACTION_CHECK_GROUP",
    "UNSENDABLE_TOPICS",
    "DelayLevels",
    "ExpressionType",
    "GroupName",
    "Host",
    "Message",
    "MessageQueue",
    "OffsetId",
    "QueueOffset",
    "QueueRange",
    "StoredMessage",
    "Subscription",
    "TopicName",
    "Undecided",
    "UniqueIds",
    "checks_of",
    "describe",
    "dlq_topic",
    "group_of",
    "is_group_topic",
    "is_internal_group",
    "is_retry",
    "is_system_group",
    "is_system_topic",
    "is_topic",
    "offset_id",
    "origin_of",
    "pack_ip",
    "parse_broker",
    "parse_group",
    "parse_topic",
    "queue_of_level",
    "retry_topic",
]
