"""SQL92 filters that a broker keeps for its groups. Rebuilt from heartbeats, so the file is a help and not the truth."""

from pocketmq.protocol.bodies.body import EMPTY_MAP, Body
from pocketmq.protocol.header import Int32, Int64


class FilterBits(Body, frozen=True):
    """Which bits of an entry's bit map stand for the filter."""

    bit_num: Int32 = 0
    bit_pos: tuple[Int32, ...] = ()


class GroupFilter(Body, frozen=True):
    """A group's filter on a topic. `dead_time` is 0 while the group is there."""

    consumer_group: str | None = None
    topic: str | None = None
    expression: str | None = None
    expression_type: str | None = None
    born_time: Int64 = 0
    dead_time: Int64 = 0
    bloom_filter_data: FilterBits | None = None
    client_version: Int64 = 0


class TopicFilters(Body, frozen=True):
    topic: str | None = None
    group_filter_data: dict[str, GroupFilter] = EMPTY_MAP


class FilterTable(Body, frozen=True):
    """The file consumerFilter.json."""

    filter_data_by_topic: dict[str, TopicFilters] = EMPTY_MAP
