"""Routes: which brokers have a topic, and where they are."""

import msgspec

from pocketmq.protocol.bodies.body import EMPTY_MAP, Body
from pocketmq.protocol.bodies.topics import QueueMappingInfo
from pocketmq.protocol.header import Int32, Int64


class QueueData(Body, frozen=True):
    """A topic's queues on one broker name."""

    broker_name: str
    read_queue_nums: Int32 = 0
    write_queue_nums: Int32 = 0
    perm: Int32 = 0
    topic_sys_flag: Int32 = 0
    topic_syn_flag: Int32 | msgspec.UnsetType = msgspec.UNSET
    """How releases up to 4.8 spell `topic_sys_flag`; read as that, and never written."""

    def __post_init__(self) -> None:
        if self.topic_syn_flag is not msgspec.UNSET:
            msgspec.structs.force_setattr(self, "topic_sys_flag", self.topic_syn_flag)
            msgspec.structs.force_setattr(self, "topic_syn_flag", msgspec.UNSET)


class BrokerData(Body, frozen=True):
    """A broker name and the addresses behind it: id → address, 0 is the master."""

    cluster: str | None = None
    broker_name: str | None = None
    broker_addrs: dict[Int64, str] = EMPTY_MAP
    enable_acting_master: bool = False
    zone_name: str | None = None


class TopicRouteData(Body, frozen=True):
    """Where a topic is. `order_topic_conf` is `broker:queues;broker2:queues`."""

    queue_datas: tuple[QueueData, ...] = ()
    broker_datas: tuple[BrokerData, ...] = ()
    filter_server_table: dict[str, tuple[str, ...]] = EMPTY_MAP
    order_topic_conf: str | None = None
    topic_queue_mapping_by_broker: dict[str, QueueMappingInfo] | None = None


class ClusterInfo(Body, frozen=True):
    """All brokers that a name server knows: by name, and names by cluster."""

    broker_addr_table: dict[str, BrokerData] = EMPTY_MAP
    cluster_addr_table: dict[str, tuple[str, ...]] = EMPTY_MAP


class BrokerMembers(Body, frozen=True):
    """The addresses behind one broker name."""

    cluster: str | None = None
    broker_name: str | None = None
    broker_addrs: dict[Int64, str] = EMPTY_MAP


class BrokerMemberGroup(Body, frozen=True):
    """The answer that holds them."""

    broker_member_group: BrokerMembers | None = None
