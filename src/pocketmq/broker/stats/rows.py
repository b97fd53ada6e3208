"""Rows of statistics: a counter and its history for each topic, or for each group in a topic.

get ──► row ── unused for a day ──► removed; its counts stay in the total
 └─ the table is full ──► one counter for all further keys, which only adds to the total

`Tally` is a counter that only grows. Code that handles messages keeps the tally of its topic or group, and adds to it.
`History` has its values in the last minute, hour and day:

    samples   ┼──┼──┼──┼──┼──┼──┼──┼──┼──┼──┼──┼──►  one every ten seconds
    minute                      ├─────────────────┤  six samples back
    hour      marks every ten minutes, up to an hour back
    day       marks every hour, up to a day back

A mark is the tally at a sample. It is made only if the tally changed, so an unused topic costs nothing. The growth over
a span is the newest mark less the last one made before the span began.
"""

import logging
from collections import deque
from typing import Final, NamedTuple
from weakref import ref

from pocketmq.errors import InvalidSetting


class Tally:
    """Counts of one direction. A single message is two additions, to `count` and `bytes`.

    `joined` are the messages that came with another one in the same call, so that `calls` need not be counted: of a
    batch of five, or of a pull that found five, four are joined. `ms` is the duration of the calls, where it is
    measured. All of them change only together with `count`.
    """

    __slots__ = ("__weakref__", "bytes", "count", "joined", "ms")

    def __init__(self) -> None:
        self.count = 0
        self.bytes = 0
        self.joined = 0
        self.ms = 0.0

    @property
    def calls(self) -> int:
        return self.count - self.joined

    def add(self, other: "Tally") -> None:
        self.count += other.count
        self.bytes += other.bytes
        self.joined += other.joined
        self.ms += other.ms


class Span(NamedTuple):
    """The length in samples, and the samples between two possible starts."""

    samples: int
    step: int


MINUTE: Final = Span(6, 1)
HOUR: Final = Span(360, 60)
DAY: Final = Span(24 * 360, 360)
SPANS: Final = (MINUTE, HOUR, DAY)


class Mark(NamedTuple):
    """A tally at a sample; `at` is monotonic."""

    sample: int
    at: float
    messages: int = 0
    size: int = 0
    calls: int = 0
    ms: float = 0.0


class Growth(NamedTuple):
    """The additions to a tally, and the seconds that they took."""

    messages: int
    size: int
    calls: int
    ms: float
    seconds: float


