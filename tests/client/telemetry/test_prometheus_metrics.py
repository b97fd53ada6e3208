"""Metrics in a registry of Prometheus."""

import sys

import pytest

from pocketmq.client.telemetry import metrics as m
from pocketmq.client.telemetry.metrics import PrometheusMetrics
from pocketmq.errors import InvalidSetting, MissingLibrary

prometheus_client = pytest.importorskip("prometheus_client")


def test_counters_histograms_and_gauges_are_exported_for_prometheus() -> None:
    registry = prometheus_client.CollectorRegistry()
    metrics = PrometheusMetrics(registry)

    metrics.add(m.SENT, ("PG", "T"), 3)
    metrics.observe(m.SEND_TIME, ("PG", "T", "success"), 7)
    metrics.add(m.SENDING, ("PG", "T"), 2)
    metrics.add(m.SENDING, ("PG", "T"), -1)
    metrics.set(m.LAG, ("G", "T", "broker-a", "0"), 12)
    text = prometheus_client.generate_latest(registry).decode()

    assert 'rocketmq_client_sent_messages_total{group="PG",topic="T"} 3.0' in text
    assert 'rocketmq_send_cost_time_bucket{group="PG",invocation_status="success",le="10.0",topic="T"} 1.0' in text
    assert 'rocketmq_send_cost_time_bucket{group="PG",invocation_status="success",le="5.0",topic="T"} 0.0' in text
    assert 'rocketmq_client_sends_in_flight{group="PG",topic="T"} 1.0' in text
    assert 'rocketmq_client_lag_messages{broker="broker-a",group="G",queue="0",topic="T"} 12.0' in text
    metrics.remove(m.LAG, ("G", "T", "broker-a", "0"))
    assert "rocketmq_client_lag_messages{" not in prometheus_client.generate_latest(registry).decode()


def test_a_second_instance_in_one_registry_is_refused() -> None:
    registry = prometheus_client.CollectorRegistry()
    PrometheusMetrics(registry)

    with pytest.raises(InvalidSetting, match="create one ClientMetrics, and use it for all clients"):
        PrometheusMetrics(registry)


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)

    with pytest.raises(MissingLibrary, match=r"-m pip install .*prometheus-client"):
        PrometheusMetrics()
