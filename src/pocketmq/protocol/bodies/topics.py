"""Topics: settings, tables and lists, and queue mappings of static topics."""

from enum import StrEnum

from pocketmq.model.flags import Perm
from pocketmq.protocol.bodies.body import EMPTY_MAP, Body, DataVersion
from pocketmq.protocol.fields import Int32, Int64


class TopicFilterType(StrEnum):
    SINGLE_TAG = "SINGLE_TAG"
    MULTI_TAG = "MULTI_TAG"


class TopicConfig(Body, frozen=True):
    """A topic on one broker. `perm` and `topic_sys_flag` have the bits of `model.flags`."""

    topic_name: str
    read_queue_nums: Int32 = 16
    write_queue_nums: Int32 = 16
    perm: Int32 = Perm.READ_WRITE
    topic_filter_type: TopicFilterType = TopicFilterType.SINGLE_TAG
    topic_sys_flag: Int32 = 0
    order: bool = False
    attributes: dict[str, str] = EMPTY_MAP


class QueueMappingItem(Body, frozen=True):
    """A range of a logical queue, and its position on a broker."""

    gen: Int32 = 0
    queue_id: Int32 = 0
    bname: str | None = None
    logic_offset: Int64 = 0
    start_offset: Int64 = 0
    end_offset: Int64 = -1
    time_of_start: Int64 = -1
    time_of_end: Int64 = -1


class QueueMappingInfo(Body, frozen=True):
    """Which logical queues of a static topic are on a broker: logical number → number there."""

    topic: str | None = None
    bname: str | None = None
    total_queues: Int32 = 0
    epoch: Int64 = 0
    scope: str = "__global__"
    dirty: bool = False
    curr_id_map: dict[Int32, Int32] = EMPTY_MAP


class QueueMappingDetail(QueueMappingInfo, frozen=True):
    """The same, with the whole history of each queue."""

    hosted_queues: dict[Int32, tuple[QueueMappingItem, ...]] = EMPTY_MAP


class MappedTopicConfig(TopicConfig, frozen=True):
    """A topic on one broker, with its queue mapping if it is static."""

    mapping_detail: QueueMappingDetail | None = None


class TopicTable(Body, frozen=True):
    """All topics of a broker: the file topics.json, and the response of brokers before 5.0."""

    data_version: DataVersion = DataVersion()
    topic_config_table: dict[str, TopicConfig] = EMPTY_MAP


class MappedTopicTable(TopicTable, frozen=True):
    """All topics of a broker with the mappings of static ones."""

    mapping_data_version: DataVersion = DataVersion()
    topic_queue_mapping_detail_map: dict[str, QueueMappingDetail] = EMPTY_MAP
    topic_queue_mapping_info_map: dict[str, QueueMappingInfo] = EMPTY_MAP


class TopicConfigList(Body, frozen=True):
    """Topics to create or change together."""

    topic_config_list: tuple[TopicConfig, ...] = ()


class TopicList(Body, frozen=True):
    """Names of topics; sometimes with the address of one broker that has them."""

    topic_list: tuple[str, ...] = ()
    broker_addr: str | None = None
