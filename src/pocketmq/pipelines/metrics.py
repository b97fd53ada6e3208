"""Progress of queries as metrics for Prometheus, by its own client library: `pip install pocketmq[prometheus]`.

pocketmq_pipeline_messages_total{query}         messages read by this process
pocketmq_pipeline_batches_total{query}          micro-batches with messages
pocketmq_pipeline_late_rows_total{query}        rows left out because they came later than the watermark
pocketmq_pipeline_messages_per_second{query}    of the last batches
pocketmq_pipeline_behind_messages{query}        what waited when the last batch ended
pocketmq_pipeline_batch_seconds{query}          how long the last batch took
pocketmq_pipeline_kept_rows{query}              rows that operators with state keep
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from pocketmq.errors import InvalidSetting, MissingLibrary
from pocketmq.pipelines.progress import Progress
from pocketmq.pipelines.running import Run

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

HOST: Final = "127.0.0.1"
_COUNTS: Final = {"messages": "messages read", "batches": "micro-batches with messages", "late_rows": "rows too late"}
_LEVELS: Final = {
    "messages_per_second": "messages a second, in the last batches",
    "behind_messages": "messages that waited when the last batch ended",
    "batch_seconds": "seconds that the last batch took",
    "kept_rows": "rows that operators with state keep",
}


class ProgressMetrics:
    """Numbers in a registry of prometheus_client: its own one, or `registry`. `show` each progress row as it comes."""

    def __init__(self, registry: "CollectorRegistry | None" = None) -> None:
        try:
            import prometheus_client
        except ImportError:
            raise MissingLibrary(
                "metrics for Prometheus need prometheus-client: pip install pocketmq[prometheus]"
            ) from None
        into = prometheus_client.REGISTRY if registry is None else registry
        try:
            self._counts: dict[str, Any] = {
                name: prometheus_client.Counter(f"pocketmq_pipeline_{name}", text, ["query"], registry=into)
                for name, text in _COUNTS.items()
            }
            self._levels: dict[str, Any] = {
                name: prometheus_client.Gauge(f"pocketmq_pipeline_{name}", text, ["query"], registry=into)
                for name, text in _LEVELS.items()
            }
        except ValueError:
            raise InvalidSetting(
                "the registry has these metrics already: make one ProgressMetrics for all queries"
            ) from None
        self._before: dict[str, Progress] = {}

    def show(self, progress: Progress) -> None:
        """Take a row of progress, as `Run.report` does."""
        before = self._before.get(progress.query)
        messages = progress.messages - (before.messages if before else 0)
        self._counts["messages"].labels(progress.query).inc(max(0, messages))
        self._counts["batches"].labels(progress.query).inc(1 if messages > 0 else 0)
        self._counts["late_rows"].labels(progress.query).inc(max(0, progress.late - (before.late if before else 0)))
        self._levels["messages_per_second"].labels(progress.query).set(progress.per_s)
        self._levels["behind_messages"].labels(progress.query).set(
            float("nan") if progress.behind is None else progress.behind
        )
        self._levels["batch_seconds"].labels(progress.query).set(progress.took_ms / 1000)
        self._levels["kept_rows"].labels(progress.query).set(progress.kept)
        self._before[progress.query] = progress


@contextmanager
def metrics_served(port: int | None, run: Run) -> Iterator[None]:
    """Serve the progress of a run on a port of the loopback while this lasts; without a port, nothing."""
    if port is None:
        yield
        return
    try:
        import prometheus_client
    except ImportError:
        raise MissingLibrary(
            "metrics for Prometheus need prometheus-client: pip install pocketmq[prometheus]"
        ) from None
    registry = prometheus_client.CollectorRegistry()
    metrics = ProgressMetrics(registry)
    shown = run.report

    def show(progress: Progress) -> None:
        metrics.show(progress)
        shown(progress)

    run.report = show
    server, thread = prometheus_client.start_http_server(port, addr=HOST, registry=registry)
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
