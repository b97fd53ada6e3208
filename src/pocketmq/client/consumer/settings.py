"""The options of consumers, with RocketMQ's defaults. They are keyword arguments of the consumers, as those of `client.settings`.

start_at            where a new group starts to read
  "last", "latest"      at the end: new messages only
  "first", "earliest"   at the beginning
  a time              milliseconds, a datetime, a timedelta before now, or a text as on the command line:
                      "2024-01-31T23:59", "2h" for two hours ago; also Java's "20240131235959"
"""

import os
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final, Literal

from pocketmq.client.consumer.allocation import AVERAGE, AllocationStrategy, strategy_named
from pocketmq.client.consumer.consume_result import MAX_SUSPEND_MS, MIN_SUSPEND_MS
from pocketmq.client.consumer.first_offsets import start_time_ms
from pocketmq.client.consumer.flow_limits import QueueLimits, Workers, per_queue, worker_range
from pocketmq.client.consumer.offsets import OffsetStore, UserOffsets
from pocketmq.client.settings import KIB, MIB, ClientOptions, ClientSettings
from pocketmq.errors import InvalidSetting
from pocketmq.model import GroupName
from pocketmq.model.names import parse_group, wrap
from pocketmq.protocol.bodies.clients import ConsumeFromWhere, MessageModel

StartAt = str | int | datetime | timedelta
"""`"last"` or `"latest"`, `"first"` or `"earliest"`, or a time."""
ConsumeMode = Literal["pull", "pop", "broker"]
"""How a push consumer gets messages."""

_WORDS = {
    "last": ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
    "latest": ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
    "first": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    "earliest": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
}

_INT: Final = 2**31 - 1
BOUNDS: Final = {
    "pull_batch": (1, 1024),
    "pull_batch_bytes": (1, _INT),
    "pull_interval_ms": (0, 65_535),
    "max_queue_messages": (1, 65_535),
    "max_queue_bytes": (1, 1024 * MIB),
    "max_topic_messages": (1, 6_553_500),
    "max_topic_bytes": (1, 102_400 * MIB),
    "max_span": (1, 65_535),
    "max_reconsume_times": (-1, _INT),
    "suspend_ms": (MIN_SUSPEND_MS, MAX_SUSPEND_MS),
    "processes": (1, 1000),
    "invisible_ms": (1_000, 12 * 3_600_000),
    "max_hold_ms": (1_000, 24 * 3_600_000),
    "pop_invisible_ms": (5_000, 300_000),
    "pop_batch": (1, 32),
    "max_popped_messages": (1, 65_535),
}
"""RocketMQ's limits (`checkConfig`), and those of 32-bit numbers in requests."""
_EFFECT: Final[dict[str, tuple[str, bool]]] = {
    "local_offsets": ("broadcast", True),
    "allocation": ("broadcast", False),
    "suspend_ms": ("ordered", True),
    "max_span": ("ordered", False),
    "auto_commit_ms": ("auto_commit", True),
    "max_hold_ms": ("auto_renew", True),
}
"""Options that have an effect only with this value of another one."""
DEFAULT_WORKERS: Final = 20
MODES: Final[tuple[ConsumeMode, ...]] = ("pull", "pop", "broker")
_BROKER_STRATEGIES: Final = ("AVG", "AVG_BY_CIRCLE")
_POP_OPTIONS: Final = ("pop_invisible_ms", "pop_batch", "max_popped_messages")
DEFAULT_GROUP: Final = "DEFAULT_CONSUMER"
"""RocketMQ's name for a missing group. Its clients refuse it, too."""


def _check_bounds(settings: ClientSettings) -> None:
    kind = type(settings)
    for name, default in zip(kind.__struct_fields__, kind.__struct_defaults__, strict=True):
        value = getattr(settings, name)
        if name not in BOUNDS or (value is None and default is None):
            continue
        low, high = BOUNDS[name]
        if type(value) is not int or not low <= value <= high:
            nearest = min(max(value, low), high) if type(value) is int else default or max(low, 1)
            raise InvalidSetting(
                f"option {name} = {value!r} must be a whole number from {low} to {high}, for example {name}={nearest}"
            )


