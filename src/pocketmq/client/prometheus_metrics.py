"""Metrics for Prometheus, by its own client library: `pip install pocketmq[prometheus]`."""

from typing import TYPE_CHECKING, Any

from pocketmq.client.metrics import ALL, Kind, Labels, Metric
from pocketmq.errors import InvalidSetting, MissingLibrary

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


class PrometheusMetrics:
    """Numbers in a registry of prometheus_client: its own one, or `registry`."""

    def __init__(self, registry: "CollectorRegistry | None" = None) -> None:
        try:
            import prometheus_client
        except ImportError:
            raise MissingLibrary(
                "metrics for Prometheus need prometheus-client: pip install pocketmq[prometheus]"
            ) from None
        into = prometheus_client.REGISTRY if registry is None else registry
        kinds: dict[Kind, Any] = {Kind.COUNTER: prometheus_client.Counter, Kind.LEVEL: prometheus_client.Gauge}
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
                "the registry has these metrics already: make one ClientMetrics, and give it to all clients"
            ) from None

    def add(self, metric: Metric, labels: Labels, amount: float) -> None:
        self._known[metric].labels(*labels).inc(amount)

    def observe(self, metric: Metric, labels: Labels, value: float) -> None:
        self._known[metric].labels(*labels).observe(value)

    def set(self, metric: Metric, labels: Labels, value: float) -> None:
        self._known[metric].labels(*labels).set(value)

    def remove(self, metric: Metric, labels: Labels) -> None:
        self._known[metric].remove(*labels)
