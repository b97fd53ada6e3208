"""Topics of a broker: create, change, list, count and delete them."""

from pocketmq.codes import RequestCode
from pocketmq.protocol.api.row import Api
from pocketmq.protocol.fields import Fields, Int32


class CreateTopic(Fields):
    """`attributes` are changes: `+name=value,-name`. `topic_filter_type` is SINGLE_TAG or MULTI_TAG."""

    topic: str
    default_topic: str
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32
    topic_filter_type: str
    order: bool
    topic_sys_flag: Int32 | None = None
    attributes: str | None = None
    force: bool | None = None


class DeleteTopic(Fields):
    topic: str


class GetTopic(Fields):
    topic: str


class GetAllTopics(Fields):
    """A slave reads its master's table in pages. Callers up to 5.3.3 send no field and get all of it."""

    topic_seq: Int32 | None = None
    data_version: str | None = None
    max_topic_num: Int32 | None = None


class AllTopicsReply(Fields):
    total_topic_num: Int32 | None = None


class GetTopicStats(Fields):
    topic: str


ROWS = (
    Api(RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopic),
    Api(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST),
    Api(RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC, CreateTopic),
    Api(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopic),
    Api(RequestCode.GET_TOPIC_CONFIG, GetTopic),
    Api(RequestCode.GET_ALL_TOPIC_CONFIG, GetAllTopics, AllTopicsReply),
    Api(RequestCode.GET_TOPIC_STATS_INFO, GetTopicStats),
    Api(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER),
    Api(RequestCode.CLEAN_UNUSED_TOPIC),
)
