"""Consumer groups: settings, subscriptions, lag, order locks, and queue assignment by the broker."""

from pocketmq.codes import RequestCode
from pocketmq.protocol.api.row import Api
from pocketmq.protocol.fields import Fields, Int32


class GetAllGroups(Fields):
    """A slave reads its master's table in pages. Callers up to 5.3.3 send no field and get all of it."""

    group_seq: Int32 | None = None
    data_version: str | None = None
    max_group_num: Int32 | None = None


class AllGroupsReply(Fields):
    total_group_num: Int32 | None = None


class GetGroup(Fields):
    group: str


class DeleteGroup(Fields):
    """RocketMQ 5 sends `clean_offset`, 4.9 `remove_offset`."""

    group_name: str
    clean_offset: bool | None = None
    remove_offset: bool | None = None


class GetConsumeStats(Fields):
    """`topic_list` is joined by semicolons."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


class QueryTopicConsumers(Fields):
    topic: str


class QueryTopicsByConsumer(Fields):
    group: str


class QuerySubscriptionByConsumer(Fields):
    group: str
    topic: str | None = None


class UpdateGroupForbidden(Fields):
    """Forbid or allow reading a topic if `readable` is set. The response has the current state."""

    group: str
    topic: str
    readable: bool | None = None


ROWS = (
    Api(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP),
    Api(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST),
    Api(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, GetAllGroups, AllGroupsReply),
    Api(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, GetGroup),
    Api(RequestCode.DELETE_SUBSCRIPTIONGROUP, DeleteGroup),
    Api(RequestCode.GET_CONSUME_STATS, GetConsumeStats),
    Api(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, QueryTopicConsumers),
    Api(RequestCode.QUERY_TOPICS_BY_CONSUMER, QueryTopicsByConsumer),
    Api(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, QuerySubscriptionByConsumer),
    Api(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, UpdateGroupForbidden),
    Api(RequestCode.LOCK_BATCH_MQ),
    Api(RequestCode.UNLOCK_BATCH_MQ),
    Api(RequestCode.QUERY_ASSIGNMENT),
    Api(RequestCode.SET_MESSAGE_REQUEST_MODE),
    Api(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE),
)
