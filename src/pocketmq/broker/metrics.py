"""All metrics of a broker, labelled with its cluster and name.

Messages sent, pulled, failed and waiting, by topic and group; connections, waiting and rejected requests, durations; the
log, derived files, and the disk; the lag of groups, in messages and in time.

There may be tens of thousands of queues, each with a read of the log. So lags are read in steps, for at most `MAX_ROWS`
groups in topics, and the number of omitted ones is a metric.
"""

from collections.abc import Callable
from itertools import islice
from typing import Final, NamedTuple

from pocketmq.access.authentication import Cause as AccessCause
from pocketmq.broker.parts import BrokerParts
from pocketmq.broker.requests.flow import Kind
from pocketmq.broker.state import BrokerState
from pocketmq.broker.stats.rows import Key, Tally
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
from pocketmq.metrics.page import Collect
from pocketmq.model import DLQ_PREFIX, is_internal_group, is_retry
from pocketmq.net import ServerCounters, Steps


def _in_and_out(state: BrokerState) -> list[Family]:
    sent = [(_topic_labels(state, key[0]), tally) for key, tally in state.stats.sent_rows()]
    pulled = [(_group_labels(state, key), tally) for key, tally in state.stats.pulled_rows()]
    return [
        counter("rocketmq_messages_in", "Messages sent to a topic", _counts(sent)),
        counter("rocketmq_throughput_in", "Bytes of message bodies sent to a topic", _bytes(sent)),
        counter("rocketmq_messages_out", "Messages pulled by a group", _counts(pulled)),
        counter("rocketmq_throughput_out", "Bytes of records pulled by a group", _bytes(pulled)),
    ]


def _failed(state: BrokerState) -> list[Family]:
    back = {_group_labels(state, key): tally.count for key, tally in state.stats.sent_back_rows()}
    dead = {
        labels_of(consumer_group=config.topic_name.removeprefix(DLQ_PREFIX)): state.store.max_offset(
            config.topic_name, 0
        )
        for config in state.topics
        if config.topic_name.startswith(DLQ_PREFIX)
    }
    return [
        counter(
            "rocketmq_send_back_messages", "Messages that a group sent back because it could not consume them", back
        ),
        counter("rocketmq_send_to_dlq_messages", "Dead letters of a group since its dead-letter topic exists", dead),
    ]


def _later(parts: BrokerParts) -> list[Family]:
    waiting = {labels_of(level=str(level)): most - done for level, (done, most) in parts.delays.progress().items()}
    undeliverable = {
        labels_of(kind="delayed"): parts.delays.undeliverable,
        labels_of(kind="timed"): parts.timers.undeliverable,
    }
    return [
        gauge("rocketmq_delayed_messages", "Messages that wait for their delay level", waiting),
        gauge("rocketmq_timing_messages", "Timed messages that wait for delivery", len(parts.timers)),
        counter(
            "rocketmq_undeliverable_messages",
            "Delayed and timed messages that could not be delivered",
            undeliverable,
        ),
    ]


def _leased(parts: BrokerParts) -> list[Family]:
    leases = parts.state.leases
    in_flight = {
        labels_of(topic=topic, consumer_group=group, queue_id=str(queue_id)): count
        for (group, topic, queue_id), count in islice(leases.in_flight.items(), MAX_ROWS)
    }
    return [
        gauge("rocketmq_pop_leases", "Leases in memory", len(leases)),
        gauge("rocketmq_pop_in_flight_messages", "Popped messages without an ack", in_flight),
        gauge("rocketmq_waiting_pops", "Pops that wait for a message (long polling)", len(parts.state.waiting_pops)),
        counter(
            "rocketmq_pop_returned_messages",
            "Messages that returned because their lease was over",
            leases.lapsed + parts.revival.revived,
        ),
        counter("rocketmq_pop_stale_acks", "Acks that changed nothing: repeated, late or forged", parts.acks.stale),
    ]


def _undecided(parts: BrokerParts) -> list[Family]:
    decisions, checks = parts.transactions.decisions, parts.transactions.checks
    return [
        gauge("rocketmq_half_messages", "Undecided transactions", parts.transactions.ledger.open_count),
        counter("rocketmq_commit_messages", "Committed transactions", decisions.committed),
        counter("rocketmq_rollback_messages", "Rolled back transactions", decisions.rolled_back),
        counter("rocketmq_transaction_checks", "Check-backs of undecided transactions", checks.checks_sent),
        counter(
            "rocketmq_transactions_given_up",
            "Transactions that were given up after too many checks",
            checks.given_up,
        ),
    ]


