"""Permissions of each request code of a broker: one row per code.

A code with a handler and without a row is rejected for all accounts. An account needs all permissions in the row.

Some requests name a message by its log offset. Their topic is read from the log (`by_log_offset`), whatever the request
says: otherwise the permission for one topic would grant access to all.
"""

from collections.abc import Callable, Iterable
from typing import Final

from pocketmq.access.accounts import Access, Accesses, Action, Resource
from pocketmq.codes import RequestCode
from pocketmq.errors import ImpossibleRequest
from pocketmq.model import HALF_TOPIC, OffsetId, StoredMessage, is_retry
from pocketmq.model.properties import REAL_TOPIC
from pocketmq.protocol.api.administration import GetConsumeStats
from pocketmq.protocol.api.messages import (
    ConsumeMessageDirectly,
    EndTransaction,
    QueryConsumeQueue,
    QueryCorrectionOffset,
    SendMessageBack,
    UnregisterClient,
    ViewMessage,
)
from pocketmq.protocol.bodies.clients import (
    CheckClientConfig,
    GroupConfigList,
    HeartbeatData,
    QueryAssignment,
    QueueLocks,
    RequestMode,
    SubscriptionGroupConfig,
)
from pocketmq.protocol.bodies.topics import TopicConfigList
from pocketmq.protocol.command import Command
from pocketmq.protocol.pop import BatchAck, retried_topic

MessageAt = Callable[[int], StoredMessage | None]
"""The message at a log offset; None if no message begins there, or it cannot be read yet."""


# resources in bodies and lists


def _heartbeat_groups(command: Command) -> Iterable[str]:
    return [one.group_name for one in HeartbeatData.decode(command.body).consumer_data_set]


def _heartbeat_topics(command: Command) -> Iterable[str]:
    consumers = HeartbeatData.decode(command.body).consumer_data_set
    return [subscription.topic for one in consumers for subscription in one.subscription_data_set]


def _judging_group(command: Command) -> Iterable[str]:
    """The group whose filter is applied to queue entries, if there is one."""
    group = QueryConsumeQueue.decode(command.ext).consumer_group
    return [] if group is None else [group]


def _unregistered_group(command: Command) -> Iterable[str]:
    """Empty if only a producer leaves: that needs no permission."""
    group = UnregisterClient.decode(command.ext).consumer_group
    return [] if group is None else [group]


def _lock_group(command: Command) -> Iterable[str]:
    return [QueueLocks.decode(command.body).consumer_group]


def _lock_topics(command: Command) -> Iterable[str]:
    return {queue.topic: None for queue in QueueLocks.decode(command.body).mq_set}


def _checked_group(command: Command) -> Iterable[str]:
    return [CheckClientConfig.decode(command.body).group or ""]


def _checked_topic(command: Command) -> Iterable[str]:
    wanted = CheckClientConfig.decode(command.body).subscription_data
    return [] if wanted is None else [wanted.topic]


def _listed_topics(command: Command) -> Iterable[str]:
    return [one.topic_name for one in TopicConfigList.decode(command.body).topic_config_list]


def _body_group(command: Command) -> Iterable[str]:
    return [SubscriptionGroupConfig.decode(command.body).group_name]


def _listed_groups(command: Command) -> Iterable[str]:
    return [one.group_name for one in GroupConfigList.decode(command.body).group_config_list]


def _stats_topics(command: Command) -> Iterable[str]:
    """Empty if no topic is named: the permission for the group covers its topics."""
    header = GetConsumeStats.decode(command.ext)
    listed = (header.topic_list or "").split(";")
    return [topic for topic in (header.topic, *listed) if topic]


def _compared_groups(command: Command) -> Iterable[str]:
    header = QueryCorrectionOffset.decode(command.ext)
    return [header.compare_group, *filter(None, (header.filter_groups or "").split(","))]


