"""Metrics of producers and consumers: counters, histograms and gauges.

    producers, consumers ── hooks ──► ClientMetrics ── add, observe, set, remove ──► Metrics
                                                                                      ├─ MetricsInMemory
                                                                                      ├─ PrometheusMetrics      pocketmq[prometheus]
                                                                                      └─ OpenTelemetryMetrics   pocketmq[otel]

    metrics = ClientMetrics(PrometheusMetrics())
    with Producer("127.0.0.1:9876", hooks=[metrics]) as producer: ...

One `ClientMetrics` serves all clients of a process. Metrics that RocketMQ has, too, have its names. Times are in milliseconds, as there.
OpenTelemetry gets those of its conventions under their names, with times in seconds.
"""

import threading
from collections import defaultdict
from collections.abc import Iterable
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import msgspec

from pocketmq.client.hooks import (
    ConsumeEvent,
    DecisionEvent,
    Hooks,
    LeaseChange,
    LeaseEvent,
    LeaveEvent,
    PauseEvent,
    PullEvent,
    SendEvent,
)
from pocketmq.errors import InvalidSetting, MissingLibrary, install_command
from pocketmq.model import MessageQueue
from pocketmq.protocol.trace_text import Outcome

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter
    from prometheus_client import CollectorRegistry

Labels = tuple[str, ...]
"""The values of a metric's labels, in their order."""


class Kind(Enum):
    """The kind of a metric."""

    COUNTER = "counter"
    HISTOGRAM = "histogram"
    GAUGE = "gauge"


class Metric(msgspec.Struct, frozen=True):
    """The declaration of a metric. `buckets` are for histograms."""

    name: str
    kind: Kind
    help: str
    labels: Labels
    buckets: tuple[float, ...] = ()


class Metrics(Protocol):
    """A sink of values. It is called in the threads of the clients, and must not block."""

    def add(self, metric: Metric, labels: Labels, amount: float) -> None:
        """Add to a counter or gauge."""

    def observe(self, metric: Metric, labels: Labels, value: float) -> None:
        """Add a value to a histogram."""

    def set(self, metric: Metric, labels: Labels, value: float) -> None:
        """Set a gauge."""

    def remove(self, metric: Metric, labels: Labels) -> None:
        """Remove a gauge."""


_BY_TOPIC: Final = ("group", "topic")
_WITH_STATUS: Final = (*_BY_TOPIC, "invocation_status")
_SEND_MS: Final = (1.0, 5.0, 10.0, 20.0, 50.0, 200.0, 500.0)
_DELIVERY_MS: Final = (1.0, 5.0, 20.0, 100.0, 1_000.0, 5_000.0, 10_000.0)
_PROCESS_MS: Final = (1.0, 5.0, 10.0, 100.0, 1_000.0, 10_000.0, 60_000.0)

ALL: Final[list[Metric]] = []
"""All metrics of `ClientMetrics`."""


def _metric(kind: Kind, name: str, help: str, labels: Labels = _BY_TOPIC, buckets: tuple[float, ...] = ()) -> Metric:  # noqa: A002 as in the libraries
    metric = Metric(name, kind, help, labels, buckets)
    ALL.append(metric)
    return metric


_counter: Final = partial(_metric, Kind.COUNTER)
_gauge: Final = partial(_metric, Kind.GAUGE)
_histogram: Final = partial(_metric, Kind.HISTOGRAM)