def _topic_labels(state: BrokerState, topic: str) -> Labels:
    return labels_of(topic=topic, is_system=_bool_label(state.topics.is_system(topic)))


def _group_labels(state: BrokerState, key: Key) -> Labels:
    topic, group = key
    return labels_of(
        topic=topic,
        consumer_group=group,
        is_retry=_bool_label(is_retry(topic)),
        is_system=_bool_label(state.topics.is_system(topic)),
    )


def _connections(state: BrokerState, counters: ServerCounters) -> list[Family]:
    members = state.members
    consumers = {labels_of(consumer_group=group.name): len(group.members) for group in members}
    conflicts = len(members.conflicts())
    return [
        *connection_families(counters, "rocketmq_broker"),
        gauge("rocketmq_producer_connections", "Connected producer groups", len(members.producers)),
        gauge("rocketmq_consumer_connections", "Connected members of a consumer group", consumers),
        gauge("rocketmq_subscription_conflicts", "Groups whose members have different subscriptions", conflicts),
    ]


def _waiting(parts: BrokerParts) -> list[Family]:
    waiting, gate, now = parts.turns.waiting, parts.turns.gate, parts.state.clock.monotonic()
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
        gauge("rocketmq_held_pulls", "Pulls that wait for a message (long polling)", len(parts.state.arrivals)),
    ]


def _refused(parts: BrokerParts) -> list[Family]:
    refused = {
        labels_of(processor=kind.value, cause=cause.name.lower()): count
        for (kind, cause), count in parts.turns.waiting.refused.items()
    }
    families = [
        counter("rocketmq_refused_requests", "Requests rejected by flow control, by cause", refused),
        counter("rocketmq_failed_puts", "Messages that could not be stored", parts.state.stats.failed_puts),
        counter("rocketmq_missed_pulls", "Pulls that found nothing", parts.state.stats.missed),
    ]
    if parts.authentication is not None:
        counts = parts.authentication.refusals.counts
        denied = {labels_of(cause=cause.name.lower()): counts[cause] for cause in AccessCause}
        families.append(
            counter(
                "rocketmq_denied_requests", "Requests rejected by authentication or authorization, by cause", denied
            )
        )
    return families


def _times(state: BrokerState) -> list[Family]:
    stats = state.stats
    return [
        histogram(
            "rocketmq_append_latency", "Milliseconds to store the messages of a turn", stats.put_times.all_time()
        ),
        histogram("rocketmq_pull_latency", "Milliseconds to read for a pull", stats.get_times.all_time()),
        histogram(
            "rocketmq_long_poll_latency",
            "Milliseconds that a pull was held",
            state.arrivals.times.all_time(),
        ),
    ]


def _log(state: BrokerState) -> list[Family]:
    facts = state.store.facts
    earliest_ms = facts.earliest_ms
    reserved: dict[Labels, float] = {} if earliest_ms is None else {(): max(0.0, state.clock.now_ms() - earliest_ms)}
    return [
        gauge(
            "rocketmq_storage_size",
            "Bytes of the log from its first to its last message",
            facts.log_end - facts.log_start,
        ),
        gauge("rocketmq_storage_log_files", "Files of the log", facts.log_files),
        gauge("rocketmq_storage_message_reserve_time", "Milliseconds since the oldest message was stored", reserved),
        gauge(
            "rocketmq_storage_flush_behind_bytes",
            "Bytes of the log that are not synced to disk",
            facts.unsynced_bytes,
        ),
        histogram("rocketmq_flush_latency", "Milliseconds to sync the log to disk", facts.sync_times.all_time()),
    ]


def _derived(state: BrokerState) -> list[Family]:
    facts = state.store.facts
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