def _leased_topic(command: Command) -> Iterable[str]:
    """The topic of a leased message: that of its first attempt, not the group's retry topic for it."""
    ext = command.ext or {}
    topic = retried_topic(ext.get("consumerGroup", ""), ext.get("topic", ""))
    return [] if is_retry(topic) else [topic]


def _acked_topics(command: Command) -> Iterable[str]:
    return {entry.topic: None for entry in BatchAck.decode(command.body).acks}


def _acking_groups(command: Command) -> Iterable[str]:
    return {entry.group: None for entry in BatchAck.decode(command.body).acks}


def _assigned_topic(command: Command) -> Iterable[str]:
    topic = QueryAssignment.decode(command.body).topic
    return [] if is_retry(topic) else [topic]


def _assigned_group(command: Command) -> Iterable[str]:
    return [QueryAssignment.decode(command.body).consumer_group]


def _mode_topic(command: Command) -> Iterable[str]:
    return [RequestMode.decode(command.body).topic]


def _mode_group(command: Command) -> Iterable[str]:
    return [RequestMode.decode(command.body).consumer_group]


_OR_SUB: Final = (Action.SUB,)

_SEND = (Access(Resource.TOPIC, Action.PUB, "topic"),)
_CONSUME = (Access(Resource.TOPIC, Action.SUB, "topic"), Access(Resource.GROUP, Action.SUB, "consumer_group"))
_ACK = (Access(Resource.TOPIC, Action.SUB, _leased_topic), Access(Resource.GROUP, Action.SUB, "consumer_group"))
_LOCK = (Access(Resource.TOPIC, Action.SUB, _lock_topics), Access(Resource.GROUP, Action.SUB, _lock_group))
_READ_TOPIC = (Access(Resource.TOPIC, Action.GET, "topic", _OR_SUB),)
_READ_ANY_TOPIC = (Access(Resource.TOPIC, Action.GET, or_to=_OR_SUB),)
_READ_GROUP = (Access(Resource.GROUP, Action.GET, "group", _OR_SUB),)
_READ_CONSUMERS = (Access(Resource.GROUP, Action.GET, "consumer_group", _OR_SUB),)
_CHANGE_GROUP = (
    Access(Resource.TOPIC, Action.UPDATE, "topic", _OR_SUB),
    Access(Resource.GROUP, Action.UPDATE, "group"),
)
_SEND_BACK = Access(Resource.GROUP, Action.SUB, "group")
_HAVE_CONSUMED = Access(Resource.GROUP, Action.UPDATE, "consumer_group")
_READ = (Access(Resource.CLUSTER, Action.GET),)
_CHANGE = (Access(Resource.CLUSTER, Action.UPDATE),)

