"""Every option of a consumer, with RocketMQ's defaults where it has them. They are keyword arguments, as those of `settings`.

start_at            where a new group begins, in queues that it has no offset for
  "last", "latest"      what comes from now on
  "first", "earliest"   everything that is there
  a time              from then on: milliseconds, a datetime, a timedelta before now, or a text as on the command line:
                      "2024-01-31T23:59", "2h" for two hours ago; also Java's "20240131235959"

Subscriptions of one consumer: topic → what it wants of it.

    subscribe, unsubscribe, touch ──► version: wall time of the change, always larger than the one before

A broker takes the subscription with the largest version for the group's, so a change must have a larger one even when the
wall clock was set back. A clustering consumer is subscribed to its retry topic by itself. Filters by tag are checked once more
here: brokers compare hashes, and two tags may have the same.
"""

import os
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from pocketmq.client.consumer.allocation import AVERAGE, AllocationStrategy, strategy_named
from pocketmq.client.consumer.consume_result import MAX_SUSPEND_MS, MIN_SUSPEND_MS
from pocketmq.client.consumer.first_offsets import start_time_ms
from pocketmq.client.consumer.flow_limits import FlowLimits
from pocketmq.client.consumer.offsets import OffsetStore, UserOffsets
from pocketmq.client.settings import KIB, MIB, ClientOptions, ClientSettings
from pocketmq.errors import InvalidExpression, InvalidSetting, UsageError
from pocketmq.model.names import GroupName, is_retry, parse_group, parse_topic, retry_topic, wrap
from pocketmq.model.sql92 import check_expression
from pocketmq.model.subscription import ExpressionType, Subscription
from pocketmq.protocol.bodies.clients import ConsumeFromWhere, MessageModel

StartAt = str | int | datetime | timedelta
"""`"last"` or `"latest"`, `"first"` or `"earliest"`, or a time."""
Workers = int | tuple[int, int]
"""How many calls of listeners are made at the same time: a number, or the least and the most."""

_WORDS = {
    "last": ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
    "latest": ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
    "first": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    "earliest": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
}

_INT: Final = 2**31 - 1
BOUNDS: Final[dict[str, tuple[int, int]]] = {
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
}
"""What RocketMQ's consumers check when they are started (`checkConfig`), and what travels as a number of 32 bits."""
WORKERS: Final = (1, 1000)
"""The same of both numbers of `workers`."""
DEFAULT_GROUP: Final = "DEFAULT_CONSUMER"
"""RocketMQ's word for: no group was chosen. Its clients refuse it as well."""


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


def worker_range(workers: Workers) -> tuple[int, int]:
    """The least and the most of `workers`; InvalidSetting when it cannot be, with one that can."""
    low, high = WORKERS
    numbers = workers if isinstance(workers, tuple) else (workers, workers)
    if len(numbers) == 2 and all(type(number) is int and low <= number <= high for number in numbers):
        least, most = numbers
        if least <= most:
            return least, most
        raise InvalidSetting(
            f"option workers = {workers} has its least above its most, for example workers=({most}, {least})"
        )
    raise InvalidSetting(
        f"option workers = {workers!r} must be a whole number from {low} to {high}, or the least and the most as two of them, "
        "for example workers=20 or workers=(4, 64)"
    )


def _require_time_to_hold(wait_ms: int, name: str, timeout_ms: int) -> None:
    """A pull that times out while its broker still holds it loses what the broker sends then, and comes again and again."""
    if timeout_ms < wait_ms:
        raise InvalidSetting(
            f"pull_wait_ms = {wait_ms} must not be above {name} = {timeout_ms}: a broker holds a pull for so long and then "
            f"answers; for example pull_wait_ms={timeout_ms // 2} or {name}={2 * wait_ms}"
        )


class GroupOptions(ClientOptions, total=False):
    """The keyword arguments of every consumer; see `GroupSettings`."""

    group: str
    own_thread: bool
    offset_store: OffsetStore | None


class RebalanceOptions(GroupOptions, total=False):
    """The keyword arguments of consumers that share queues; see `RebalanceSettings`."""

    broadcast: bool
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
    local_offsets: str | os.PathLike[str] | None


class PushOptions(RebalanceOptions, total=False):
    """The keyword arguments of a push consumer; see `PushSettings`."""

    ordered: bool
    auto_commit: bool
    workers: Workers
    processes: int | None
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

    broadcast: bool
    pull_wait_ms: int
    pull_timeout_ms: int
    block_timeout_ms: int
    max_reconsume_times: int | None
    local_offsets: str | os.PathLike[str] | None


