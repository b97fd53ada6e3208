"""Metrics for OpenTelemetry: `pip install pocketmq[otel]`. Where they go is what the program has set up there."""

import threading
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from pocketmq.client.metrics import ALL, Kind, Labels, Metric
from pocketmq.errors import MissingLibrary

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter

METER = "pocketmq.client"


class OpenTelemetryMetrics:
    """Numbers of a meter: the program's own one, or `meter`. Levels are kept here and told when they are asked for."""

    def __init__(self, meter: "Meter | None" = None) -> None:
        try:
            from opentelemetry import metrics
        except ImportError:
            raise MissingLibrary("metrics for OpenTelemetry need its library: pip install pocketmq[otel]") from None
        self._observation = metrics.Observation
        meter = metrics.get_meter(METER) if meter is None else meter
        self._lock = threading.Lock()  # held for one change of a level, or while they are copied
        self._levels: dict[Metric, dict[Labels, float]] = {metric: {} for metric in ALL if metric.kind is Kind.LEVEL}
        self._known: dict[Metric, Any] = {}
        for metric in ALL:
            if metric.kind is Kind.COUNTER:
                self._known[metric] = meter.create_counter(metric.name, description=metric.help)
            elif metric.kind is Kind.HISTOGRAM:
                self._known[metric] = meter.create_histogram(
                    metric.name, "ms", metric.help, explicit_bucket_boundaries_advisory=metric.buckets
                )
            else:
                told = [partial(self._told, metric)]
                self._known[metric] = meter.create_observable_gauge(metric.name, told, description=metric.help)

    def add(self, metric: Metric, labels: Labels, amount: float) -> None:
        if metric.kind is Kind.COUNTER:
            self._known[metric].add(amount, _attributes(metric, labels))
            return
        with self._lock:
            levels = self._levels[metric]
            levels[labels] = levels.get(labels, 0.0) + amount

    def observe(self, metric: Metric, labels: Labels, value: float) -> None:
        self._known[metric].record(value, _attributes(metric, labels))

    def set(self, metric: Metric, labels: Labels, value: float) -> None:
        with self._lock:
            self._levels[metric][labels] = value

    def remove(self, metric: Metric, labels: Labels) -> None:
        with self._lock:
            self._levels[metric].pop(labels, None)

    def _told(self, metric: Metric, _: object) -> Iterable[Any]:
        with self._lock:
            levels = dict(self._levels[metric])
        return [self._observation(value, _attributes(metric, labels)) for labels, value in levels.items()]


def _attributes(metric: Metric, labels: Labels) -> dict[str, str]:
    return dict(zip(metric.labels, labels, strict=True))