SEND_TIME = _histogram(
    "rocketmq_send_cost_time", "Duration of an attempt to send, in milliseconds", _WITH_STATUS, _SEND_MS
)
SENT = _counter("rocketmq_client_sent_messages", "Messages that a broker stored")
SENT_BYTES = _counter("rocketmq_client_sent_bytes", "Bytes of the bodies of sent messages, after compression")
FAILED = _counter("rocketmq_client_failed_sends", "Failed attempts to send", (*_BY_TOPIC, "error"))
RETRIED = _counter("rocketmq_client_send_retries", "Attempts to send a message again after a failure")
SENDING = _gauge("rocketmq_client_sends_in_flight", "Messages that are sent and not acknowledged")
DECIDED = _counter("rocketmq_client_transactions", "Decided transactions", (*_BY_TOPIC, "decision"))
PULLED = _counter("rocketmq_client_pulled_messages", "Pulled messages")
PULL_TIME = _histogram(
    "rocketmq_client_pull_time",
    "Duration of a pull that returned messages, in milliseconds",
    buckets=_DELIVERY_MS,
)
PAUSED = _counter("rocketmq_client_pull_pauses", "Pulls that were delayed, by cause", (*_BY_TOPIC, "cause"))
LAG = _gauge(
    "rocketmq_client_lag_messages",
    "Messages of a queue that this consumer has not consumed",
    (*_BY_TOPIC, "broker", "queue"),
)
LEASED = _gauge("rocketmq_client_leased_messages", "Messages that brokers lease to this consumer (POP)")
LEASE_ENDS = _counter(
    "rocketmq_client_lease_ends",
    "Leased messages that were acknowledged, returned, or lapsed; and rejected acks, which came too late",
    (*_BY_TOPIC, "end"),
)
DELIVERY_TIME = _histogram(
    "rocketmq_delivery_latency",
    "Time from the store of a message to the call of a listener, in milliseconds",
    buckets=_DELIVERY_MS,
)
PROCESS_TIME = _histogram(
    "rocketmq_process_time", "Duration of a call of a listener, in milliseconds", _WITH_STATUS, _PROCESS_MS
)
CONSUMED = _counter("rocketmq_client_consumed_messages", "Consumed messages, by result", (*_BY_TOPIC, "outcome"))
IN_WORK = _gauge("rocketmq_client_messages_in_work", "Messages in running listeners")


class ClientMetrics(Hooks):
    """Hooks that count. Pass it to `hooks` of producers and consumers."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._lags: dict[tuple[str, MessageQueue], tuple[int, int]] = {}  # at the broker, and in this client

    # sending

    def before_send(self, event: SendEvent) -> None:
        self._metrics.add(SENDING, _by_topic(event), len(event.messages))

    def after_send(self, event: SendEvent) -> None:
        metrics, labels, count = self._metrics, _by_topic(event), len(event.messages)
        metrics.add(SENDING, labels, -count)
        if event.attempt > 1:
            metrics.add(RETRIED, labels, 1)
        if event.error is not None:
            metrics.add(FAILED, (*labels, type(event.error).__name__), 1)
        else:
            metrics.add(SENT, labels, count)
            metrics.add(SENT_BYTES, labels, event.body_bytes)
        metrics.observe(SEND_TIME, (*labels, _status(event.error is None)), event.cost_ms)

    def after_decision(self, event: DecisionEvent) -> None:
        self._metrics.add(DECIDED, (event.group, event.topic, event.state.name.lower()), 1)

    # consuming

    def after_pull(self, event: PullEvent) -> None:
        labels = _by_topic(event)
        if event.messages:
            self._metrics.add(PULLED, labels, event.messages)
            self._metrics.observe(PULL_TIME, labels, event.cost_ms)
        self._set_lag(event.group, event.queue, event.behind, event.cached)

    def after_pause(self, event: PauseEvent) -> None:
        self._metrics.add(PAUSED, (*_by_topic(event), event.cause), 1)

    def after_leave(self, event: LeaveEvent) -> None:
        if self._lags.pop((event.group, event.queue), None) is not None:
            self._metrics.remove(LAG, _by_queue(event.group, event.queue))

    def after_lease(self, event: LeaseEvent) -> None:
        labels = event.group, event.topic
        if event.change is LeaseChange.LEASED:
            self._metrics.add(LEASED, labels, event.messages)
            return
        self._metrics.add(LEASE_ENDS, (*labels, event.change.value), event.messages)
        if event.change is not LeaseChange.REJECTED:
            self._metrics.add(LEASED, labels, -event.messages)

    def before_consume(self, event: ConsumeEvent) -> None:
        labels = _by_topic(event)
        self._metrics.add(IN_WORK, labels, len(event.messages))
        for message in event.messages:
            self._metrics.observe(DELIVERY_TIME, labels, max(0, event.started_ms - message.store_ms))

    def after_consume(self, event: ConsumeEvent) -> None:
        metrics, labels, count = self._metrics, _by_topic(event), len(event.messages)
        outcome = Outcome.SUCCESS if event.outcome is None else event.outcome
        metrics.add(IN_WORK, labels, -count)
        metrics.add(CONSUMED, (*labels, outcome.name.lower()), count)
        metrics.observe(PROCESS_TIME, (*labels, _status(outcome is Outcome.SUCCESS)), event.cost_ms)
        behind, cached = self._lags.get((event.group, event.queue), (0, 0))
        if cached and outcome is Outcome.SUCCESS:
            self._set_lag(event.group, event.queue, behind, max(0, cached - count))

    def _set_lag(self, group: str, queue: MessageQueue, behind: int, cached: int) -> None:
        self._lags[group, queue] = behind, cached
        self._metrics.set(LAG, _by_queue(group, queue), behind + cached)


class MetricsInMemory:
    """Values in memory, for tests and inspection. All methods are thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # held for one addition
        self._values: dict[tuple[Metric, Labels], float] = defaultdict(float)
        self._counts: dict[tuple[Metric, Labels], int] = defaultdict(int)

    def add(self, metric: Metric, labels: Labels, amount: float) -> None:
        with self._lock:
            self._values[metric, labels] += amount

    def observe(self, metric: Metric, labels: Labels, value: float) -> None:
        with self._lock:
            self._values[metric, labels] += value
            self._counts[metric, labels] += 1

    def set(self, metric: Metric, labels: Labels, value: float) -> None:
        with self._lock:
            self._values[metric, labels] = value

    def remove(self, metric: Metric, labels: Labels) -> None:
        with self._lock:
            self._values.pop((metric, labels), None)

    def value(self, metric: Metric, *labels: str) -> float:
        """The value of a counter or gauge, or the sum of a histogram; 0 without a value."""
        return self._values.get((metric, labels), 0.0)

    def count(self, metric: Metric, *labels: str) -> int:
        """The number of values of a histogram."""
        return self._counts.get((metric, labels), 0)

    def labels(self, metric: Metric) -> list[Labels]:
        """All label values of a metric."""
        return sorted(labels for known, labels in list(self._values) if known is metric)


