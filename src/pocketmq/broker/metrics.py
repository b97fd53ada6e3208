"""All metrics of a broker, labelled with its cluster and name.

`MessageMetrics`: messages sent, pulled, failed and waiting, by topic and group. `RequestMetrics`: connections, waiting
and rejected requests, durations. `StorageMetrics`: the log, derived files, and the disk. `LagMetrics`: the lag of
groups, in messages and in time.

There may be tens of thousands of queues, each with a read of the log. So lags are read in steps, for at most `MAX_ROWS`
groups in topics, and the number of omitted ones is a metric.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from pocketmq.access.authentication import Authentication
from pocketmq.access.refusals import Cause as AccessCause
from pocketmq.broker.delivery.delays import Delays
from pocketmq.broker.delivery.timers import Timers
from pocketmq.broker.groups.groups import GroupTable
from pocketmq.broker.groups.members import Members
from pocketmq.broker.groups.offsets import OffsetTable
from pocketmq.broker.parts import BrokerParts
from pocketmq.broker.reads.arrivals import Arrivals
from pocketmq.broker.requests.flow import Kind
from pocketmq.broker.requests.turns import Turns
from pocketmq.broker.stats.broker_stats import BrokerStats
from pocketmq.broker.stats.group_progress import UnreadDrops
from pocketmq.broker.stats.rows import Key, Tally
from pocketmq.broker.topics import TopicTable
from pocketmq.broker.transactions.transactions import Transactions
from pocketmq.clock import Clock
from pocketmq.files import Files
from pocketmq.metrics.families import (
    Family,
    Labels,
    connection_families,
    counter,
    gauge,
    histogram,
    labels_of,
    process_families,
    with_labels,
)
from pocketmq.model.names import DLQ_PREFIX, is_internal_group, is_retry
from pocketmq.net.loops import Steps
from pocketmq.net.server import ServerCounters
from pocketmq.store.message_store import MessageStore
from pocketmq.store.readable_store import StoreFacts


class MessageMetrics:
    """Reads statistics and workers; changes nothing."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicTable,
        stats: BrokerStats,
        delays: Delays,
        timers: Timers,
        transactions: Transactions,
    ) -> None:
        self._store = store
        self._topics = topics
        self._stats = stats
        self._delays = delays
        self._timers = timers
        self._transactions = transactions

    def families(self) -> list[Family]:
        return [*self._in_and_out(), *self._failed(), *self._later(), *self._undecided()]

    def _in_and_out(self) -> list[Family]:
        sent = [(self._topic_labels(key[0]), tally) for key, tally in self._stats.sent_rows()]
        pulled = [(self._group_labels(key), tally) for key, tally in self._stats.pulled_rows()]
        return [
            counter("rocketmq_messages_in", "Messages sent to a topic", _counts(sent)),
            counter("rocketmq_throughput_in", "Bytes of message bodies sent to a topic", _bytes(sent)),
            counter("rocketmq_messages_out", "Messages pulled by a group", _counts(pulled)),
            counter("rocketmq_throughput_out", "Bytes of records pulled by a group", _bytes(pulled)),
        ]

    def _failed(self) -> list[Family]:
        back = {self._group_labels(key): tally.count for key, tally in self._stats.sent_back_rows()}
        dead = {
            labels_of(consumer_group=config.topic_name.removeprefix(DLQ_PREFIX)): self._store.max_offset(
                config.topic_name, 0
            )
            for config in self._topics
            if config.topic_name.startswith(DLQ_PREFIX)
        }
        return [
            counter(
                "rocketmq_send_back_messages", "Messages that a group sent back because it could not consume them", back
            ),
            counter(
                "rocketmq_send_to_dlq_messages", "Dead letters of a group since its dead-letter topic exists", dead
            ),
        ]

    def _later(self) -> list[Family]:
        waiting = {labels_of(level=str(level)): most - done for level, (done, most) in self._delays.progress().items()}
        undeliverable = {
            labels_of(kind="delayed"): self._delays.undeliverable,
            labels_of(kind="timed"): self._timers.undeliverable,
        }
        return [
            gauge("rocketmq_delayed_messages", "Messages that wait for their delay level", waiting),
            gauge("rocketmq_timing_messages", "Timed messages that wait for delivery", len(self._timers)),
            counter(
                "rocketmq_undeliverable_messages",
                "Delayed and timed messages that could not be delivered",
                undeliverable,
            ),
        ]

    def _undecided(self) -> list[Family]:
        decisions, checks = self._transactions.decisions, self._transactions.checks
        return [
            gauge("rocketmq_half_messages", "Undecided transactions", self._transactions.open_count),
            counter("rocketmq_commit_messages", "Committed transactions", decisions.committed),
            counter("rocketmq_rollback_messages", "Rolled back transactions", decisions.rolled_back),
            counter("rocketmq_transaction_checks", "Check-backs of undecided transactions", checks.checks_sent),
            counter(
                "rocketmq_transactions_given_up",
                "Transactions that were given up after too many checks",
                checks.given_up,
            ),
        ]

    def _topic_labels(self, topic: str) -> Labels:
        return labels_of(topic=topic, is_system=_bool_label(self._topics.is_system(topic)))

    def _group_labels(self, key: Key) -> Labels:
        topic, group = key
        return labels_of(
            topic=topic,
            consumer_group=group,
            is_retry=_bool_label(is_retry(topic)),
            is_system=_bool_label(self._topics.is_system(topic)),
        )


