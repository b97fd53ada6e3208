"""Values that client and servers share, and small pure rules. No I/O, no clock, no encoding of the wire.

The classes that most of the program uses are imported from here; rules and constants from their modules.

Modules in reading order:

    message        a message before it is sent, and after it was stored
    properties     message properties as one text
    message_id     both kinds of message ids
    names          validated names of topics, groups and namespaces
    queue          message queues and ranges of offsets
    subscription   what a consumer subscribes to: everything, tags, or a SQL92 expression
    sql92/         the SQL92 filter language
    java_hash      Java's `String.hashCode`
    delay          delay levels
    retries        how often and when a failed message is retried
    transactions   half messages and op messages
    access         resources and actions of access rules
    durations      histograms of durations
    human          numbers, durations, times and sizes as people read and write them
    setting_keys   settings in properties files and admin requests
"""

from pocketmq.model.delay import DelayLevels
from pocketmq.model.message import Message, StoredMessage
from pocketmq.model.message_id import Host, OffsetId, UniqueIds
from pocketmq.model.names import GroupName, TopicName
from pocketmq.model.queue import MessageQueue, QueueOffset, QueueRange
from pocketmq.model.subscription import ExpressionType, Subscription
from pocketmq.model.transactions import Undecided

__all__ = [
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
]
