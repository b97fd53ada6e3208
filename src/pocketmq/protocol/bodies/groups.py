"""Consumer groups: how each is set up, lists and tables of them, and what they subscribe to.

SQL92 filters that a broker keeps for its groups. Rebuilt from heartbeats, so the file is a help and not the truth.
"""

from enum import StrEnum

from pocketmq.model.subscription import Subscription
from pocketmq.protocol.bodies.body import EMPTY_MAP, Body, DataVersion
from pocketmq.protocol.fields import Int32, Int64


class RetryPolicyType(StrEnum):
    EXPONENTIAL = "EXPONENTIAL"
    CUSTOMIZED = "CUSTOMIZED"


class ExponentialRetryPolicy(Body, frozen=True):
    """Milliseconds before the first retry and at most, and what each is multiplied with to give the next."""

    initial: Int64 = 5_000
    max: Int64 = 7_200_000
    multiplier: Int64 = 2


class CustomizedRetryPolicy(Body, frozen=True):
    """Milliseconds before each retry; the delay levels, if none are given."""

    next: tuple[Int64, ...] = ()


class GroupRetryPolicy(Body, frozen=True):
    """How long a message of the group waits before it is delivered again."""

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
    """All groups of a broker, and what is forbidden to them (group → topic → bits): the file subscriptionGroup.json."""

    data_version: DataVersion = DataVersion()
    forbidden_table: dict[str, dict[str, Int32]] = EMPTY_MAP
    subscription_group_table: dict[str, SubscriptionGroupConfig] = EMPTY_MAP


class GroupConfigList(Body, frozen=True):
    """Groups to be created or changed in one go."""

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
    """What a group subscribes to in a topic, if it does."""

    group: str | None = None
    topic: str | None = None
    subscription_data: Subscription | None = None


class CheckClientConfig(Body, frozen=True):
    """A subscription that a client wants to have checked before it starts."""

    client_id: str | None = None
    group: str | None = None
    subscription_data: Subscription | None = None
    namespace: str | None = None


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
