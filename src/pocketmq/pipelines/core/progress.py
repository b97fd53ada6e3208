"""The progress of queries: Spark's reports as rows for tables, logs and metrics.

Spark's report of a batch ── batch_of ──► Batch ── Tally.add ──► Progress: sums of this run, rate, backlog, remaining time

Messages are counted by offsets: Spark's own row count is larger if a batch is read twice, and smaller if a filter excluded some.
"""

import json
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
from rich.table import Table
from rich.text import Text

from pocketmq.model.human import UNKNOWN, duration
from pocketmq.spark.read.offsets import Lost, QueryOffset, backlog, ranges_between
from pocketmq.spark.read.source_progress import offset_of, seen_by

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

DROPPED_DUPLICATES: Final = "numDroppedDuplicateRows"
"""Spark's name for the rows that its deduplication drops."""
REMEMBERED_REPORTS: Final = 1_000
"""More reports than Spark keeps, so that none is counted twice."""
RATE_BATCHES: Final = 5
"""The rate covers this number of batches."""


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """One micro-batch of a query, or a trigger without new messages."""

    query: str
    batch: int
    at: str
    messages: int = 0
    behind: int | None = None
    """Unread messages when it ended; None if unknown."""
    rows_written: int | None = None
    took_ms: int = 0
    late: int = 0
    """Rows that a stateful operator dropped because they were later than the watermark."""
    duplicates: int = 0
    """Rows that were dropped because their key had been seen."""
    kept: int = 0
    """Rows in the state of operators: windows and keys."""
    watermark: str | None = None
    lost: tuple[Lost, ...] = ()
    outage: str | None = None
    """The error of unavailable brokers; None if they respond."""


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a query in this run."""

    query: str
    batch: int
    messages: int
    """The messages of this run so far."""
    per_s: float
    behind: int | None
    eta_s: float | None
    """Until the backlog is read, without new messages; None if unknown."""
    took_ms: int
    late: int = 0
    duplicates: int = 0
    kept: int = 0
    watermark: str | None = None
    state: str = "running"
    """Or `waiting`, while brokers do not respond."""
    outage: str | None = None
    """The error of brokers that do not respond."""


class Tally:
    """The sums of one query in one run."""

    def __init__(self, query: str) -> None:
        self.query = query
        self.messages = 0
        self.batches = 0
        self.late = 0
        self.duplicates = 0
        self.lost: list[Lost] = []
        self._seen: deque[tuple[int, str]] = deque(maxlen=REMEMBERED_REPORTS)
        self._counted_until = -1
        self._recent: list[Batch] = []

    def add(self, reports: Iterable[Mapping[str, Any]]) -> list[Progress]:
        """The new reports, one row for each batch."""
        rows = []
        for report in reports:
            batch = batch_of(report, self.query)
            if (batch.batch, batch.at) in self._seen:
                continue
            self._seen.append((batch.batch, batch.at))
            rows.append(self._after(batch))
        return rows

    def update(self, query: "StreamingQuery") -> list[Progress]:
        """The new reports of a query. Requests all recent reports only if the last one is new."""
        last = query.lastProgress
        if last is None or (last.batchId, last.timestamp) in self._seen:
            return []
        return self.add(reports_of(query))

    def _after(self, batch: Batch) -> Progress:
        # A trigger without new messages is reported under the number of the next batch.
        if batch.messages and batch.batch > self._counted_until:
            self._counted_until = batch.batch
            self.messages += batch.messages
            self.batches += 1
            self.lost += batch.lost
        self.late += batch.late
        self.duplicates += batch.duplicates
        self._recent = [*self._recent, batch][-RATE_BATCHES:]
        took_s = sum(one.took_ms for one in self._recent) / 1000
        per_s = sum(one.messages for one in self._recent) / took_s if took_s else 0.0
        eta_s = 0.0 if batch.behind == 0 else batch.behind / per_s if batch.behind is not None and per_s else None
        return Progress(
            query=batch.query,
            batch=batch.batch,
            messages=self.messages,
            per_s=round(per_s, 1),
            behind=batch.behind,
            eta_s=None if eta_s is None else round(eta_s, 1),
            took_ms=batch.took_ms,
            late=self.late,
            duplicates=self.duplicates,
            kept=batch.kept,
            watermark=batch.watermark,
            state="running" if batch.outage is None else "waiting",
            outage=batch.outage,
        )


def reports_of(query: "StreamingQuery") -> list[dict[str, Any]]:
    """Spark's reports on the recent batches of a query, as plain data."""
    return [json.loads(report.json) for report in query.recentProgress]


