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
from opentelemetry.semconv._incubating.metrics import messaging_metrics as conventions

IN_WORK = {"group": "G", "topic": "T"}
SENDING = {
    "messaging.system": "rocketmq",
    "messaging.operation.name": "send",
    "messaging.operation.type": "send",
    "messaging.destination.name": "T",
}
PROCESSING = {
    "messaging.system": "rocketmq",
    "messaging.operation.name": "process",
    "messaging.operation.type": "process",
    "messaging.destination.name": "T",
    "messaging.consumer.group.name": "G",
}


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

    [sent] = found["messaging.client.sent.messages"]
    assert (sent.value, dict(sent.attributes)) == (3, SENDING)
    [time] = found["messaging.client.operation.duration"]
    assert (time.sum, time.count, dict(time.attributes)) == (0.007, 1, SENDING)
    [in_work] = found["rocketmq_client_messages_in_work"]
    assert (in_work.value, dict(in_work.attributes)) == (1, IN_WORK)
    [lag] = found["rocketmq_client_lag_messages"]
    assert (lag.value, lag.attributes["queue"]) == (12, "0")
    metrics.remove(m.LAG, ("G", "T", "broker-a", "0"))
    assert not read(reader).get("rocketmq_client_lag_messages")


def test_metrics_of_the_conventions_have_their_names_units_and_attributes() -> None:
    reader = InMemoryMetricReader()
    metrics = OpenTelemetryMetrics(MeterProvider([reader]).get_meter("test"))
    metrics.add(m.SENT, ("PG", "T"), 3)
    metrics.add(m.FAILED, ("PG", "T", "SystemBusy"), 1)
    metrics.observe(m.SEND_TIME, ("PG", "T", "failure"), 7)
    metrics.observe(m.PULL_TIME, ("G", "T"), 7)
    metrics.add(m.CONSUMED, ("G", "T", "success"), 1)
    metrics.add(m.CONSUMED, ("G", "T", "failed"), 1)
    metrics.observe(m.PROCESS_TIME, ("G", "T", "success"), 20)

    data = reader.get_metrics_data()
    assert data is not None
    found = {metric.name: metric for metric in data.resource_metrics[0].scope_metrics[0].metrics}

    for convention in (
        conventions.create_messaging_client_sent_messages,
        conventions.create_messaging_client_consumed_messages,
        conventions.create_messaging_client_operation_duration,
        conventions.create_messaging_process_duration,
    ):
        expected: Any = convention(MeterProvider().get_meter("expected"))
        assert found[expected.name].unit == expected.unit
    assert attributes_of(found["messaging.client.sent.messages"]) == [SENDING, SENDING | {"error.type": "SystemBusy"}]
    assert attributes_of(found["messaging.client.consumed.messages"]) == [
        PROCESSING,
        PROCESSING | {"error.type": "failed"},
    ]
    pulling = PROCESSING | {"messaging.operation.name": "pull", "messaging.operation.type": "receive"}
    assert attributes_of(found["messaging.client.operation.duration"]) == [pulling, SENDING | {"error.type": "_OTHER"}]
    assert attributes_of(found["messaging.process.duration"]) == [PROCESSING]


def attributes_of(metric: Any) -> list[dict[str, Any]]:
    return sorted((dict(point.attributes) for point in metric.data.data_points), key=lambda one: (len(one), repr(one)))


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)

    with pytest.raises(MissingLibrary, match=r"-m pip install .*opentelemetry-sdk"):
        OpenTelemetryMetrics()