def _counts(rows: list[tuple[Labels, Tally]]) -> dict[Labels, float]:
    return {labels: tally.count for labels, tally in rows}


def _bytes(rows: list[tuple[Labels, Tally]]) -> dict[Labels, float]:
    return {labels: tally.bytes for labels, tally in rows}


def _bool_label(truth: bool) -> str:
    return "true" if truth else "false"


class RequestMetrics:
    """Reads the parts that serve requests; `counters` are those of the server."""

    def __init__(
        self,
        turns: Turns,
        arrivals: Arrivals,
        stats: BrokerStats,
        members: Members,
        authentication: Authentication | None,
        counters: Callable[[], ServerCounters],
        clock: Clock,
    ) -> None:
        self._turns = turns
        self._arrivals = arrivals
        self._stats = stats
        self._members = members
        self._authentication = authentication
        self._counters = counters
        self._clock = clock

    def families(self) -> list[Family]:
        return [*self._connections(), *self._waiting(), *self._refused(), *self._times()]

    def _connections(self) -> list[Family]:
        members = self._members
        consumers = {labels_of(consumer_group=group.name): len(group.members) for group in members}
        conflicts = len(members.conflicts())
        return [
            *connection_families(self._counters(), "rocketmq_broker"),
            gauge("rocketmq_producer_connections", "Connected producer groups", len(members.producers)),
            gauge("rocketmq_consumer_connections", "Connected members of a consumer group", consumers),
            gauge("rocketmq_subscription_conflicts", "Groups whose members have different subscriptions", conflicts),
        ]

    def _waiting(self) -> list[Family]:
        waiting, gate, now = self._turns.waiting, self._turns.gate, self._clock.monotonic()
        kinds = {kind: labels_of(processor=kind.value) for kind in Kind}
        return [
            gauge(
                "rocketmq_processor_watermark",
                "Waiting requests",
                {labels: waiting.count(kind) for kind, labels in kinds.items()},
            ),
            gauge(
                "rocketmq_processor_head_wait",
                "Milliseconds that the oldest waiting request has waited",
                {labels: waiting.head_wait_ms(kind, now) for kind, labels in kinds.items()},
            ),
            gauge("rocketmq_log_busy", "Milliseconds since the log accepts no messages", gate.busy_ms(now)),
            gauge("rocketmq_held_pulls", "Pulls that wait for a message (long polling)", len(self._arrivals)),
        ]

    def _refused(self) -> list[Family]:
        refused = {
            labels_of(processor=kind.value, cause=cause.name.lower()): count
            for (kind, cause), count in self._turns.waiting.refused.items()
        }
        families = [
            counter("rocketmq_refused_requests", "Requests rejected by flow control, by cause", refused),
            counter("rocketmq_failed_puts", "Messages that could not be stored", self._stats.failed_puts),
            counter("rocketmq_missed_pulls", "Pulls that found nothing", self._stats.missed),
        ]
        if self._authentication is not None:
            counts = self._authentication.refusals.counts
            denied = {labels_of(cause=cause.name.lower()): counts[cause] for cause in AccessCause}
            families.append(
                counter(
                    "rocketmq_denied_requests", "Requests rejected by authentication or authorization, by cause", denied
                )
            )
        return families

    def _times(self) -> list[Family]:
        stats = self._stats
        return [
            histogram(
                "rocketmq_append_latency", "Milliseconds to store the messages of a turn", stats.put_times.all_time()
            ),
            histogram("rocketmq_pull_latency", "Milliseconds to read for a pull", stats.get_times.all_time()),
            histogram(
                "rocketmq_long_poll_latency",
                "Milliseconds that a pull was held",
                self._arrivals.times.all_time(),
            ),
        ]