def _by_topic(event: SendEvent | ConsumeEvent | PullEvent | PauseEvent) -> Labels:
    return event.group, event.queue.topic


def _by_queue(group: str, queue: MessageQueue) -> Labels:
    return group, queue.topic, queue.broker_name, str(queue.queue_id)


def _status(is_well: bool) -> str:
    return "success" if is_well else "failure"


class PrometheusMetrics:
    """Metrics in `registry`, or in the default registry of prometheus_client."""

    def __init__(self, registry: "CollectorRegistry | None" = None) -> None:
        try:
            import prometheus_client
        except ImportError:
            raise MissingLibrary(
                f"metrics for Prometheus need prometheus-client; run {install_command('prometheus')}"
            ) from None
        into = prometheus_client.REGISTRY if registry is None else registry
        kinds: dict[Kind, Any] = {Kind.COUNTER: prometheus_client.Counter, Kind.GAUGE: prometheus_client.Gauge}
        try:
            self._known: dict[Metric, Any] = {
                metric: prometheus_client.Histogram(
                    metric.name, metric.help, metric.labels, registry=into, buckets=metric.buckets
                )
                if metric.kind is Kind.HISTOGRAM
                else kinds[metric.kind](metric.name, metric.help, metric.labels, registry=into)
                for metric in ALL
            }
        except ValueError:
            raise InvalidSetting(
                "the registry has these metrics already: create one ClientMetrics, and use it for all clients"
            ) from None

    def add(self, metric: Metric, labels: Labels, amount: float) -> None:
        self._known[metric].labels(*labels).inc(amount)

    def observe(self, metric: Metric, labels: Labels, value: float) -> None:
        self._known[metric].labels(*labels).observe(value)

    def set(self, metric: Metric, labels: Labels, value: float) -> None:
        self._known[metric].labels(*labels).set(value)

    def remove(self, metric: Metric, labels: Labels) -> None:
        self._known[metric].remove(*labels)


