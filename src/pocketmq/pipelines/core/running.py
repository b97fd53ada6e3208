"""A run of a pipeline: starts, watches and stops its queries.

    once          all available messages, in limited batches (Spark's AvailableNow), then the end
    continuous    until ctrl-C or SIGTERM; the next run repeats an unfinished batch

The result is a `Summary`: sums, lost ranges, and tables of the pipeline. A failure is one short text.

Prometheus metrics of the progress need the extra `prometheus`:

    pocketmq_pipeline_messages_total{query}         messages read by this process
    pocketmq_pipeline_batches_total{query}          micro-batches with messages
    pocketmq_pipeline_late_rows_total{query}        rows dropped because they were later than the watermark
    pocketmq_pipeline_messages_per_second{query}    in the last batches
    pocketmq_pipeline_behind_messages{query}        unread messages when the last batch ended
    pocketmq_pipeline_batch_seconds{query}          duration of the last batch
    pocketmq_pipeline_kept_rows{query}              rows in the state of operators
"""

import json
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import msgspec

from pocketmq import system
from pocketmq.clock import Clock, SystemClock
from pocketmq.errors import InvalidSetting, MissingLibrary, PipelineFailed, install_command
from pocketmq.pipelines.core.libraries import error_text
from pocketmq.pipelines.core.progress import Progress, Tally, batch_of
from pocketmq.spark.lineage import Data, Lineage
from pocketmq.spark.read.offsets import Lost

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from pyspark.sql.streaming.query import StreamingQuery

POLL_S: Final = 0.25
"""Interval between checks of the queries."""
MAX_WAIT_S: Final = 24 * 3600.0

Row = Mapping[str, Any]
Report = Callable[[Progress], None]


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a run."""

    pipeline: str = ""
    ended: str = "caught up"
    """Or `stopped`, on request; a pipeline may use other words."""
    messages: int = 0
    batches: int = 0
    took_ms: int = 0
    late: int = 0
    duplicates: int = 0
    lost: tuple[Row, ...] = ()
    """Ranges of messages that were deleted before they were read: topic, broker, queue, start, end, cause."""
    facts: Mapping[str, Any] = {}
    """More lines to show: `rows dead`, `files written`."""
    tables: Mapping[str, Sequence[Row]] = {}
    """Rows to show, by title."""

    @property
    def per_s(self) -> float:
        return round(self.messages / (self.took_ms / 1000), 1) if self.took_ms else 0.0


class Run:
    """The context of a pipeline's run: the trigger of its queries, where progress is reported, when to stop."""

    def __init__(
        self,
        *,
        once: bool = True,
        every_ms: int = 5_000,
        report: Report = lambda progress: None,
        clock: Clock | None = None,
    ) -> None:
        self.once = once
        self.report = report
        self.clock: Clock = clock or SystemClock()
        self.stopping = threading.Event()
        self._every_ms = every_ms

    @property
    def trigger(self) -> dict[str, Any]:
        """For `writeStream.trigger(**run.trigger)`."""
        return {"availableNow": True} if self.once else {"processingTime": f"{self._every_ms} milliseconds"}

    def stop(self) -> None:
        """Request an early end, from any thread."""
        self.stopping.set()

    def follow(self, *queries: "StreamingQuery", facts: Mapping[str, Any] | None = None) -> Summary:
        """Watch queries until all end, one fails, or a stop is requested. Then stop all of them."""
        began = self.clock.monotonic()
        tallies = {query.id: Tally(query.name or str(query.id)[:8]) for query in queries}
        try:
            while not self.stopping.is_set() and any(query.isActive for query in queries):
                self._wait(queries)
                self._report(queries, tallies)
                _raise_failure(queries)
        finally:
            stop_all(queries)
        self._report(queries, tallies)
        if not self.stopping.is_set():
            _raise_failure(queries)
        return Summary(
            ended="stopped" if self.stopping.is_set() else "caught up",
            messages=sum(tally.messages for tally in tallies.values()),
            batches=sum(tally.batches for tally in tallies.values()),
            took_ms=round((self.clock.monotonic() - began) * 1000),
            late=sum(tally.late for tally in tallies.values()),
            duplicates=sum(tally.duplicates for tally in tallies.values()),
            lost=tuple(lost_row(lost) for tally in tallies.values() for lost in tally.lost),
            facts=facts or {},
        )

    def _wait(self, queries: Sequence["StreamingQuery"]) -> None:
        waited_for = next((query for query in queries if query.isActive), None)
        if waited_for is None:
            return
        try:
            waited_for.awaitTermination(POLL_S)  # type: ignore[arg-type]
        except Exception as error:  # Spark raises the failure of a query here
            if not self.stopping.is_set():
                raise PipelineFailed(error_text(error)) from error

    def _report(self, queries: Sequence["StreamingQuery"], tallies: Mapping[str, Tally]) -> None:
        for query in queries:
            for row in tallies[query.id].update(query):
                self.report(row)