def _refuse_without_effect(settings: ClientSettings) -> None:
    """InvalidSetting for an option that another one makes useless."""
    kind = type(settings)
    defaults = dict(zip(kind.__struct_fields__, kind.__struct_defaults__, strict=True))
    for name, (other, needed) in _EFFECT.items():
        is_given = name in defaults and getattr(settings, name) != defaults[name]
        if is_given and getattr(settings, other, False) is not needed:
            raise InvalidSetting(
                f"option {name} has no effect with {other}={not needed}; remove it, or set {other}={needed}"
            )


def refuse_subscribe_arguments(options: Iterable[str], arguments: Iterable[str], where: str) -> None:
    """InvalidSetting for an option that is an argument of `where` instead."""
    if "tag" in options:
        raise InvalidSetting(f"there is no option 'tag'; tags is an argument of {where}")
    for name in ("topic", *arguments):
        if name in options:
            raise InvalidSetting(f"there is no option {name!r}; it is an argument of {where}")


def _require_longer_timeout(wait_ms: int, name: str, timeout_ms: int) -> None:
    """A pull that times out while the broker holds it loses the response, and is repeated without end."""
    if timeout_ms < wait_ms:
        raise InvalidSetting(
            f"pull_wait_ms = {wait_ms} must not be above {name} = {timeout_ms}: a broker may hold a pull for this time; "
            f"for example pull_wait_ms={timeout_ms // 2} or {name}={2 * wait_ms}"
        )


class GroupOptions(ClientOptions, total=False):
    """The keyword arguments of every consumer; see `GroupSettings`."""

    group: str
    broadcast: bool
    own_thread: bool
    local_offsets: str | os.PathLike[str] | None
    offset_store: OffsetStore | None


class RebalanceOptions(GroupOptions, total=False):
    """The keyword arguments of consumers whose queues are rebalanced; see `RebalanceSettings`."""

    start_at: StartAt | None
    allocation: AllocationStrategy | str | None
    rebalance_ms: int
    persist_ms: int
    pull_batch: int
    pull_interval_ms: int | None
    pull_retry_ms: int
    pull_wait_ms: int
    pull_timeout_ms: int
    max_queue_messages: int
    max_queue_bytes: int
    max_span: int


class PushOptions(RebalanceOptions, total=False):
    """The keyword arguments of a push consumer; see `PushSettings`."""

    mode: ConsumeMode
    ordered: bool
    auto_commit: bool
    workers: Workers
    processes: int | None
    pop_invisible_ms: int
    pop_batch: int
    max_popped_messages: int
    pull_batch_bytes: int
    max_topic_messages: int | None
    max_topic_bytes: int | None
    max_reconsume_times: int | None
    suspend_ms: int
    consume_timeout_ms: int
    subscription_in_pulls: bool


class LitePullOptions(RebalanceOptions, total=False):
    """The keyword arguments of a lite pull consumer; see `LitePullSettings`."""

    auto_commit: bool
    auto_commit_ms: int
    poll_timeout_ms: int
    max_messages: int


class PullOptions(GroupOptions, total=False):
    """The keyword arguments of a pull consumer; see `PullSettings`."""

    pull_wait_ms: int
    pull_timeout_ms: int
    block_timeout_ms: int
    max_reconsume_times: int | None


class SimpleOptions(GroupOptions, total=False):
    """The keyword arguments of a simple consumer; see `SimpleSettings`."""

    start_at: str
    invisible_ms: int
    wait_ms: int
    auto_renew: bool
    max_hold_ms: int