def _disk(state: BrokerState) -> list[Family]:
    disk, buffers = state.store.facts.disk, state.store.facts.free_pool_buffers
    return [
        gauge("rocketmq_storage_disk_bytes", "Size of the disk", disk.total),
        gauge("rocketmq_storage_disk_free_bytes", "Free bytes of the disk", disk.free),
        gauge("rocketmq_storage_disk_ratio", "Used part of the disk, from 0 to 1", disk.used_ratio),
        counter(
            "rocketmq_storage_dropped_needed_files",
            "Log files deleted because of a full disk, although they contained waiting messages",
            state.store.facts.dropped_needed_files,
        ),
        counter(
            "rocketmq_storage_dropped_unread_messages",
            "Messages that retention deleted before a group had consumed them",
            state.unread.messages,
        ),
        gauge(
            "rocketmq_storage_pool_buffers",
            "Free buffers of the transient pool",
            {} if buffers is None else {(): buffers},
        ),
    ]


def _counts(rows: list[tuple[Labels, Tally]]) -> dict[Labels, float]:
    return {labels: tally.count for labels, tally in rows}


def _bytes(rows: list[tuple[Labels, Tally]]) -> dict[Labels, float]:
    return {labels: tally.bytes for labels, tally in rows}


def _bool_label(truth: bool) -> str:
    return "true" if truth else "false"


MAX_ROWS: Final = 5_000


class Lag(NamedTuple):
    """The lag of a group in a topic."""

    messages: int
    in_flight: int
    oldest_ms: int
    """The age of the oldest message that is not consumed; 0 if there is none."""


class LagMetrics:
    """Reads the tables and the store; changes nothing."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state

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
        for group in [name for config in self._state.groups if not is_internal_group(name := config.group_name)]:
            for topic in self._state.offsets.topics_of(group):
                if len(lags) >= MAX_ROWS:
                    left_out += 1
                elif (lag := await self._lag(group, topic, steps)) is not None:
                    lags[labels_of(topic=topic, consumer_group=group)] = lag
        return lags, left_out

    async def _lag(self, group: str, topic: str, steps: Steps) -> Lag | None:
        config = self._state.topics.get(topic)
        if config is None:
            return None
        messages = in_flight = 0
        oldest: int | None = None
        for queue_id in range(config.read_queue_nums):
            await steps.pause()
            consumed = self._state.offsets.stored(group, topic, queue_id)
            if consumed is None:
                continue
            behind = max(0, self._state.store.max_offset(topic, queue_id) - consumed)
            in_flight += min(behind, max(0, (self._state.offsets.pulled(group, topic, queue_id) or 0) - consumed))
            messages += behind
            oldest_there = max(
                consumed, self._state.store.min_offset(topic, queue_id)
            )  # retention may have deleted the first
            stored_ms = self._state.store.store_ms(topic, queue_id, oldest_there) if behind else None
            if stored_ms is not None and (oldest is None or stored_ms < oldest):
                oldest = stored_ms
        return Lag(messages, in_flight, 0 if oldest is None else max(0, self._state.clock.now_ms() - oldest))


class BrokerMetrics:
    """Created when the broker listens. `counters` returns those of the server; `more` are families for the same page."""

    def __init__(
        self, parts: BrokerParts, files: Files, counters: Callable[[], ServerCounters], more: Collect | None = None
    ) -> None:
        self._parts = parts
        self._files = files
        self._counters = counters
        self._more = more

    async def collect(self) -> list[Family]:
        """The metric families for `metrics.page`."""
        parts, state = self._parts, self._parts.state
        settings = state.settings.now
        families = [
            gauge(
                "rocketmq_broker_permission", "Permission of the broker: 2 write, 4 read, 6 both", settings.permission
            ),
            gauge("rocketmq_topic_number", "Topics of the broker", len(state.topics)),
            gauge("rocketmq_consumer_group_number", "Groups of the broker", len(state.groups)),
            *_in_and_out(state),
            *_failed(state),
            *_later(parts),
            *_leased(parts),
            *_undecided(parts),
            *_connections(state, self._counters()),
            *_waiting(parts),
            *_refused(parts),
            *_times(state),
            *_log(state),
            *_derived(state),
            *_disk(state),
            *await LagMetrics(state).families(),
        ]
        own = labels_of(cluster=settings.cluster, node_type="broker", node_id=settings.broker_name)
        more = await self._more() if self._more else []
        return [*with_labels([*families, *process_families(self._files)], own), *more]