class GroupSettings(ClientSettings, frozen=True, kw_only=True):
    """What all consumers share."""

    group: str = ""
    """The consumer group. Its members share the messages of their topics. Required."""
    own_thread: bool = True
    """Run the network in a thread of the client, so that a busy event loop does not cost the consumer its queues.
    False: run it on the event loop that started the consumer. Only async consumers have this choice."""
    offset_store: OffsetStore | None = None
    """An `OffsetStore` that keeps the offsets, instead of brokers or a local file."""

    def __post_init__(self) -> None:
        _check_bounds(self)
        super().__post_init__()
        if not self.group:
            raise InvalidSetting("a consumer needs group=…: its members share the messages of their topics")
        if self.group == DEFAULT_GROUP:
            raise InvalidSetting(
                f"group = {DEFAULT_GROUP!r} is RocketMQ's word for no group: give one of your own, for example group='billing'"
            )
        local = getattr(self, "local_offsets", None)
        if not isinstance(local, str | os.PathLike | None):
            raise InvalidSetting(f"option local_offsets = {local!r} must be the path of a folder, or None")
        if not isinstance(self.offset_store, OffsetStore | None):
            raise InvalidSetting(
                f"option offset_store = {self.offset_store!r} must be an object of a class that inherits from OffsetStore"
            )
        _ = self.wire_group

    @property
    def own_offsets(self) -> UserOffsets | None:
        return None if self.offset_store is None else UserOffsets(self.offset_store, self.namespace)

    @property
    def wire_group(self) -> GroupName:
        """The group as it is called on the wire."""
        return parse_group(wrap(self.namespace, self.group))


class RebalanceSettings(GroupSettings, frozen=True, kw_only=True):
    """What consumers need that share queues with the other members of their group."""

    broadcast: bool = False
    """Each member receives every message and keeps its offsets in a local file."""
    start_at: StartAt | None = None
    """Where a new group starts: `"last"` or `"latest"`, `"first"` or `"earliest"`, milliseconds, a datetime, a
    timedelta before now, or a text such as `"2024-01-31T23:59"` or `"2h"` (two hours ago). None is `"last"`."""
    allocation: AllocationStrategy | str | None = None
    """The allocation strategy, or its RocketMQ name. None is `AVG`."""
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
    """How long the client waits after a failed pull. Java's clients wait 3000."""
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
    local_offsets: str | os.PathLike[str] | None = None
    """The folder for the offsets of a broadcasting consumer. None is `.rocketmq_offsets` in the home folder."""

    def __post_init__(self) -> None:
        super().__post_init__()
        is_known = isinstance(self.start_at, str | int | datetime | timedelta | None)
        if not is_known or isinstance(self.start_at, bool) or (isinstance(self.start_at, int) and self.start_at < 0):
            raise InvalidSetting(
                f"start_at = {self.start_at!r} must be 'first' or 'earliest', 'last' or 'latest', or a time"
            )
        _ = self.limits, self.strategy, self.start_time_ms(0)
        _require_time_to_hold(self.pull_wait_ms, "pull_timeout_ms", self.pull_timeout_ms)
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
        if isinstance(self.start_at, str) and (word := self.start_at.lower()) in _WORDS:
            return _WORDS[word]
        return ConsumeFromWhere.CONSUME_FROM_TIMESTAMP

    def start_time_ms(self, now_ms: int) -> int:
        """The time that `start_at` means; only for CONSUME_FROM_TIMESTAMP."""
        if self.from_where is not ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
            return now_ms
        assert self.start_at is not None
        return start_time_ms(self.start_at, now_ms)

    @property
    def strategy(self) -> AllocationStrategy:
        wanted = self.allocation
        if wanted is None:
            return AVERAGE
        if isinstance(wanted, str):
            return strategy_named(wanted)
        if not callable(wanted) or not isinstance(getattr(wanted, "name", None), str):
            raise InvalidSetting(
                f"option allocation = {wanted!r} must be a strategy, which is a callable with a `name`, or the name of one, "
                "for example allocation='AVG_BY_CIRCLE'"
            )
        return wanted

    @property
    def limits(self) -> FlowLimits:
        return FlowLimits(queue_messages=self.max_queue_messages, queue_bytes=self.max_queue_bytes, span=self.max_span)


class PushSettings(RebalanceSettings, frozen=True, kw_only=True):
    """What a push consumer needs beside that."""

    ordered: bool = False
    """Handle the messages of a queue one after the other, by one member of the group at a time."""
    auto_commit: bool = True
    """False, with `ordered`: commit handled messages only when a listener returns `COMMIT`; `ROLLBACK` repeats them."""
    workers: Workers = 20
    """Concurrent calls of listeners: a number, or `(min, max)`. Threads above the minimum end after a minute without
    work."""
    processes: int | None = None
    """Call plain listeners in this many processes instead of threads. Use it for listeners that compute."""
    pull_batch_bytes: int = 256 * KIB
    """The maximum number of bytes of one pull."""
    max_topic_messages: int | None = None
    """Flow control: the limit on cached messages of all queues of a topic together."""
    max_topic_bytes: int | None = None
    """Flow control: the limit on cached bytes of all queues of a topic together."""

    # failures
    max_reconsume_times: int | None = None
    """Attempts after the first one before a message becomes a dead letter. None is 16; unlimited for ordered
    consumers."""
    suspend_ms: int = 1_000
    """How long an ordered queue pauses after a failure, unless the listener returns `Suspend`."""
    consume_timeout_ms: int = 15 * 60_000
    """A message whose listener runs longer is sent back to the group (broadcast: dropped)."""
    subscription_in_pulls: bool = False
    """Include the subscription in every pull, for brokers that do not know it from a heartbeat."""

    @property
    def min_workers(self) -> int:
        return worker_range(self.workers)[0]

    @property
    def max_workers(self) -> int:
        return worker_range(self.workers)[1]

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
        _ = self.min_workers
        if not self.auto_commit and not self.ordered:
            raise InvalidSetting(
                "option auto_commit = False needs ordered=True: messages that are handled in no order are committed as they are done"
            )
        if self.ordered and self.broadcast and self.max_reconsume_times is not None:
            raise InvalidSetting(
                "max_reconsume_times means nothing to a broadcasting consumer: it has no retries and no dead letters"
            )