class GroupSettings(ClientSettings, frozen=True, kw_only=True):
    """The options of all consumers."""

    group: str = ""
    """The consumer group. Its members share the messages of their topics. Required."""
    broadcast: bool = False
    """Each member receives every message and keeps its offsets in a local file."""
    own_thread: bool = True
    """Run the network in a thread of the client, so that a busy event loop does not cost the consumer its queues.
    False: run it on the event loop that started the consumer. Only async consumers have this choice."""
    local_offsets: str | os.PathLike[str] | None = None
    """The folder for the offsets of a broadcasting consumer. None means `.rocketmq_offsets` in the home folder."""
    offset_store: OffsetStore | None = None
    """An `OffsetStore` that keeps the offsets, instead of brokers or a local file."""

    def __post_init__(self) -> None:
        _check_bounds(self)
        super().__post_init__()
        if not self.group:
            raise InvalidSetting("a consumer needs group=…: its members share the messages of their topics")
        if self.group == DEFAULT_GROUP:
            raise InvalidSetting(
                f"group = {DEFAULT_GROUP!r} is RocketMQ's name for a missing group; use your own, for example group='billing'"
            )
        if not isinstance(self.local_offsets, str | os.PathLike | None):
            raise InvalidSetting(f"option local_offsets = {self.local_offsets!r} must be the path of a folder, or None")
        if not isinstance(self.offset_store, OffsetStore | None):
            raise InvalidSetting(
                f"option offset_store = {self.offset_store!r} must be an object of a class that inherits from OffsetStore"
            )
        if self.offset_store is not None and self.local_offsets is not None:
            raise InvalidSetting("option local_offsets has no effect with an offset_store; remove one of them")
        _ = self.wire_group
        _refuse_without_effect(self)

    @property
    def keeps_default_name(self) -> bool:
        """A broadcasting consumer must find its offsets again after a restart of its process."""
        return self.broadcast

    @property
    def model(self) -> MessageModel:
        return MessageModel.BROADCASTING if self.broadcast else MessageModel.CLUSTERING

    @property
    def from_where(self) -> ConsumeFromWhere:
        """Where a new group starts, in the terms of brokers."""
        return ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET

    @property
    def own_offsets(self) -> UserOffsets | None:
        return None if self.offset_store is None else UserOffsets(self.offset_store, self.namespace)

    @property
    def wire_group(self) -> GroupName:
        """The group with its namespace."""
        return parse_group(wrap(self.namespace, self.group))


class RebalanceSettings(GroupSettings, frozen=True, kw_only=True):
    """The options of consumers whose queues are rebalanced."""

    start_at: StartAt | None = None
    """Where a new group starts: `"last"` or `"latest"`, `"first"` or `"earliest"`, milliseconds, a datetime, a
    timedelta before now, or a text such as `"2024-01-31T23:59"` or `"2h"` (two hours ago). None means `"last"`."""
    allocation: AllocationStrategy | str | None = None
    """The allocation strategy, or its RocketMQ name. None means `AVG`."""
    rebalance_ms: int = 20_000
    """The rebalance interval. A notification from a broker starts a rebalance at once."""
    persist_ms: int = 5_000
    """How often the client commits offsets to brokers."""

    # pulling
    pull_batch: int = 32
    """The maximum number of messages of one pull."""
    pull_interval_ms: int | None = None
    """A pause after each pull that returned messages. None: no pause."""
    pull_retry_ms: int = 1_000
    """How long the client waits after a failed pull."""
    pull_wait_ms: int = 15_000
    """How long a broker holds a pull that finds no message (long polling)."""
    pull_timeout_ms: int = 30_000
    """The timeout of a pull. Not below `pull_wait_ms`."""

    # bounds
    max_queue_messages: int = 1_000
    """Flow control: the limit on cached messages of one queue. Above it, the queue is not pulled."""
    max_queue_bytes: int = 100 * MIB
    """Flow control: the limit on cached bytes of one queue."""
    max_span: int = 2_000
    """Flow control: the limit on the distance from the oldest unfinished offset of a queue to the newest."""

    def __post_init__(self) -> None:
        super().__post_init__()
        is_known = isinstance(self.start_at, str | int | datetime | timedelta | None)
        if not is_known or isinstance(self.start_at, bool) or (isinstance(self.start_at, int) and self.start_at < 0):
            raise InvalidSetting(
                f"start_at = {self.start_at!r} must be 'first' or 'earliest', 'last' or 'latest', or a time"
            )
        if isinstance(self.start_at, timedelta) and self.start_at < timedelta():
            raise InvalidSetting(
                f"start_at = {self.start_at!r} is a time after the start; a timedelta is a time before it, "
                f"for example start_at={-self.start_at!r}"
            )
        _ = self.strategy, self.start_time_ms(0)
        _require_longer_timeout(self.pull_wait_ms, "pull_timeout_ms", self.pull_timeout_ms)
        if self.rebalance_ms < 1_000:
            raise InvalidSetting(f"rebalance_ms = {self.rebalance_ms} must be at least 1000")

    @property
    def from_where(self) -> ConsumeFromWhere:
        """`start_at` in the terms of brokers."""
        if self.start_at is None:
            return ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
        if isinstance(self.start_at, str) and (word := self.start_at.lower()) in _WORDS:
            return _WORDS[word]
        return ConsumeFromWhere.CONSUME_FROM_TIMESTAMP

    def start_time_ms(self, now_ms: int) -> int:
        """The time of `start_at`; only for CONSUME_FROM_TIMESTAMP."""
        if self.from_where is not ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
            return now_ms
        assert self.start_at is not None
        return start_time_ms(self.start_at, now_ms)

    @property
    def strategy(self) -> AllocationStrategy:
        chosen = self.allocation
        if chosen is None:
            return AVERAGE
        if isinstance(chosen, str):
            return strategy_named(chosen)
        if not callable(chosen) or not isinstance(getattr(chosen, "name", None), str):
            raise InvalidSetting(
                f"option allocation = {chosen!r} must be a strategy, which is a callable with a `name`, or the name of one, "
                "for example allocation='AVG_BY_CIRCLE'"
            )
        return chosen

    def limits_of_queue(self, owned: int) -> QueueLimits:
        """The flow limits of each queue of a topic of which this member has `owned` queues."""
        return QueueLimits(
            per_queue(getattr(self, "max_topic_messages", None), owned, self.max_queue_messages),
            per_queue(getattr(self, "max_topic_bytes", None), owned, self.max_queue_bytes),
            self.max_span,
            getattr(self, "max_messages", None),
        )


