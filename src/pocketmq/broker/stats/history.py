"""The last minute, hour and day of a tally.

    samples   ┼──┼──┼──┼──┼──┼──┼──┼──┼──┼──┼──┼──►  one every ten seconds
    minute                      ├─────────────────┤  six samples back
    hour      marks every ten minutes, up to an hour back
    day       marks every hour, up to a day back

A mark is what the tally was at a sample. It is made only when the tally changed, so a topic that nobody uses costs nothing; the
growth over a span is the newest mark less the last one made before the span began.
"""

from collections import deque
from typing import Final, NamedTuple

from pocketmq.broker.stats.tally import Tally


class Span(NamedTuple):
    """How many samples it reaches back, and how many lie between two places where it may begin."""

    samples: int
    step: int


MINUTE: Final = Span(6, 1)
HOUR: Final = Span(360, 60)
DAY: Final = Span(24 * 360, 360)
SPANS: Final = (MINUTE, HOUR, DAY)


class Mark(NamedTuple):
    """A tally as it was at a sample; `at` is monotonic."""

    sample: int
    at: float
    messages: int = 0
    size: int = 0
    calls: int = 0
    ms: float = 0.0


class Growth(NamedTuple):
    """What was added to a tally, and in how many seconds."""

    messages: int
    size: int
    calls: int
    ms: float
    seconds: float


class Timeline:
    """When the samples were taken, as far back as a span may begin."""

    def __init__(self, now: float) -> None:
        self.sample = 0
        self.at = now
        self._times = {span: deque([(0, now)], span.samples // span.step + 1) for span in SPANS}

    def advance(self, now: float) -> None:
        """Another sample is taken."""
        self.sample += 1
        self.at = now
        for span, times in self._times.items():
            if self.begins(span):
                times.append((self.sample, now))

    def begins(self, span: Span) -> bool:
        """Whether `span` may later begin at the present sample."""
        return self.sample % span.step == 0

    def start_of(self, span: Span) -> tuple[int, float]:
        """The sample at which `span` begins, seen from the present one, and its time."""
        oldest = self.sample - span.samples
        return next(begun for begun in self._times[span] if begun[0] >= oldest)


class History:
    """The marks of one tally. Begins with nothing counted, at the sample before the tally was made."""

    __slots__ = ("_marks", "last")

    def __init__(self, timeline: Timeline) -> None:
        self.last = Mark(timeline.sample, timeline.at)
        self._marks = tuple([self.last] for _ in SPANS)

    def note(self, tally: Tally, timeline: Timeline) -> None:
        """Look at the tally, at the present sample."""
        if tally.count != self.last.messages:
            self.last = Mark(timeline.sample, timeline.at, tally.count, tally.bytes, tally.calls, tally.ms)
        for span, marks in zip(SPANS, self._marks, strict=True):
            if marks[-1] is not self.last and timeline.begins(span):
                marks.append(self.last)
                start, _ = timeline.start_of(span)
                while marks[1].sample <= start:
                    del marks[0]

    def growth(self, span: Span, timeline: Timeline) -> Growth:
        """What was added in the span that ends at the present sample."""
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