class StorageMetrics:
    """Reads the store's facts."""

    def __init__(self, facts: StoreFacts, unread: UnreadDrops, clock: Clock) -> None:
        self._facts = facts
        self._unread = unread
        self._clock = clock

    def families(self) -> list[Family]:
        return [*self._log(), *self._derived(), *self._disk()]

    def _log(self) -> list[Family]:
        facts = self._facts
        earliest_ms = facts.earliest_ms
        reserved: dict[Labels, float] = (
            {} if earliest_ms is None else {(): max(0.0, self._clock.now_ms() - earliest_ms)}
        )
        return [
            gauge("rocketmq_storage_size", "Bytes of the log from its first to its last message", _size(facts)),
            gauge("rocketmq_storage_log_files", "Files of the log", facts.log_files),
            gauge(
                "rocketmq_storage_message_reserve_time", "Milliseconds since the oldest message was stored", reserved
            ),
            gauge(
                "rocketmq_storage_flush_behind_bytes",
                "Bytes of the log that are not synced to disk",
                facts.unsynced_bytes,
            ),
            histogram("rocketmq_flush_latency", "Milliseconds to sync the log to disk", facts.sync_times.all_time()),
        ]

    def _derived(self) -> list[Family]:
        facts = self._facts
        return [
            gauge(
                "rocketmq_storage_dispatch_behind_bytes",
                "Bytes of the log that are not dispatched to queues and index",
                facts.behind_bytes,
            ),
            gauge("rocketmq_storage_index_behind_bytes", "Bytes whose keys are not indexed", facts.unindexed_bytes),
            gauge("rocketmq_storage_queues", "Queues with messages", facts.queues),
            gauge("rocketmq_storage_unsaved_queues", "Queues with entries in memory only", facts.unsaved_queues),
            counter(
                "rocketmq_storage_queue_damages",
                "How often entries of a consume queue did not match the log",
                facts.damaged_ranges,
            ),
            counter(
                "rocketmq_storage_repaired_queue_entries",
                "Entries of consume queues that were rebuilt from the log",
                facts.repaired_entries,
            ),
        ]

    def _disk(self) -> list[Family]:
        disk, buffers = self._facts.disk, self._facts.free_pool_buffers
        return [
            gauge("rocketmq_storage_disk_bytes", "Size of the disk", disk.total),
            gauge("rocketmq_storage_disk_free_bytes", "Free bytes of the disk", disk.free),
            gauge("rocketmq_storage_disk_ratio", "Used part of the disk, from 0 to 1", disk.used_ratio),
            counter(
                "rocketmq_storage_dropped_needed_files",
                "Log files deleted because of a full disk, although they contained waiting messages",
                self._facts.dropped_needed_files,
            ),
            counter(
                "rocketmq_storage_dropped_unread_messages",
                "Messages that retention deleted before a group had consumed them",
                self._unread.messages,
            ),
            gauge(
                "rocketmq_storage_pool_buffers",
                "Free buffers of the transient pool",
                {} if buffers is None else {(): buffers},
            ),
        ]


def _size(facts: StoreFacts) -> int:
    return facts.log_end - facts.log_start


MAX_ROWS: Final = 5_000


class Lag(NamedTuple):
    """The lag of a group in a topic."""

    messages: int
    in_flight: int
    oldest_ms: int
    """The age of the oldest message that is not consumed; 0 if there is none."""