class PushSettings(RebalanceSettings, frozen=True, kw_only=True):
    """The options of a push consumer."""

    mode: ConsumeMode = "pull"
    """`"pull"`: the members divide the queues, and each pulls its own. `"pop"`: brokers lease messages of all queues to any
    member, which needs RocketMQ 5. `"broker"`: brokers say for each topic which of both, see `setConsumeMode`."""
    ordered: bool = False
    """Handle the messages of a queue one after the other, by one member of the group at a time."""
    auto_commit: bool = True
    """False, with `ordered`: commit handled messages only when a listener returns `COMMIT`; `ROLLBACK` repeats them."""
    workers: Workers = DEFAULT_WORKERS
    """Concurrent calls of listeners: a number, or `(min, max)`. Threads above the minimum end after a minute without
    work."""
    processes: int | None = None
    """Call plain listeners in this many processes instead of threads. Use it for listeners that compute."""
    pop_invisible_ms: int = 60_000
    """How long a popped message is leased. The lease is extended while the message waits for a listener or is in one."""
    pop_batch: int = 32
    """The maximum number of messages of one pop. A member leases fewer when its workers need fewer."""
    max_popped_messages: int = 96
    """Flow control: the limit on leased messages of one assigned queue that are not handled."""
    pull_batch_bytes: int = 256 * KIB
    """The maximum number of bytes of one pull."""
    max_topic_messages: int | None = None
    """Flow control: the limit on cached messages of all queues of a topic together."""
    max_topic_bytes: int | None = None
    """Flow control: the limit on cached bytes of all queues of a topic together."""

    # failures
    max_reconsume_times: int | None = None
    """Attempts after the first one before a message becomes a dead letter. None means 16; unlimited for ordered
    consumers."""
    suspend_ms: int = 1_000
    """How long an ordered queue pauses after a failure, unless the listener returns `Suspend`."""
    consume_timeout_ms: int = 15 * 60_000
    """A message whose listener runs longer is sent back to the group (broadcast: dropped)."""
    subscription_in_pulls: bool = False
    """Include the subscription in every pull, for brokers that do not know it from a heartbeat."""

    @property
    def max_workers(self) -> int:
        return worker_range(self.workers)[1]

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.max_workers
        if self.processes is not None and self.workers != DEFAULT_WORKERS:
            raise InvalidSetting(
                "option workers has no effect with processes, whose number limits the calls; remove one of them"
            )
        if not self.auto_commit and not self.ordered:
            raise InvalidSetting(
                "option auto_commit = False requires ordered=True: without an order, messages are committed one by one"
            )
        if self.broadcast and self.max_reconsume_times is not None:
            raise InvalidSetting(
                "max_reconsume_times does not apply to a broadcasting consumer, which has no retries and no dead letters"
            )
        self._check_mode()

    def _check_mode(self) -> None:
        defaults = dict(zip(self.__struct_fields__, self.__struct_defaults__, strict=True))
        if self.mode not in MODES:
            raise InvalidSetting(f"option mode = {self.mode!r} must be 'pull', 'pop' or 'broker'")
        if self.mode == "pull":
            for name in _POP_OPTIONS:
                if getattr(self, name) != defaults[name]:
                    raise InvalidSetting(f"option {name} has no effect with mode='pull'; remove it, or set mode='pop'")
            return
        for name in ("broadcast", "offset_store"):
            if getattr(self, name):
                raise InvalidSetting(f"option {name} is not possible with mode={self.mode!r}: brokers keep the offsets")
        if self.mode == "broker" and self.ordered:
            raise InvalidSetting("option ordered needs mode='pull' or 'pop': brokers may change the mode at any time")
        if self.mode == "pop" and self.from_where is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
            raise InvalidSetting(
                f"start_at = {self.start_at!r} must be 'first' or 'last' with mode='pop': brokers lease from there only"
            )
        if self.strategy.name not in _BROKER_STRATEGIES:
            raise InvalidSetting(
                f"allocation = {self.strategy.name!r} is not possible with mode={self.mode!r}: brokers know AVG and AVG_BY_CIRCLE"
            )


