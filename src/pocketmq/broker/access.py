"""What each request does, for access rules to decide about: one row for every code that a broker serves.

A code that has a handler and no row here is refused, whoever asks.
"""

from typing import Final

from pocketmq.codes import RequestCode
from pocketmq.model.access import Access, Action, Resource

_SEND = Access(Resource.TOPIC, Action.PUB, named_by="topic")
_CONSUME = Access(Resource.GROUP, Action.SUB, named_by="consumer_group")
_CONSUME_BY_BODY = Access(Resource.GROUP, Action.SUB)
_READ_TOPIC = Access(Resource.TOPIC, Action.GET, named_by="topic")
_READ_GROUP = Access(Resource.GROUP, Action.GET, named_by="group")
_READ_CONSUMERS = Access(Resource.GROUP, Action.GET, named_by="consumer_group")
_CHANGE_GROUP = Access(Resource.GROUP, Action.UPDATE, named_by="group")
_READ = Access(Resource.CLUSTER, Action.GET)
_CHANGE = Access(Resource.CLUSTER, Action.UPDATE)

ACCESS: Final[dict[RequestCode, Access]] = {
    # sending
    RequestCode.SEND_MESSAGE: _SEND,
    RequestCode.SEND_MESSAGE_V2: _SEND,
    RequestCode.SEND_BATCH_MESSAGE: _SEND,
    RequestCode.SEND_REPLY_MESSAGE: _SEND,
    RequestCode.SEND_REPLY_MESSAGE_V2: _SEND,
    RequestCode.END_TRANSACTION: _SEND,
    RequestCode.RECALL_MESSAGE: _SEND,
    # consuming
    RequestCode.PULL_MESSAGE: _CONSUME,
    RequestCode.LITE_PULL_MESSAGE: _CONSUME,
    RequestCode.QUERY_CONSUMER_OFFSET: _CONSUME,
    RequestCode.UPDATE_CONSUMER_OFFSET: _CONSUME,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: _CONSUME,
    RequestCode.CONSUMER_SEND_MSG_BACK: Access(Resource.GROUP, Action.SUB, named_by="group"),
    RequestCode.LOCK_BATCH_MQ: _CONSUME_BY_BODY,
    RequestCode.UNLOCK_BATCH_MQ: _CONSUME_BY_BODY,
    RequestCode.CHECK_CLIENT_CONFIG: _CONSUME_BY_BODY,
    # clients
    RequestCode.HEART_BEAT: _CONSUME_BY_BODY,
    RequestCode.UNREGISTER_CLIENT: _CONSUME_BY_BODY,
    RequestCode.GET_CONSUMER_CONNECTION_LIST: _READ_CONSUMERS,
    RequestCode.GET_PRODUCER_CONNECTION_LIST: _READ,
    RequestCode.GET_ALL_PRODUCER_INFO: _READ,
    RequestCode.GET_CONSUMER_RUNNING_INFO: _READ_CONSUMERS,
    RequestCode.CONSUME_MESSAGE_DIRECTLY: Access(Resource.GROUP, Action.UPDATE, named_by="consumer_group"),
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: _READ_GROUP,
    # queues and messages
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: _READ_TOPIC,
    RequestCode.GET_MAX_OFFSET: _READ_TOPIC,
    RequestCode.GET_MIN_OFFSET: _READ_TOPIC,
    RequestCode.GET_EARLIEST_MSG_STORETIME: _READ_TOPIC,
    RequestCode.QUERY_MESSAGE: _READ_TOPIC,
    RequestCode.VIEW_MESSAGE_BY_ID: _READ_TOPIC,
    RequestCode.QUERY_CONSUME_QUEUE: _READ_TOPIC,
    RequestCode.RESUME_CHECK_HALF_MESSAGE: Access(Resource.TOPIC, Action.UPDATE, named_by="topic"),
    # topics
    RequestCode.UPDATE_AND_CREATE_TOPIC: Access(Resource.TOPIC, Action.CREATE, named_by="topic"),
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: Access(Resource.TOPIC, Action.CREATE),
    RequestCode.DELETE_TOPIC_IN_BROKER: Access(Resource.TOPIC, Action.DELETE, named_by="topic"),
    RequestCode.GET_TOPIC_CONFIG: _READ_TOPIC,
    RequestCode.GET_TOPIC_STATS_INFO: _READ_TOPIC,
    RequestCode.GET_ALL_TOPIC_CONFIG: Access(Resource.TOPIC, Action.LIST),
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: Access(Resource.TOPIC, Action.LIST),
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: _READ_TOPIC,
    # groups
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: Access(Resource.GROUP, Action.CREATE),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: Access(Resource.GROUP, Action.CREATE),
    RequestCode.DELETE_SUBSCRIPTIONGROUP: Access(Resource.GROUP, Action.DELETE, named_by="group_name"),
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: _READ_GROUP,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: Access(Resource.GROUP, Action.LIST),
    RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: _CHANGE_GROUP,
    RequestCode.QUERY_TOPICS_BY_CONSUMER: _READ_GROUP,
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: _READ_GROUP,
    RequestCode.GET_CONSUME_STATS: _READ_CONSUMERS,
    RequestCode.QUERY_CONSUME_TIME_SPAN: _READ_GROUP,
    RequestCode.QUERY_CORRECTION_OFFSET: Access(Resource.GROUP, Action.GET, named_by="compare_group"),
    RequestCode.CLONE_GROUP_OFFSET: Access(Resource.GROUP, Action.UPDATE, named_by="dest_group"),
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: _CHANGE_GROUP,
    # the broker itself
    RequestCode.GET_BROKER_RUNTIME_INFO: _READ,
    RequestCode.GET_BROKER_CONFIG: _READ,
    RequestCode.UPDATE_BROKER_CONFIG: _CHANGE,
    RequestCode.VIEW_BROKER_STATS_DATA: _READ,
    RequestCode.GET_BROKER_CONSUME_STATS: _READ,
    RequestCode.GET_BROKER_HA_STATUS: _READ,
    RequestCode.GET_ALL_CONSUMER_OFFSET: _READ,
    RequestCode.GET_ALL_DELAY_OFFSET: _READ,
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: _CHANGE,
    RequestCode.CLEAN_UNUSED_TOPIC: _CHANGE,
    RequestCode.DELETE_EXPIRED_COMMITLOG: _CHANGE,
}