ACCESS: Final[dict[RequestCode, Accesses]] = {
    # sending
    RequestCode.SEND_MESSAGE: _SEND,
    RequestCode.SEND_MESSAGE_V2: _SEND,
    RequestCode.SEND_BATCH_MESSAGE: _SEND,
    RequestCode.SEND_REPLY_MESSAGE: _SEND,
    RequestCode.SEND_REPLY_MESSAGE_V2: _SEND,
    RequestCode.END_TRANSACTION: (Access(Resource.TOPIC, Action.PUB),),
    RequestCode.RECALL_MESSAGE: _SEND,
    # consuming
    RequestCode.PULL_MESSAGE: _CONSUME,
    RequestCode.LITE_PULL_MESSAGE: _CONSUME,
    RequestCode.QUERY_CONSUMER_OFFSET: (*_READ_TOPIC, *_READ_CONSUMERS),
    RequestCode.UPDATE_CONSUMER_OFFSET: (
        Access(Resource.TOPIC, Action.UPDATE, "topic", _OR_SUB),
        Access(Resource.GROUP, Action.UPDATE, "consumer_group", _OR_SUB),
    ),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: _READ_CONSUMERS,
    RequestCode.CONSUMER_SEND_MSG_BACK: (_SEND_BACK, Access(Resource.TOPIC, Action.SUB)),
    RequestCode.LOCK_BATCH_MQ: _LOCK,
    RequestCode.UNLOCK_BATCH_MQ: _LOCK,
    RequestCode.CHECK_CLIENT_CONFIG: (
        Access(Resource.TOPIC, Action.SUB, _checked_topic),
        Access(Resource.GROUP, Action.SUB, _checked_group),
    ),
    # pops
    RequestCode.POP_MESSAGE: _CONSUME,
    RequestCode.PEEK_MESSAGE: _CONSUME,
    RequestCode.NOTIFICATION: _CONSUME,
    RequestCode.POLLING_INFO: (*_READ_TOPIC, *_READ_CONSUMERS),
    RequestCode.ACK_MESSAGE: _ACK,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: _ACK,
    RequestCode.BATCH_ACK_MESSAGE: (
        Access(Resource.TOPIC, Action.SUB, _acked_topics),
        Access(Resource.GROUP, Action.SUB, _acking_groups),
    ),
    RequestCode.QUERY_ASSIGNMENT: (
        Access(Resource.TOPIC, Action.SUB, _assigned_topic),
        Access(Resource.GROUP, Action.SUB, _assigned_group),
    ),
    RequestCode.SET_MESSAGE_REQUEST_MODE: (
        Access(Resource.TOPIC, Action.UPDATE, _mode_topic, _OR_SUB),
        Access(Resource.GROUP, Action.UPDATE, _mode_group),
    ),
    RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: _READ,
    RequestCode.POP_ROLLBACK: _CHANGE,
    # clients
    RequestCode.HEART_BEAT: (
        Access(Resource.GROUP, Action.SUB, _heartbeat_groups),
        Access(Resource.TOPIC, Action.SUB, _heartbeat_topics),
    ),
    RequestCode.UNREGISTER_CLIENT: (Access(Resource.GROUP, Action.SUB, _unregistered_group),),
    RequestCode.GET_CONSUMER_CONNECTION_LIST: _READ_CONSUMERS,
    RequestCode.GET_PRODUCER_CONNECTION_LIST: _READ,
    RequestCode.GET_ALL_PRODUCER_INFO: _READ,
    RequestCode.GET_CONSUMER_RUNNING_INFO: _READ_CONSUMERS,
    RequestCode.CONSUME_MESSAGE_DIRECTLY: (_HAVE_CONSUMED, Access(Resource.TOPIC, Action.SUB)),
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: _READ_GROUP,
    # queues and messages
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: _READ_TOPIC,
    RequestCode.GET_MAX_OFFSET: _READ_TOPIC,
    RequestCode.GET_MIN_OFFSET: _READ_TOPIC,
    RequestCode.GET_EARLIEST_MSG_STORETIME: _READ_TOPIC,
    RequestCode.QUERY_MESSAGE: _READ_TOPIC,
    RequestCode.VIEW_MESSAGE_BY_ID: _READ_ANY_TOPIC,
    RequestCode.QUERY_CONSUME_QUEUE: (*_READ_TOPIC, Access(Resource.GROUP, Action.GET, _judging_group, _OR_SUB)),
    RequestCode.RESUME_CHECK_HALF_MESSAGE: _CHANGE,
    # topics
    RequestCode.UPDATE_AND_CREATE_TOPIC: (Access(Resource.TOPIC, Action.CREATE, "topic"),),
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: (Access(Resource.TOPIC, Action.CREATE, _listed_topics),),
    RequestCode.DELETE_TOPIC_IN_BROKER: (Access(Resource.TOPIC, Action.DELETE, "topic"),),
    RequestCode.GET_TOPIC_CONFIG: _READ_TOPIC,
    RequestCode.GET_TOPIC_STATS_INFO: _READ_TOPIC,
    RequestCode.GET_ALL_TOPIC_CONFIG: (Access(Resource.TOPIC, Action.LIST),),
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: (Access(Resource.TOPIC, Action.LIST),),
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: _READ_TOPIC,
    # groups
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: (Access(Resource.GROUP, Action.CREATE, _body_group),),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: (Access(Resource.GROUP, Action.CREATE, _listed_groups),),
    RequestCode.DELETE_SUBSCRIPTIONGROUP: (Access(Resource.GROUP, Action.DELETE, "group_name"),),
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: _READ_GROUP,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: (Access(Resource.GROUP, Action.LIST),),
    RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: _CHANGE_GROUP,
    RequestCode.QUERY_TOPICS_BY_CONSUMER: _READ_GROUP,
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: _READ_GROUP,
    RequestCode.GET_CONSUME_STATS: (*_READ_CONSUMERS, Access(Resource.TOPIC, Action.GET, _stats_topics, _OR_SUB)),
    RequestCode.QUERY_CONSUME_TIME_SPAN: (*_READ_TOPIC, *_READ_GROUP),
    RequestCode.QUERY_CORRECTION_OFFSET: (
        *_READ_TOPIC,
        Access(Resource.GROUP, Action.GET, _compared_groups, _OR_SUB),
    ),
    RequestCode.CLONE_GROUP_OFFSET: (
        Access(Resource.GROUP, Action.GET, "src_group", _OR_SUB),
        Access(Resource.GROUP, Action.UPDATE, "dest_group"),
    ),
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: _CHANGE_GROUP,
    # the broker itself
    RequestCode.GET_BROKER_RUNTIME_INFO: _READ,
    RequestCode.GET_BROKER_CONFIG: _READ,
    RequestCode.UPDATE_BROKER_CONFIG: _CHANGE,
    RequestCode.VIEW_BROKER_STATS_DATA: _READ,
    RequestCode.GET_BROKER_CONSUME_STATS: _READ,
    RequestCode.GET_BROKER_HA_STATUS: _READ,
    RequestCode.GET_TIMER_CHECK_POINT: _READ,
    RequestCode.GET_TIMER_METRICS: _READ,
    RequestCode.GET_ALL_CONSUMER_OFFSET: _READ,
    RequestCode.GET_ALL_DELAY_OFFSET: _READ,
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: _CHANGE,
    RequestCode.CLEAN_UNUSED_TOPIC: _CHANGE,
    RequestCode.DELETE_EXPIRED_COMMITLOG: _CHANGE,
}
"""Requests with a log offset need permission for all topics here; `by_log_offset` replaces their rows."""