METER = "pocketmq.client"
_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""The buckets that the conventions advise for durations."""
_OTHER_ERROR: Final = "_OTHER"
"""The error type of the conventions where the type is not known."""


class Convention(NamedTuple):
    """The metric of OpenTelemetry's conventions for messaging that a metric is exported as."""

    name: str
    operation: str
    operation_type: str
    unit: str = "{message}"

    def attributes(self, metric: Metric, labels: Labels) -> dict[str, str]:
        given = dict(zip(metric.labels, labels, strict=True))
        found = {
            "messaging.system": "rocketmq",
            "messaging.operation.name": self.operation,
            "messaging.operation.type": self.operation_type,
            "messaging.destination.name": given["topic"],
        }
        if self.operation_type != "send":
            found["messaging.consumer.group.name"] = given["group"]
        if error := given.get("error"):
            found["error.type"] = error
        elif given.get("invocation_status") == "failure":
            found["error.type"] = _OTHER_ERROR
        elif given.get("outcome", "success") != "success":
            found["error.type"] = given["outcome"]
        return found


CONVENTIONS: Final = {
    SEND_TIME: Convention("messaging.client.operation.duration", "send", "send", "s"),
    PULL_TIME: Convention("messaging.client.operation.duration", "pull", "receive", "s"),
    SENT: Convention("messaging.client.sent.messages", "send", "send"),
    FAILED: Convention("messaging.client.sent.messages", "send", "send"),
    CONSUMED: Convention("messaging.client.consumed.messages", "process", "process"),
    PROCESS_TIME: Convention("messaging.process.duration", "process", "process", "s"),
}
"""All other metrics keep their names in OpenTelemetry."""


class OpenTelemetryMetrics:
    """Metrics of `meter`, or of the global meter provider, under the names of OpenTelemetry's conventions where there are any.

    Gauges are observable: they are kept here until they are collected.
    """

    def __init__(self, meter: "Meter | None" = None) -> None:
        try:
            from opentelemetry import metrics
        except ImportError:
            raise MissingLibrary(
                f"metrics for OpenTelemetry need opentelemetry; run {install_command('otel')}"
            ) from None
        self._observation = metrics.Observation
        meter = metrics.get_meter(METER) if meter is None else meter
        self._lock = threading.Lock()  # held for one change of a gauge, or while gauges are copied
        self._gauges: dict[Metric, dict[Labels, float]] = {metric: {} for metric in ALL if metric.kind is Kind.GAUGE}
        self._known: dict[Metric, Any] = {}
        shared: dict[str, Any] = {}
        for metric in ALL:
            name = CONVENTIONS[metric].name if metric in CONVENTIONS else metric.name
            if name not in shared:
                shared[name] = self._instrument(meter, metric)
            self._known[metric] = shared[name]

    def _instrument(self, meter: "Meter", metric: Metric) -> Any:
        convention = CONVENTIONS.get(metric)
        name, unit = (metric.name, "") if convention is None else (convention.name, convention.unit)
        if metric.kind is Kind.COUNTER:
            return meter.create_counter(name, unit, metric.help)
        if metric.kind is Kind.GAUGE:
            return meter.create_observable_gauge(name, [partial(self._observations, metric)], unit, metric.help)
        if convention is None:
            return meter.create_histogram(name, "ms", metric.help, explicit_bucket_boundaries_advisory=metric.buckets)
        text = metric.help.removesuffix(", in milliseconds")
        return meter.create_histogram(name, unit, text, explicit_bucket_boundaries_advisory=_SECONDS)

    def add(self, metric: Metric, labels: Labels, amount: float) -> None:
        if metric.kind is Kind.COUNTER:
            self._known[metric].add(amount, _attributes(metric, labels))
            return
        with self._lock:
            gauges = self._gauges[metric]
            gauges[labels] = gauges.get(labels, 0.0) + amount

    def observe(self, metric: Metric, labels: Labels, value: float) -> None:
        in_unit = value / 1000 if metric in CONVENTIONS else value
        self._known[metric].record(in_unit, _attributes(metric, labels))

    def set(self, metric: Metric, labels: Labels, value: float) -> None:
        with self._lock:
            self._gauges[metric][labels] = value

    def remove(self, metric: Metric, labels: Labels) -> None:
        with self._lock:
            self._gauges[metric].pop(labels, None)

    def _observations(self, metric: Metric, _: object) -> Iterable[Any]:
        with self._lock:
            gauges = dict(self._gauges[metric])
        return [self._observation(value, _attributes(metric, labels)) for labels, value in gauges.items()]


def _attributes(metric: Metric, labels: Labels) -> dict[str, str]:
    if (convention := CONVENTIONS.get(metric)) is not None:
        return convention.attributes(metric, labels)
    return dict(zip(metric.labels, labels, strict=True))