def batch_of(report: Mapping[str, Any], query: str = "") -> Batch:
    """One report of Spark. Sources that are not ours count by their rows."""
    states = report.get("stateOperators") or []
    sources = report.get("sources") or []
    written = (report.get("sink") or {}).get("numOutputRows", -1)
    ours = [(source, end) for source in sources if (end := offset_of(source.get("endOffset"))) is not None]
    others = [source for source in sources if offset_of(source.get("endOffset")) is None]
    seen = [seen_by(source) for source, _ in ours]
    outage = next((str(fields["outage"].get("error")) for fields in seen if "outage" in fields), None)
    lags = [None if outage else _behind(end, offset_of(fields)) for (_, end), fields in zip(ours, seen, strict=True)]
    return Batch(
        query=query or report.get("name") or str(report.get("id", ""))[:8],
        batch=report.get("batchId", 0),
        at=report.get("timestamp", ""),
        messages=sum(_messages(source, end) for source, end in ours)
        + sum(int(source.get("numInputRows") or 0) for source in others),
        behind=None if not lags or None in lags else sum(lag or 0 for lag in lags),
        rows_written=written if written >= 0 else None,
        took_ms=int((report.get("durationMs") or {}).get("triggerExecution", 0)),
        late=sum(int(state.get("numRowsDroppedByWatermark", 0)) for state in states),
        duplicates=sum(int((state.get("customMetrics") or {}).get(DROPPED_DUPLICATES, 0)) for state in states),
        kept=sum(int(state.get("numRowsTotal", 0)) for state in states),
        watermark=(report.get("eventTime") or {}).get("watermark"),
        lost=tuple(lost for source, end in ours for lost in _lost(source, end)),
        outage=outage,
    )


def _messages(source: Mapping[str, Any], end: QueryOffset) -> int:
    start = offset_of(source.get("startOffset"))
    return 0 if start == end else sum(len(part) for part in ranges_between(start, end))


def _behind(end: QueryOffset, latest: QueryOffset | None) -> int | None:
    return None if latest is None else backlog(end.queues, latest.queues)


def _lost(source: Mapping[str, Any], end: QueryOffset) -> Sequence[Lost]:
    return () if offset_of(source.get("startOffset")) == end else end.lost


class ProgressTable:
    """Progress of queries as a rich table: `console.print(ProgressTable(query).render())`, or in a `rich.live.Live`."""

    def __init__(self, *queries: "StreamingQuery") -> None:
        self._queries = queries
        self._tallies = {query.id: Tally(query.name or str(query.id)[:8]) for query in queries}
        self._last: dict[str, Progress] = {}

    def render(self) -> Table:
        for query in self._queries:
            for row in self._tallies[query.id].update(query):
                self._last[query.id] = row
        return progress_table([self._last[query.id] for query in self._queries if query.id in self._last])

    __rich__ = render


def progress_table(rows: Iterable[Progress]) -> Table:
    """One row per query."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("query", overflow="fold")
    for name in ("batch", "messages", "per s", "behind", "remaining", "late rows"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        behind = "unknown" if row.behind is None else f"{row.behind:,}"
        cells = (
            str(row.batch),
            f"{row.messages:,}",
            f"{row.per_s:,.0f}",
            behind,
            eta_text(row.eta_s),
            f"{row.late:,}",
        )
        table.add_row(Text(row.query), *map(Text, cells))
    return table


def eta_text(eta_s: float | None) -> str:
    """`now`, `12 s`, `3 min 5 s`, `unknown`."""
    if eta_s is None:
        return UNKNOWN
    return "now" if eta_s < 1 else duration(eta_s * 1000)
