"""Progress as metrics for Prometheus."""

import urllib.request
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytest.importorskip("prometheus_client", reason="the extra `prometheus` is not installed")

import prometheus_client

from pocketmq.errors import InvalidSetting
from pocketmq.pipelines.core.progress import Progress
from pocketmq.pipelines.core.running import ProgressMetrics, Run, metrics_served


def progress(batch: int, messages: int, behind: int | None = 0, late: int = 0) -> Progress:
    return Progress(
        query="q", batch=batch, messages=messages, per_s=5.0, behind=behind, eta_s=None, took_ms=1500, late=late, kept=3
    )


def test_counters_increase_and_gauges_have_the_value_of_the_last_row() -> None:
    registry = prometheus_client.CollectorRegistry()
    metrics = ProgressMetrics(registry)

    for row in (progress(0, 10, 90), progress(1, 10, 90), progress(1, 40, None, late=2)):
        metrics.show(row)

    def value(name: str) -> float | None:
        return registry.get_sample_value(f"pocketmq_pipeline_{name}", {"query": "q"})

    assert [value(name) for name in ("messages_total", "batches_total", "late_rows_total")] == [40, 2, 2]
    assert [value(name) for name in ("messages_per_second", "batch_seconds", "kept_rows")] == [5.0, 1.5, 3]
    behind = value("behind_messages")
    assert behind is not None
    assert behind != behind  # not a number: unknown


def test_a_registry_contains_the_metrics_once() -> None:
    registry = prometheus_client.CollectorRegistry()
    ProgressMetrics(registry)

    with pytest.raises(InvalidSetting, match="has these metrics already"):
        ProgressMetrics(registry)


def test_a_run_serves_its_progress_and_reports_it_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Progress] = []
    run = Run(report=shown.append)
    ports: list[int] = []
    start: Any = prometheus_client.start_http_server

    def started(port: int, **more: Any) -> Any:
        server, thread = start(port, **more)
        ports.append(server.server_address[1])
        return server, thread

    monkeypatch.setattr(prometheus_client, "start_http_server", started)

    with metrics_served(0, run):
        run.report(progress(0, 10))
        with urllib.request.urlopen(f"http://127.0.0.1:{ports[0]}/metrics", timeout=10) as answer:
            text = answer.read().decode()

    assert 'pocketmq_pipeline_messages_total{query="q"} 10.0' in text
    assert shown == [progress(0, 10)]


def test_without_a_port_no_metrics_are_served() -> None:
    run = Run()
    report = run.report

    with metrics_served(None, run):
        assert run.report is report