class Timeline:
    """The times of the samples, as far back as a span may begin."""

    def __init__(self, now: float) -> None:
        self.sample = 0
        self.at = now
        self._times = {span: deque([(0, now)], span.samples // span.step + 1) for span in SPANS}

    def advance(self, now: float) -> None:
        self.sample += 1
        self.at = now
        for span, times in self._times.items():
            if self.begins(span):
                times.append((self.sample, now))

    def begins(self, span: Span) -> bool:
        """Whether `span` may later begin at the current sample."""
        return self.sample % span.step == 0

    def start_of(self, span: Span) -> tuple[int, float]:
        """The sample at which `span` begins, and its time."""
        oldest = self.sample - span.samples
        return next(begun for begun in self._times[span] if begun[0] >= oldest)


class History:
    """The marks of one tally. The first one is zero, at the sample before the creation of the tally."""

    __slots__ = ("_marks", "last")

    def __init__(self, timeline: Timeline) -> None:
        self.last = Mark(timeline.sample, timeline.at)
        self._marks = tuple([self.last] for _ in SPANS)

    def record(self, tally: Tally, timeline: Timeline) -> None:
        if tally.count != self.last.messages:
            self.last = Mark(timeline.sample, timeline.at, tally.count, tally.bytes, tally.calls, tally.ms)
        for span, marks in zip(SPANS, self._marks, strict=True):
            if marks[-1] is not self.last and timeline.begins(span):
                marks.append(self.last)
                start, _ = timeline.start_of(span)
                while marks[1].sample <= start:
                    del marks[0]

    def growth(self, span: Span, timeline: Timeline) -> Growth:
        """The additions in the span that ends at the current sample."""
        start, start_at = timeline.start_of(span)
        base, *later = self._marks[SPANS.index(span)]
        for mark in later:
            if mark.sample > start:
                break
            base = mark
        last = self.last
        return Growth(
            last.messages - base.messages,
            last.size - base.size,
            last.calls - base.calls,
            last.ms - base.ms,
            timeline.at - max(base.at, start_at),
        )

    def is_idle(self, timeline: Timeline) -> bool:
        """Whether nothing was added for a day."""
        return self.last.sample <= timeline.sample - DAY.samples


log = logging.getLogger("pocketmq.broker")

Key = tuple[str, ...]


class Total(NamedTuple):
    """Messages, and the calls that contained them."""

    messages: int
    calls: int

    def and_of(self, other: "Total") -> "Total":
        return Total(self.messages + other.messages, self.calls + other.calls)


class Rows:
    """Rows by key, at most `most` of them."""

    def __init__(self, what: str, most: int, timeline: Timeline) -> None:
        if most < 1:
            raise InvalidSetting(f"{what}: the limit on statistics is {most}; it must be at least 1")
        self._what = what
        self._most = most
        self._timeline = timeline
        self._rows: dict[Key, tuple[Tally, History]] = {}
        self._deleted = Tally()
        self._overflow = Tally()
        self._full_logged = False

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, key: Key) -> bool:
        return key in self._rows

    def get(self, *key: str) -> Tally:
        """The tally to add to. Not valid after the topic or group was deleted: see `forget`."""
        found = self._rows.get(key)
        if found is not None:
            return found[0]
        if len(self._rows) >= self._most:
            self._log_full()
            return self._overflow
        tally = Tally()
        self._rows[key] = tally, History(self._timeline)
        return tally

    def _log_full(self) -> None:
        if not self._full_logged:
            self._full_logged = True
            log.warning(
                "Statistics of %s reached the limit of %d rows; further rows only count in the totals",
                self._what,
                self._most,
            )

    def tallies(self) -> list[tuple[Key, Tally]]:
        return [(key, tally) for key, (tally, _) in self._rows.items()]

    def growth(self, key: Key, span: Span) -> Growth | None:
        """The additions in the span; None if there is no such row."""
        found = self._rows.get(key)
        return found and found[1].growth(span, self._timeline)

    def total(self) -> Total:
        """Everything that was ever counted here."""
        tallies = [self._deleted, self._overflow, *(tally for tally, _ in self._rows.values())]
        messages = sum([tally.count for tally in tallies])
        return Total(messages, messages - sum([tally.joined for tally in tallies]))

    def sample(self) -> None:
        """Record every row that changed. Once an hour record the others too, and remove the idle ones."""
        is_hourly = self._timeline.begins(HOUR)
        self._record([row for row in self._rows.values() if is_hourly or row[0].count != row[1].last.messages])
        if is_hourly:
            self._forget_idle()

    def _record(self, rows: list[tuple[Tally, History]]) -> None:
        for tally, history in rows:
            history.record(tally, self._timeline)

    def _forget_idle(self) -> None:
        for key in [key for key, (_, history) in self._rows.items() if history.is_idle(self._timeline)]:
            self._forget_unused(key)

    def _forget_unused(self, key: Key) -> None:
        """Remove a row, unless its tally is still in use and may be added to at any time.

        It is in use if a weak reference survives the removal of the row.
        """
        tally, history = self._rows.pop(key)
        counted = Tally()
        counted.add(tally)
        watch = ref(tally)
        del tally
        if (in_use := watch()) is not None:
            self._rows[key] = in_use, history
        else:
            self._deleted.add(counted)

    def forget(self, index: int, name: str) -> None:
        """Remove the rows of a deleted topic or group: those with `name` at this index of their key."""
        for key in [key for key in self._rows if key[index] == name]:
            self._deleted.add(self._rows.pop(key)[0])
