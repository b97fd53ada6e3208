"""Who is connected, who waits, who was refused and why, and how long things took."""

from collections.abc import Callable

from pocketmq.access.authentication import Authentication
from pocketmq.access.refusals import Cause as AccessCause
from pocketmq.broker.arrivals import Arrivals
from pocketmq.broker.flow import Kind
from pocketmq.broker.members import Members
from pocketmq.broker.stats.broker_stats import BrokerStats
from pocketmq.broker.turns import Turns
from pocketmq.clock import Clock
from pocketmq.metrics.door import door_families
from pocketmq.metrics.families import Family, counter, gauge, histogram, labels_of
from pocketmq.net.server import ServerCounters


class RequestMetrics:
    """Reads the parts that serve; `counters` are those of the door."""

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
            *door_families(self._counters(), "rocketmq_broker"),
            gauge("rocketmq_producer_connections", "Producers that are connected", len(members.producers)),
            gauge("rocketmq_consumer_connections", "Members of a group that are connected", consumers),
            gauge(
                "rocketmq_subscription_conflicts", "Groups whose members want different things of a topic", conflicts
            ),
        ]

    def _waiting(self) -> list[Family]:
        waiting, gate, now = self._turns.waiting, self._turns.gate, self._clock.monotonic()
        kinds = {kind: labels_of(processor=kind.value) for kind in Kind}
        return [
            gauge(
                "rocketmq_processor_watermark",
                "Requests that wait for the broker",
                {labels: waiting.count(kind) for kind, labels in kinds.items()},
            ),
            gauge(
                "rocketmq_processor_head_wait",
                "Milliseconds that the oldest of them has waited",
                {labels: waiting.head_wait_ms(kind, now) for kind, labels in kinds.items()},
            ),
            gauge("rocketmq_log_busy", "Milliseconds since the log stopped taking messages", gate.busy_ms(now)),
            gauge("rocketmq_held_pulls", "Pulls that wait for a message", len(self._arrivals)),
        ]

    def _refused(self) -> list[Family]:
        refused = {
            labels_of(processor=kind.value, cause=cause.name.lower()): count
            for (kind, cause), count in self._turns.waiting.refused.items()
        }
        families = [
            counter("rocketmq_refused_requests", "Requests refused by flow control, by cause", refused),
            counter("rocketmq_failed_puts", "Messages that could not be stored", self._stats.failed_puts),
            counter("rocketmq_missed_pulls", "Pulls that found nothing", self._stats.missed),
        ]
        if self._authentication is not None:
            counts = self._authentication.refusals.counts
            denied = {labels_of(cause=cause.name.lower()): counts[cause] for cause in AccessCause}
            families.append(counter("rocketmq_denied_requests", "Requests refused for lack of permission", denied))
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
                "Milliseconds that a pull was held until something came",
                self._arrivals.times.all_time(),
            ),
        ]
