"""One run of a pipeline: its queries are started, watched and ended well.

    once          all that is there now, in limited batches (Spark's AvailableNow), then the end
    continuous    until ctrl-C or SIGTERM; the batch under way is done again by the next run if it was not finished

What a run did comes back as a `Summary`: sums, lost ranges, and tables of the pipeline's own. A failure is one sentence.
"""

import json
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import msgspec

from pocketmq.clock import Clock, SystemClock
from pocketmq.errors import PipelineFailed
from pocketmq.pipelines.failures import told
from pocketmq.pipelines.progress import Progress, Tally, batch_of
from pocketmq.spark.offsets import Lost

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

LOOK_S: Final = 0.25
"""How often queries are looked at."""
MAX_WAIT_S: Final = 24 * 3600.0
STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)

Row = Mapping[str, Any]
Report = Callable[[Progress], None]


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What a run did."""

    pipeline: str = ""
    ended: str = "caught up"
    """Or `stopped`, when somebody asked for it; a pipeline may have words of its own."""
    messages: int = 0
    batches: int = 0
    took_ms: int = 0
    late: int = 0
    duplicates: int = 0
    lost: tuple[Row, ...] = ()
    """Ranges of messages that were gone before they were read: topic, broker, queue, start, end, cause."""
    facts: Mapping[str, Any] = {}
    """What else is worth a line: `rows dead`, `files written`."""
    tables: Mapping[str, Sequence[Row]] = {}
    """Rows to show, by title."""

    @property
    def per_s(self) -> float:
        return round(self.messages / (self.took_ms / 1000), 1) if self.took_ms else 0.0


class Run:
    """Handed to a pipeline when it runs: how its queries are triggered, where its progress goes, when to stop."""

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
        """Ask it to end soon; from any thread."""
        self.stopping.set()

    def follow(self, *queries: "StreamingQuery", facts: Mapping[str, Any] | None = None) -> Summary:
        """Watch queries until all have ended, or one fails, or somebody asks to stop. Ends all of them."""
        began = self.clock.monotonic()
        tallies = {query.id: Tally(query.name or str(query.id)[:8]) for query in queries}
        try:
            while not self.stopping.is_set() and any(query.isActive for query in queries):
                self._wait(queries)
                self._look(queries, tallies)
                _raise_failure(queries)
        finally:
            stop_all(queries)
        self._look(queries, tallies)
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
            waited_for.awaitTermination(LOOK_S)  # type: ignore[arg-type]
        except Exception as error:  # a failed query raises here, in Spark's words
            if not self.stopping.is_set():
                raise PipelineFailed(told(error)) from error

    def _look(self, queries: Sequence["StreamingQuery"], tallies: Mapping[str, Tally]) -> None:
        for query in queries:
            for row in tallies[query.id].look(query):
                self.report(row)


def run_until_caught_up(
    *queries: "StreamingQuery", timeout_s: float = MAX_WAIT_S, report: Report | None = None
) -> Summary:
    """Wait until queries have read all that is there, then stop them. For queries of any trigger; they may go on meanwhile.

    A query with `availableNow` ends by itself. Of others it is waited until their sources have nothing that is not done.
    PipelineFailed when one fails, or when the time is over.
    """
    run = Run(report=report or (lambda progress: None))
    ends = run.clock.monotonic() + timeout_s
    is_over = False

    def watch() -> None:
        nonlocal is_over
        while not run.stopping.wait(LOOK_S):
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
        raise PipelineFailed(f"the queries had not caught up after {timeout_s:g} s; they were stopped")
    _raise_failure(queries)
    return msgspec.structs.replace(summary, ended="caught up")


def is_caught_up(query: "StreamingQuery") -> bool:
    """Whether a running query has done all that its sources have: by Spark, which is asked when nothing is under way.

    A query whose brokers are away finds nothing new either, so its last report must say that nothing waits.
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
    """The first ctrl-C or SIGTERM ends the run well, a second one at once. Only in the main thread; elsewhere nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}

    def stop(number: int, frame: FrameType | None) -> None:
        if run.stopping.is_set():
            raise KeyboardInterrupt
        run.stop()

    for number in STOP_SIGNALS:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _raise_failure(queries: Sequence["StreamingQuery"]) -> None:
    for query in queries:
        if (error := query.exception()) is not None:
            raise PipelineFailed(told(error)) from error
