"""How far queries are: the progress that Spark reports, as rows that tables, logs and metrics are made from.

Spark's report of a batch ── batch_of ──► Batch ── Tally.add ──► Progress: sums of this run, rate, how far behind, how long still

Messages are counted by offsets: Spark's own count of rows is larger when a batch is read twice, and smaller when a filter took some.
"""

import json
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
from rich.table import Table
from rich.text import Text

from pocketmq.errors import WrongState
from pocketmq.model.human import UNKNOWN, duration
from pocketmq.spark.read.offsets import Lost, QueryOffset, backlog, parse_offset, ranges_between

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

DROPPED_DUPLICATES: Final = "numDroppedDuplicateRows"
"""What Spark calls the rows that its operators of de-duplication leave out."""
REMEMBERED_REPORTS: Final = 1_000
"""More than Spark keeps, and so tells again."""
RATE_BATCHES: Final = 5
"""The rate is that of the last batches."""


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """One micro-batch of a query, or a look that found nothing new."""

    query: str
    batch: int
    at: str
    messages: int = 0
    behind: int | None = None
    """Messages that waited when it ended; None where brokers did not tell."""
    rows_written: int | None = None
    took_ms: int = 0
    late: int = 0
    """Rows that came later than the watermark and were left out by an operator with state."""
    duplicates: int = 0
    """Rows that were left out because their key had been seen."""
    kept: int = 0
    """Rows that operators keep in memory: windows and keys."""
    watermark: str | None = None
    lost: tuple[Lost, ...] = ()
    outage: str | None = None
    """The error of brokers that do not answer; None while they do."""


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a query is in this run."""

    query: str
    batch: int
    messages: int
    """In this run, until now."""
    per_s: float
    behind: int | None
    eta_s: float | None
    """Until nothing waits any more, if nothing new comes; None when nobody knows."""
    took_ms: int
    late: int = 0
    duplicates: int = 0
    kept: int = 0
    watermark: str | None = None
    state: str = "running"
    """Or `waiting`, while brokers do not answer."""
    outage: str | None = None
    """Their error."""


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
        """What is new in Spark's reports, one row for each batch."""
        rows = []
        for report in reports:
            batch = batch_of(report, self.query)
            if (batch.batch, batch.at) in self._seen:
                continue
            self._seen.append((batch.batch, batch.at))
            rows.append(self._after(batch))
        return rows

    def look(self, query: "StreamingQuery") -> list[Progress]:
        """What is new in the reports of a query. All recent ones are asked for only when the last one is new."""
        last = query.lastProgress
        if last is None or (last.batchId, last.timestamp) in self._seen:
            return []
        return self.add(reports_of(query))

    def _after(self, batch: Batch) -> Progress:
        # A look that finds nothing is reported under the number of the batch that comes next.
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
    """What Spark tells about the recent batches of a query, as plain data."""
    return [json.loads(report.json) for report in query.recentProgress]


def batch_of(report: Mapping[str, Any], query: str = "") -> Batch:
    """One report of Spark, read. Sources that are none of ours count by their rows."""
    states = report.get("stateOperators") or []
    sources = report.get("sources") or []
    written = (report.get("sink") or {}).get("numOutputRows", -1)
    ours = [(source, end) for source in sources if (end := _offset(source.get("endOffset"))) is not None]
    others = [source for source in sources if _offset(source.get("endOffset")) is None]
    seen = [_told(source.get("latestOffset")) for source, _ in ours]
    outage = next((str(told["outage"].get("error")) for told in seen if "outage" in told), None)
    lags = [None if outage else _behind(end, _offset(source.get("latestOffset"))) for source, end in ours]
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


def _told(offset: Any) -> dict[str, Any]:
    """What an offset of the report says; nothing for one that is no JSON object."""
    if isinstance(offset, str):
        try:
            offset = json.loads(offset)
        except ValueError:
            return {}
    return offset if isinstance(offset, dict) else {}


def _offset(offset: Any) -> QueryOffset | None:
    """An offset of ours; None for those of other sources, and before the first batch."""
    told = _told(offset)
    if "queues" not in told:
        return None
    try:
        return parse_offset({"seenMs": 0, **told})  # where queues end is told without it
    except WrongState:
        return None


def _messages(source: Mapping[str, Any], end: QueryOffset) -> int:
    start = _offset(source.get("startOffset"))
    return 0 if start == end else sum(len(part) for part in ranges_between(start, end))


def _behind(end: QueryOffset, latest: QueryOffset | None) -> int | None:
    return None if latest is None else backlog(end.queues, latest.queues)


def _lost(source: Mapping[str, Any], end: QueryOffset) -> Sequence[Lost]:
    return () if _offset(source.get("startOffset")) == end else end.lost


class ProgressTable:
    """Progress of queries as a table of rich: `console.print(ProgressTable(query).render())`, or in a `rich.live.Live`."""

    def __init__(self, *queries: "StreamingQuery") -> None:
        self._queries = queries
        self._tallies = {query.id: Tally(query.name or str(query.id)[:8]) for query in queries}
        self._last: dict[str, Progress] = {}

    def render(self) -> Table:
        for query in self._queries:
            for row in self._tallies[query.id].look(query):
                self._last[query.id] = row
        return progress_table([self._last[query.id] for query in self._queries if query.id in self._last])

    __rich__ = render


def progress_table(rows: Iterable[Progress]) -> Table:
    """One row for each query."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("query", overflow="fold")
    for name in ("batch", "messages", "per s", "behind", "still takes", "late rows"):
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