class LagMetrics:
    """Reads the tables and the store; changes nothing."""

    def __init__(
        self, store: MessageStore, topics: TopicTable, groups: GroupTable, offsets: OffsetTable, clock: Clock
    ) -> None:
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._clock = clock

    async def families(self) -> list[Family]:
        lags, left_out = await self._lags()
        return [
            gauge(
                "rocketmq_consumer_lag_messages",
                "Messages that a group has not consumed",
                {labels: lag.messages for labels, lag in lags.items()},
            ),
            gauge(
                "rocketmq_consumer_lag_latency",
                "Age of the oldest message that a group has not consumed, in milliseconds",
                {labels: lag.oldest_ms for labels, lag in lags.items()},
            ),
            gauge(
                "rocketmq_consumer_inflight_messages",
                "Messages pulled by a group and not consumed yet",
                {labels: lag.in_flight for labels, lag in lags.items()},
            ),
            gauge(
                "rocketmq_consumer_lags_left_out",
                "Groups in topics omitted from the lag metrics, because there are too many",
                left_out,
            ),
        ]

    async def _lags(self) -> tuple[dict[Labels, Lag], int]:
        steps = Steps()
        lags: dict[Labels, Lag] = {}
        left_out = 0
        for group in [name for config in self._groups if not is_internal_group(name := config.group_name)]:
            for topic in self._offsets.topics_of(group):
                if len(lags) >= MAX_ROWS:
                    left_out += 1
                elif (lag := await self._lag(group, topic, steps)) is not None:
                    lags[labels_of(topic=topic, consumer_group=group)] = lag
        return lags, left_out

    async def _lag(self, group: str, topic: str, steps: Steps) -> Lag | None:
        config = self._topics.get(topic)
        if config is None:
            return None
        messages = in_flight = 0
        oldest: int | None = None
        for queue_id in range(config.read_queue_nums):
            await steps.pause()
            consumed = self._offsets.stored(group, topic, queue_id)
            if consumed is None:
                continue
            behind = max(0, self._store.max_offset(topic, queue_id) - consumed)
            in_flight += min(behind, max(0, (self._offsets.pulled(group, topic, queue_id) or 0) - consumed))
            messages += behind
            oldest_there = max(
                consumed, self._store.min_offset(topic, queue_id)
            )  # retention may have deleted the first
            stored_ms = self._store.store_ms(topic, queue_id, oldest_there) if behind else None
            if stored_ms is not None and (oldest is None or stored_ms < oldest):
                oldest = stored_ms
        return Lag(messages, in_flight, 0 if oldest is None else max(0, self._clock.now_ms() - oldest))


class BrokerMetrics:
    """Created when the broker listens."""

    def __init__(self, parts: BrokerParts, files: Files, counters: Callable[[], ServerCounters]) -> None:
        self._parts = parts
        self._files = files
        store, topics, stats = parts.store, parts.topics, parts.stats
        self._messages = MessageMetrics(store, topics, stats, parts.delays, parts.timers, parts.transactions)
        self._lags = LagMetrics(store, topics, parts.groups, parts.offsets, parts.clock)
        self._requests = RequestMetrics(
            parts.turns, parts.arrivals, stats, parts.members, parts.authentication, counters, parts.clock
        )
        self._storage = StorageMetrics(store.facts, parts.unread, parts.clock)

    async def collect(self) -> list[Family]:
        """The metric families for `metrics.page`."""
        settings = self._parts.settings.now
        families = [
            gauge(
                "rocketmq_broker_permission", "Permission of the broker: 2 write, 4 read, 6 both", settings.permission
            ),
            gauge("rocketmq_topic_number", "Topics of the broker", len(self._parts.topics)),
            gauge("rocketmq_consumer_group_number", "Groups of the broker", len(self._parts.groups)),
            *self._messages.families(),
            *self._requests.families(),
            *self._storage.families(),
            *await self._lags.families(),
        ]
        own = labels_of(cluster=settings.cluster, node_type="broker", node_id=settings.broker_name)
        return with_labels([*families, *process_families(self._files)], own)
