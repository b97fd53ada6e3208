"""Metrics of an OpenTelemetry meter."""

import sys
from typing import Any

import pytest

from pocketmq.client.telemetry import metrics as m
from pocketmq.client.telemetry.metrics import OpenTelemetryMetrics
from pocketmq.errors import MissingLibrary

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

IN_WORK = {"group": "G", "topic": "T"}


def read(reader: InMemoryMetricReader) -> dict[str, list[Any]]:
    """The points of each metric by its name."""
    data = reader.get_metrics_data()
    if data is None:
        return {}
    [resource] = data.resource_metrics
    [scope] = resource.scope_metrics
    return {metric.name: list(metric.data.data_points) for metric in scope.metrics}


def test_counters_histograms_and_gauges_are_collected() -> None:
    reader = InMemoryMetricReader()
    metrics = OpenTelemetryMetrics(MeterProvider([reader]).get_meter("test"))

    metrics.add(m.SENT, ("PG", "T"), 3)
    metrics.observe(m.SEND_TIME, ("PG", "T", "success"), 7)
    metrics.add(m.IN_WORK, ("G", "T"), 2)
    metrics.add(m.IN_WORK, ("G", "T"), -1)
    metrics.set(m.LAG, ("G", "T", "broker-a", "0"), 12)
    found = read(reader)

    [sent] = found["rocketmq_client_sent_messages"]
    assert (sent.value, dict(sent.attributes)) == (3, {"group": "PG", "topic": "T"})
    [time] = found["rocketmq_send_cost_time"]
    assert (time.sum, time.count, time.explicit_bounds) == (7, 1, m.SEND_TIME.buckets)
    [in_work] = found["rocketmq_client_messages_in_work"]
    assert (in_work.value, dict(in_work.attributes)) == (1, IN_WORK)
    [lag] = found["rocketmq_client_lag_messages"]
    assert (lag.value, lag.attributes["queue"]) == (12, "0")
    metrics.remove(m.LAG, ("G", "T", "broker-a", "0"))
    assert not read(reader).get("rocketmq_client_lag_messages")


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)

    with pytest.raises(MissingLibrary, match=r"-m pip install .*opentelemetry-sdk"):
        OpenTelemetryMetrics()
