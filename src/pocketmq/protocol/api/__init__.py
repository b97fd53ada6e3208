"""Every request that PocketMQ serves or sends, and its header. `protocol.fields` reads and writes headers.

Modules in reading order:

    messages         sends, transactions, pulls, offsets, clients, POP
    administration   groups, topics and settings of a broker; the name server
"""

from typing import Final

from pocketmq.codes import RequestCode
from pocketmq.protocol.api import administration, messages
from pocketmq.protocol.fields import Fields, NoFields

REQUESTS: Final[dict[int, type[Fields]]] = {
    RequestCode.SEND_MESSAGE: messages.SendMessage,
    RequestCode.PULL_MESSAGE: messages.PullMessage,
    RequestCode.QUERY_MESSAGE: messages.QueryMessage,
    RequestCode.QUERY_CONSUMER_OFFSET: messages.QueryConsumerOffset,
    RequestCode.UPDATE_CONSUMER_OFFSET: messages.UpdateConsumerOffset,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: messages.SearchOffset,
    RequestCode.GET_MAX_OFFSET: messages.GetMaxOffset,
    RequestCode.GET_MIN_OFFSET: messages.ForQueue,
    RequestCode.GET_EARLIEST_MSG_STORETIME: messages.ForQueue,
    RequestCode.VIEW_MESSAGE_BY_ID: messages.ViewMessage,
    RequestCode.UNREGISTER_CLIENT: messages.UnregisterClient,
    RequestCode.CONSUMER_SEND_MSG_BACK: messages.SendMessageBack,
    RequestCode.END_TRANSACTION: messages.EndTransaction,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: messages.ForConsumerGroup,
    RequestCode.SEND_MESSAGE_V2: messages.SendMessageV2,
    RequestCode.SEND_BATCH_MESSAGE: messages.SendMessageV2,
    RequestCode.SEND_REPLY_MESSAGE: messages.SendMessage,
    RequestCode.SEND_REPLY_MESSAGE_V2: messages.SendMessageV2,
    RequestCode.LITE_PULL_MESSAGE: messages.PullMessage,
    RequestCode.RECALL_MESSAGE: messages.RecallMessage,
    RequestCode.CHECK_TRANSACTION_STATE: messages.CheckTransactionState,
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: messages.ForConsumerGroup,
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET: messages.ResetOffset,
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: messages.GetConsumerStatus,
    RequestCode.GET_CONSUMER_RUNNING_INFO: messages.GetConsumerRunningInfo,
    RequestCode.CONSUME_MESSAGE_DIRECTLY: messages.ConsumeMessageDirectly,
    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: messages.PushReplyMessage,
    RequestCode.PUT_KV_CONFIG: administration.PutKvConfig,
    RequestCode.GET_KV_CONFIG: administration.KvKey,
    RequestCode.DELETE_KV_CONFIG: administration.KvKey,
    RequestCode.REGISTER_BROKER: administration.RegisterBroker,
    RequestCode.UNREGISTER_BROKER: administration.ForBroker,
    RequestCode.GET_ROUTEINFO_BY_TOPIC: administration.GetRoute,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: administration.ForBrokerName,
    RequestCode.DELETE_TOPIC_IN_NAMESRV: administration.DeleteTopicRoute,
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: administration.ForTopic,
    RequestCode.GET_KVLIST_BY_NAMESPACE: administration.ForNamespace,
    RequestCode.GET_TOPICS_BY_CLUSTER: administration.GetTopicsByCluster,
    RequestCode.QUERY_DATA_VERSION: administration.ForBroker,
    RequestCode.ADD_WRITE_PERM_OF_BROKER: administration.ForBrokerName,
    RequestCode.GET_BROKER_MEMBER_GROUP: administration.GetBrokerMemberGroup,
    RequestCode.BROKER_HEARTBEAT: administration.BrokerHeartbeat,
    RequestCode.UPDATE_AND_CREATE_TOPIC: administration.CreateTopic,
    RequestCode.GET_ALL_TOPIC_CONFIG: administration.GetAllTopics,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: administration.GetAllGroups,
    RequestCode.GET_TOPIC_STATS_INFO: administration.ForTopic,
    RequestCode.GET_CONSUMER_CONNECTION_LIST: messages.ForConsumerGroup,
    RequestCode.GET_PRODUCER_CONNECTION_LIST: administration.ForProducerGroup,
    RequestCode.DELETE_SUBSCRIPTIONGROUP: administration.DeleteGroup,
    RequestCode.GET_CONSUME_STATS: administration.GetConsumeStats,
    RequestCode.DELETE_TOPIC_IN_BROKER: administration.ForTopic,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: messages.ResetOffset,
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: messages.GetConsumerStatus,
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: administration.ForTopic,
    RequestCode.QUERY_CONSUME_TIME_SPAN: messages.QueryConsumeTimeSpan,
    RequestCode.QUERY_CORRECTION_OFFSET: messages.QueryCorrectionOffset,
    RequestCode.CLONE_GROUP_OFFSET: messages.CloneGroupOffset,
    RequestCode.VIEW_BROKER_STATS_DATA: administration.ViewBrokerStats,
    RequestCode.GET_BROKER_CONSUME_STATS: administration.GetBrokerConsumeStats,
    RequestCode.QUERY_CONSUME_QUEUE: messages.QueryConsumeQueue,
    RequestCode.RESUME_CHECK_HALF_MESSAGE: messages.ResumeCheckHalfMessage,
    RequestCode.QUERY_TOPICS_BY_CONSUMER: administration.ForGroup,
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: administration.QuerySubscriptionByConsumer,
    RequestCode.GET_TOPIC_CONFIG: administration.ForTopic,
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: administration.ForGroup,
    RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: administration.UpdateGroupForbidden,
    RequestCode.POP_MESSAGE: messages.PopMessage,
    RequestCode.ACK_MESSAGE: messages.AckMessage,
    RequestCode.PEEK_MESSAGE: messages.PeekMessage,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: messages.ChangeInvisibleTime,
    RequestCode.NOTIFICATION: messages.Notification,
    RequestCode.POLLING_INFO: messages.PollingInfo,
}
"""The headers of requests with ext fields."""


def request_header(code: int) -> type[Fields]:
    """The header of a request."""
    return REQUESTS.get(code, NoFields)