def by_log_offset(message_at: MessageAt) -> dict[RequestCode, Accesses]:
    """The table of a broker that can read its log."""

    def found(offset: int) -> StoredMessage:
        message = message_at(offset)
        if message is None:
            raise ImpossibleRequest(f"can not find message by the offset, {offset}")
        return message

    def viewed(command: Command) -> Iterable[str]:
        return [found(ViewMessage.decode(command.ext).offset).topic]

    def sent_back(command: Command) -> Iterable[str]:
        return [found(SendMessageBack.decode(command.ext).offset).topic]

    def decided(command: Command) -> Iterable[str]:
        half = found(EndTransaction.decode(command.ext).commit_log_offset)
        return [half.properties.get(REAL_TOPIC, "") if half.topic == HALF_TOPIC else half.topic]

    def relayed(command: Command) -> Iterable[str]:
        msg_id = ConsumeMessageDirectly.decode(command.ext).msg_id
        return [found(OffsetId.parse(msg_id or "").offset).topic]

    return ACCESS | {
        RequestCode.VIEW_MESSAGE_BY_ID: (Access(Resource.TOPIC, Action.GET, viewed, _OR_SUB),),
        RequestCode.CONSUMER_SEND_MSG_BACK: (_SEND_BACK, Access(Resource.TOPIC, Action.SUB, sent_back)),
        RequestCode.END_TRANSACTION: (Access(Resource.TOPIC, Action.PUB, decided),),
        RequestCode.CONSUME_MESSAGE_DIRECTLY: (_HAVE_CONSUMED, Access(Resource.TOPIC, Action.SUB, relayed)),
    }