class LitePullSettings(RebalanceSettings, frozen=True, kw_only=True):
    """The options of a lite pull consumer."""

    pull_batch: int = 10
    """The maximum number of messages of one pull."""
    pull_wait_ms: int = 20_000
    """How long a broker holds a pull that finds no message (long polling)."""
    auto_commit: bool = True
    """Commit the messages of a poll with a later poll."""
    auto_commit_ms: int = 5_000
    """The shortest time between two automatic commits."""
    poll_timeout_ms: int = 5_000
    """How long `poll` waits for messages."""
    max_messages: int = 10_000
    """The limit on cached messages of all queues that were not polled yet."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.auto_commit_ms < 1_000:
            raise InvalidSetting(f"auto_commit_ms = {self.auto_commit_ms} must be at least 1000")


class PullSettings(GroupSettings, frozen=True, kw_only=True):
    """The options of a pull consumer."""

    pull_wait_ms: int = 20_000
    """How long a broker holds a pull that finds no message (`pull_block_if_not_found`)."""
    pull_timeout_ms: int = 10_000
    """The timeout of `pull`."""
    block_timeout_ms: int = 30_000
    """The timeout of `pull_block_if_not_found`."""
    max_reconsume_times: int | None = None
    """Attempts after the first one before a message becomes a dead letter. None means 16."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_longer_timeout(self.pull_wait_ms, "block_timeout_ms", self.block_timeout_ms)


class SimpleSettings(GroupSettings, frozen=True, kw_only=True):
    """The options of a simple consumer."""

    start_at: str = "last"
    """Where the broker starts a new group: `"first"` or `"last"`. With `"last"`, the broker begins a queue at its first
    message while that is in memory, or else at its last one."""
    invisible_ms: int = 30_000
    """How long a received message is leased: it returns if it is not acknowledged by then."""
    wait_ms: int = 15_000
    """How long `receive` waits for a message."""
    auto_renew: bool = False
    """Extend the leases of received messages until they are acknowledged or the consumer stops, up to `max_hold_ms`."""
    max_hold_ms: int = 15 * 60_000
    """With `auto_renew`: after this time the lease of a message is not extended any more."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.start_at not in _WORDS:
            raise InvalidSetting(
                f"start_at = {self.start_at!r} must be 'first' or 'last': brokers lease from there only"
            )
        if self.max_hold_ms < self.invisible_ms and self.auto_renew:
            raise InvalidSetting(
                f"max_hold_ms = {self.max_hold_ms} must not be below invisible_ms = {self.invisible_ms}: "
                "leases would never be extended"
            )
        for name in ("broadcast", "local_offsets", "offset_store"):
            if getattr(self, name):
                raise InvalidSetting(
                    f"option {name} has no effect on a simple consumer: brokers lease messages, and keep the offsets"
                )

    @property
    def from_where(self) -> ConsumeFromWhere:
        return _WORDS[self.start_at]
