"""Every option of a consumer, with RocketMQ's defaults where it has them. They are keyword arguments, as those of `settings`.

start_at            where a new group begins, in queues that it has no offset for
  "last"              what comes from now on
  "first"             everything that is there
  a time              from then on: milliseconds, a datetime, a timedelta before now, or 20240131235959
"""

import os
from datetime import datetime, timedelta

from pocketmq.client.allocation import AVERAGE, AllocationStrategy, strategy_named
from pocketmq.client.flow_limits import FlowLimits
from pocketmq.client.settings import KIB, MIB, ClientOptions, ClientSettings
from pocketmq.client.start_offset import start_time_ms
from pocketmq.errors import InvalidSetting
from pocketmq.model.names import GroupName, parse_group, wrap
from pocketmq.protocol.bodies.heartbeat import ConsumeFromWhere, MessageModel

StartAt = str | int | datetime | timedelta
"""`"last"`, `"first"`, or a time."""

_WORDS = {
    "last": ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
    "first": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
}


class GroupOptions(ClientOptions, total=False):
    """The keyword arguments of every consumer; see `GroupSettings`."""

    group: str
    own_thread: bool


class SharingOptions(GroupOptions, total=False):
    """The keyword arguments of consumers that share queues; see `SharingSettings`."""

    broadcast: bool
    start_at: StartAt | None
    allocation: AllocationStrategy | str | None
    rebalance_ms: int
    persist_ms: int
    pull_batch: int
    pull_interval_ms: int | None
    pull_timeout_ms: int
    max_queue_messages: int
    max_queue_bytes: int
    max_span: int
    local_offsets: str | os.PathLike[str] | None


class PushOptions(SharingOptions, total=False):
    """The keyword arguments of a push consumer; see `PushSettings`."""

    ordered: bool
    workers: int
    processes: int | None
    pull_batch_bytes: int
    pull_wait_ms: int
    max_topic_messages: int | None
    max_topic_bytes: int | None
    max_reconsume_times: int | None
    suspend_ms: int
    consume_timeout_ms: int
    subscription_in_pulls: bool


class LitePullOptions(SharingOptions, total=False):
    """The keyword arguments of a lite pull consumer; see `LitePullSettings`."""

    auto_commit: bool
    auto_commit_ms: int
    poll_timeout_ms: int
    pull_wait_ms: int
    max_messages: int


class PullOptions(GroupOptions, total=False):
    """The keyword arguments of a pull consumer; see `PullSettings`."""

    broadcast: bool
    pull_wait_ms: int
    pull_timeout_ms: int
    block_timeout_ms: int
    max_reconsume_times: int | None
    local_offsets: str | os.PathLike[str] | None


