"""Consumer groups: settings, lists, tables, and subscriptions.

Also the SQL92 filters that a broker stores for its groups. They are rebuilt from heartbeats, so the file is only a cache.
"""

from enum import StrEnum

from pocketmq.model.subscription import Subscription
from pocketmq.protocol.bodies.body import EMPTY_MAP, Body, DataVersion
from pocketmq.protocol.fields import Int32, Int64


class RetryPolicyType(StrEnum):
    EXPONENTIAL = "EXPONENTIAL"
    CUSTOMIZED = "CUSTOMIZED"


class ExponentialRetryPolicy(Body, frozen=True):
    """The first and the largest delay in milliseconds, and the factor between delays."""

    initial: Int64 = 5_000
    max: Int64 = 7_200_000
    multiplier: Int64 = 2


class CustomizedRetryPolicy(Body, frozen=True):
    """The delay of each retry in milliseconds; by default the delay levels."""

    next: tuple[Int64, ...] = ()


class GroupRetryPolicy(Body, frozen=True):
    """The delays between the retries of a message."""

    type: RetryPolicyType = RetryPolicyType.CUSTOMIZED
    exponential_retry_policy: ExponentialRetryPolicy | None = None
    customized_retry_policy: CustomizedRetryPolicy | None = None


class SimpleSubscription(Body, frozen=True):
    """A subscription that an administrator fixed for a group."""

    topic: str | None = None
    expression_type: str | None = None
    expression: str | None = None
    version: Int64 = 0


class SubscriptionGroupConfig(Body, frozen=True):
    """A consumer group on one broker."""

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: Int32 = 1
    retry_max_times: Int32 = 16
    group_retry_policy: GroupRetryPolicy = GroupRetryPolicy()
    broker_id: Int64 = 0
    which_broker_when_consume_slowly: Int64 = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: Int32 = 0
    consume_timeout_minute: Int32 = 15
    subscription_data_set: tuple[SimpleSubscription, ...] | None = None
    attributes: dict[str, str] = EMPTY_MAP


class GroupTable(Body, frozen=True):
    """All groups of a broker, and their forbidden operations (group → topic → bits): the file subscriptionGroup.json."""

    data_version: DataVersion = DataVersion()
    forbidden_table: dict[str, dict[str, Int32]] = EMPTY_MAP
    subscription_group_table: dict[str, SubscriptionGroupConfig] = EMPTY_MAP


class GroupConfigList(Body, frozen=True):
    """Groups to create or change together."""

    group_config_list: tuple[SubscriptionGroupConfig, ...] = ()


class GroupList(Body, frozen=True):
    group_list: tuple[str, ...] = ()


class ConsumerIdList(Body, frozen=True):
    """Client ids of a group's members."""

    consumer_id_list: tuple[str, ...] = ()


class GroupForbidden(Body, frozen=True):
    """Whether a group may read a topic."""

    group: str | None = None
    topic: str | None = None
    readable: bool | None = None


class GroupSubscription(Body, frozen=True):
    """The subscription of a group to a topic, if any."""

    group: str | None = None
    topic: str | None = None
    subscription_data: Subscription | None = None


class CheckClientConfig(Body, frozen=True):
    """A subscription that a client asks the broker to check before it starts."""

    client_id: str | None = None
    group: str | None = None
    subscription_data: Subscription | None = None
    namespace: str | None = None


class FilterBits(Body, frozen=True):
    """The bits of the filter in an entry's bit map."""

    bit_num: Int32 = 0
    bit_pos: tuple[Int32, ...] = ()


class GroupFilter(Body, frozen=True):
    """A group's filter on a topic. `dead_time` is 0 while the group is connected."""

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