class LitePullSettings(RebalanceSettings, frozen=True, kw_only=True):
    """What a lite pull consumer needs beside that."""

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
    """Keep offsets in a local file instead of at brokers."""
    pull_wait_ms: int = 20_000
    """How long a broker holds a pull that finds no message (`pull_block_if_not_found`)."""
    pull_timeout_ms: int = 10_000
    """The timeout of `pull`."""
    block_timeout_ms: int = 30_000
    """The timeout of `pull_block_if_not_found`."""
    max_reconsume_times: int | None = None
    """Attempts after the first one before a message becomes a dead letter. None is 16."""
    local_offsets: str | os.PathLike[str] | None = None
    """The folder for the offsets of a broadcasting consumer. None is `.rocketmq_offsets` in the home folder."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_time_to_hold(self.pull_wait_ms, "block_timeout_ms", self.block_timeout_ms)

    @property
    def keeps_default_name(self) -> bool:
        return self.broadcast

    @property
    def model(self) -> MessageModel:
        return MessageModel.BROADCASTING if self.broadcast else MessageModel.CLUSTERING


class SubscriptionTable:
    """What a consumer subscribes to. Told the wall time."""

    def __init__(self, group: GroupName, now_ms: int, *, with_retries: bool) -> None:
        """`with_retries` False: a broadcasting consumer, which has no retries."""
        self._table: dict[str, Subscription] = {}
        if with_retries:
            topic = retry_topic(group)
            self._table[topic] = Subscription.parse(topic, sub_version=now_ms)

    def __iter__(self) -> Iterator[Subscription]:
        return iter(tuple(self._table.values()))

    def __len__(self) -> int:
        return len(self._table)

    def get(self, topic: str) -> Subscription | None:
        return self._table.get(topic)

    def subscribe(
        self, topic: str, expression: str | None = None, kind: str = ExpressionType.TAG, *, now_ms: int
    ) -> Subscription:
        """Want `topic`, filtered; replaces what was wanted of it. InvalidName or InvalidExpression say what is wrong."""
        name = parse_topic(topic)
        if is_retry(name):
            raise UsageError(f"{topic} is a retry topic, which a consumer of that group is subscribed to by itself")
        wanted = Subscription.parse(name, expression, kind)
        known = self._table.get(name)
        if known is None or not known.same_filter(wanted):
            self._table[name] = replace(wanted, sub_version=self._next_version(known, now_ms))
        return self._table[name]

    def unsubscribe(self, topic: str) -> bool:
        """Want nothing of `topic` any more; False when nothing was wanted, or it is the retry topic."""
        return not is_retry(topic) and self._table.pop(topic, None) is not None

    def touch(self, topic: str, now_ms: int) -> None:
        """The queues of `topic` were shared out anew: the broker is to take this subscription for the latest."""
        known = self._table.get(topic)
        if known is not None:
            self._table[topic] = replace(known, sub_version=self._next_version(known, now_ms))

    def _next_version(self, known: Subscription | None, now_ms: int) -> int:
        return now_ms if known is None else max(now_ms, known.sub_version + 1)


def filter_of(topic: str, tags: str | None, sql: str | None) -> tuple[str | None, str]:
    """The expression that a user means who gave tags, or SQL, or neither, and its kind."""
    if tags is not None and sql is not None:
        raise UsageError(f"topic {topic!r} is filtered by tags or by sql, not by both")
    given: dict[str, object] = {"tags": tags, "sql": sql}
    for name, value in given.items():
        if not isinstance(value, str | None):
            example = " || ".join(map(str, value)) if isinstance(value, list | tuple | set) else "a || b"
            raise UsageError(f"{name} = {value!r} for topic {topic!r} must be one text, for example {name}={example!r}")
    if sql is None:
        return tags, ExpressionType.TAG
    if not sql.strip():
        raise InvalidExpression(f"the sql expression for topic {topic!r} is empty")
    try:
        check_expression(sql)
    except InvalidExpression as error:
        raise InvalidExpression(f"the sql expression {sql!r} for topic {topic!r} is wrong: {error}") from None
    return sql, ExpressionType.SQL92