class GroupSettings(ClientSettings, frozen=True, kw_only=True):
    """What all consumers share."""

    group: str = ""
    """Members of one group share the messages of their topics. It must be given."""
    own_thread: bool = True
    """The network lives in the client's own thread, so that whatever holds up this loop does not cost its queues.
    False: it lives on this loop. (Only async consumers can choose; blocking ones always have the thread.)"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.group:
            raise InvalidSetting("a consumer needs group=…: its members share the messages of their topics")
        _ = self.wire_group

    @property
    def wire_group(self) -> GroupName:
        """The group as it is called on the wire."""
        return parse_group(wrap(self.namespace, self.group))


class SharingSettings(GroupSettings, frozen=True, kw_only=True):
    """What consumers need that share queues with the other members of their group."""

    broadcast: bool = False
    """Each member gets every message, instead of sharing them; how far it is, it keeps in a file of its own."""
    start_at: StartAt | None = None
    """Where a new group begins; None is "last"."""
    allocation: AllocationStrategy | str | None = None
    """How queues are shared out: a strategy of `allocation`, or RocketMQ's name of it. None is AVG."""
    rebalance_ms: int = 20_000
    persist_ms: int = 5_000
    """How often brokers are told how far the group is."""

    # pulling
    pull_batch: int = 32
    """Messages of one pull."""
    pull_interval_ms: int | None = None
    """A pause between pulls of a queue; None for none."""
    pull_timeout_ms: int = 30_000
    """How long the answer to a pull may take; brokers hold pulls for less."""

    # bounds
    max_queue_messages: int = 1_000
    max_queue_bytes: int = 100 * MIB
    """What is here of one queue, and not done with; while there is more, it is not pulled."""
    max_span: int = 2_000
    """From the oldest message of a queue that is not done with to the newest."""
    local_offsets: str | os.PathLike[str] | None = None
    """The folder in which a broadcasting consumer keeps its offsets; None is .rocketmq_offsets in the home folder."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.start_at, str | int | datetime | timedelta | None) or isinstance(self.start_at, bool):
            raise InvalidSetting(f"start_at = {self.start_at!r} must be 'last', 'first' or a time")
        _ = self.limits, self.strategy, self.start_time_ms(0)
        if self.rebalance_ms < 1_000:
            raise InvalidSetting(f"rebalance_ms = {self.rebalance_ms} must be at least 1000")

    @property
    def keeps_default_name(self) -> bool:
        """So that a broadcasting consumer finds its offsets again, whatever its process is called."""
        return self.broadcast

    @property
    def model(self) -> MessageModel:
        return MessageModel.BROADCASTING if self.broadcast else MessageModel.CLUSTERING

    @property
    def from_where(self) -> ConsumeFromWhere:
        """`start_at` in the word that brokers are told."""
        if self.start_at is None:
            return ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
        if isinstance(self.start_at, str) and self.start_at in _WORDS:
            return _WORDS[self.start_at]
        return ConsumeFromWhere.CONSUME_FROM_TIMESTAMP

    def start_time_ms(self, now_ms: int) -> int:
        """The time that `start_at` means; only for CONSUME_FROM_TIMESTAMP."""
        if self.from_where is not ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
            return now_ms
        assert self.start_at is not None
        return start_time_ms(self.start_at, now_ms)

    @property
    def strategy(self) -> AllocationStrategy:
        if self.allocation is None:
            return AVERAGE
        return strategy_named(self.allocation) if isinstance(self.allocation, str) else self.allocation

    @property
    def limits(self) -> FlowLimits:
        return FlowLimits(queue_messages=self.max_queue_messages, queue_bytes=self.max_queue_bytes, span=self.max_span)


class PushSettings(SharingSettings, frozen=True, kw_only=True):
    """What a push consumer needs beside that."""

    ordered: bool = False
    """Messages of a queue are handled one after the other, in their order, by one member of the group at a time."""
    workers: int = 20
    """Calls of listeners at the same time: threads for plain functions, tasks for `async def`."""
    processes: int | None = None
    """Call plain listeners in so many processes instead of threads: for those that compute, not wait."""
    pull_batch_bytes: int = 256 * KIB
    pull_wait_ms: int = 15_000
    """How long a broker holds a pull that finds nothing."""
    max_topic_messages: int | None = None
    max_topic_bytes: int | None = None
    """The same limits for all queues of a topic together, instead of for each."""

    # failures
    max_reconsume_times: int | None = None
    """How often a message is tried again before it becomes a dead letter. None is 16; in order, without end."""
    suspend_ms: int = 1_000
    """How long an ordered queue rests after a failure, unless the listener says so itself."""
    consume_timeout_ms: int = 15 * 60_000
    """A message on which a listener works for longer is given to the group again."""
    subscription_in_pulls: bool = False
    """Send the filter with every pull, so that brokers need not have heard it before."""

    @property
    def limits(self) -> FlowLimits:
        return FlowLimits(
            queue_messages=self.max_queue_messages,
            queue_bytes=self.max_queue_bytes,
            span=self.max_span,
            topic_messages=self.max_topic_messages,
            topic_bytes=self.max_topic_bytes,
        )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.processes is not None and self.processes < 1:
            raise InvalidSetting(f"processes = {self.processes} must be above 0, or None for threads")
        if self.ordered and self.broadcast and self.max_reconsume_times is not None:
            raise InvalidSetting(
                "max_reconsume_times means nothing to a broadcasting consumer: it has no retries and no dead letters"
            )


class LitePullSettings(SharingSettings, frozen=True, kw_only=True):
    """What a lite pull consumer needs beside that."""

    pull_batch: int = 10
    pull_wait_ms: int = 20_000
    """How long a broker holds a pull that finds nothing."""
    auto_commit: bool = True
    """Messages of one poll are committed by a later one, at the earliest `auto_commit_ms` after the last commit."""
    auto_commit_ms: int = 5_000
    poll_timeout_ms: int = 5_000
    max_messages: int = 10_000
    """What is here of all queues together, and was not polled yet."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.auto_commit_ms < 1_000:
            raise InvalidSetting(f"auto_commit_ms = {self.auto_commit_ms} must be at least 1000")

    @property
    def limits(self) -> FlowLimits:
        return FlowLimits(
            queue_messages=self.max_queue_messages,
            queue_bytes=self.max_queue_bytes,
            span=self.max_span,
            all_messages=self.max_messages,
        )


class PullSettings(GroupSettings, frozen=True, kw_only=True):
    """What a pull consumer needs beside its group."""

    broadcast: bool = False
    """Offsets are kept in a file of this client instead of by brokers."""
    pull_wait_ms: int = 20_000
    """How long a broker holds a pull that may wait and finds nothing."""
    pull_timeout_ms: int = 10_000
    block_timeout_ms: int = 30_000
    """How long the answer may take, to a pull and to one that may wait."""
    max_reconsume_times: int | None = None
    local_offsets: str | os.PathLike[str] | None = None

    @property
    def keeps_default_name(self) -> bool:
        return self.broadcast

    @property
    def model(self) -> MessageModel:
        return MessageModel.BROADCASTING if self.broadcast else MessageModel.CLUSTERING