@contextmanager
def lineage_reported(pipeline: str, settings: Any) -> Iterator[None]:
    """Report the run of a pipeline to OpenLineage, if its variables such as OPENLINEAGE_URL are set."""
    inputs, outputs = data_of(pipeline, settings)
    lineage = Lineage.configured(settings.namesrv) if inputs or outputs else None
    if lineage is None:
        yield
        return
    with lineage.job(f"pocketmq.{pipeline}", inputs=inputs, outputs=outputs):
        yield


def data_of(pipeline: str, settings: Any) -> tuple[list[str | Data], list[str | Data]]:
    """What a pipeline reads and writes, by the names of its settings. The lag report reads no messages."""

    def named(*names: str) -> list[str]:
        return [text for name in names if (text := getattr(settings, name, None))]

    topics = list(getattr(settings, "topics", ()))
    tables: list[str | Data] = [*named("lake"), *(Data("spark_catalog", table) for table in named("table"))]
    match pipeline:
        case "lag-report":
            return [], []
        case "mirror":
            target = settings.target.replace(",", ";").split(";")[0]
            return [*topics], [f"rocketmq://{target}/{topic}" for topic in topics]
        case "replay":
            dead = [f"%DLQ%{group}" for group in named("dlq")]
            return tables or [*dead, *topics], [*(named("to") or topics)]
    return [*topics], [*tables, *named("to", "good", "dead_letters")]


def run_until_caught_up(
    *queries: "StreamingQuery", timeout_s: float = MAX_WAIT_S, report: Report | None = None
) -> Summary:
    """Wait until queries have read all available messages, then stop them. For queries with any trigger.

    A query with `availableNow` ends by itself; others are watched until their sources have nothing left. PipelineFailed if a query
    fails, or after the timeout.
    """
    run = Run(report=report or (lambda progress: None))
    ends = run.clock.monotonic() + timeout_s
    is_over = False

    def watch() -> None:
        nonlocal is_over
        while not run.stopping.wait(POLL_S):
            is_over = run.clock.monotonic() >= ends
            if is_over or all(not query.isActive or is_caught_up(query) for query in queries):
                run.stop()

    watching = threading.Thread(target=watch, name="pocketmq caught up", daemon=True)
    watching.start()
    try:
        summary = run.follow(*queries)
    finally:
        run.stop()
        watching.join()
    if is_over:
        raise PipelineFailed(f"the queries had not caught up after {timeout_s:g} s and were stopped")
    _raise_failure(queries)
    return msgspec.structs.replace(summary, ended="caught up")


def is_caught_up(query: "StreamingQuery") -> bool:
    """Whether a running query has processed all that its sources have, by Spark's status while no batch runs.

    While brokers are unavailable a query also finds nothing new, so its last report must show an empty backlog.
    """
    status = query.status
    if status["isDataAvailable"] or status["isTriggerActive"] or (last := query.lastProgress) is None:
        return False
    batch = batch_of(json.loads(last.json))
    return not batch.behind and batch.outage is None


def stop_all(queries: Sequence["StreamingQuery"]) -> None:
    for query in queries:
        if query.isActive:
            query.stop()


def lost_row(lost: Lost) -> Row:
    queue = lost.range.queue
    return {
        "topic": queue.topic,
        "broker": queue.broker_name,
        "queue": queue.queue_id,
        "start": lost.range.start,
        "end": lost.range.end,
        "cause": lost.cause.value,
    }


@contextmanager
def stopped_by_signals(run: Run) -> Iterator[None]:
    """The first ctrl-C or SIGTERM stops the run in order, a second one at once. No effect outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in system.STOP_SIGNALS}

    def stop(number: int, frame: FrameType | None) -> None:
        if run.stopping.is_set():
            raise KeyboardInterrupt
        run.stop()

    for number in system.STOP_SIGNALS:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _raise_failure(queries: Sequence["StreamingQuery"]) -> None:
    for query in queries:
        if (error := query.exception()) is not None:
            raise PipelineFailed(error_text(error)) from error


HOST: Final = "127.0.0.1"
_COUNTS: Final = {"messages": "messages read", "batches": "micro-batches with messages", "late_rows": "rows too late"}
_LEVELS: Final = {
    "messages_per_second": "messages per second in the last batches",
    "behind_messages": "unread messages when the last batch ended",
    "batch_seconds": "duration of the last batch in seconds",
    "kept_rows": "rows in the state of operators",
}


class ProgressMetrics:
    """Metrics in a registry of prometheus_client, by default the global one. Call `show` with each progress row."""

    def __init__(self, registry: "CollectorRegistry | None" = None) -> None:
        try:
            import prometheus_client
        except ImportError:
            raise MissingLibrary(
                f"Prometheus metrics need prometheus-client; run {install_command('prometheus')}"
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
                "the registry has these metrics already; create one ProgressMetrics for all queries"
            ) from None
        self._before: dict[str, Progress] = {}

    def show(self, progress: Progress) -> None:
        """Show a row of progress; pass it to `Run` as `report`."""
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
    """Expose the progress of a run on a loopback port during this context; nothing without a port."""
    if port is None:
        yield
        return
    try:
        import prometheus_client
    except ImportError:
        raise MissingLibrary(
            f"Prometheus metrics need prometheus-client; run {install_command('prometheus')}"
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
