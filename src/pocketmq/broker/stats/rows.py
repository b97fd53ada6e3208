"""Rows of statistics: a tally and its history for each topic, or for each group in a topic.

get ──► row ── a day without a message, and nobody has its tally at hand ──► forgotten; what it counted stays in the total
 └─ the table is full ──► the shared tally, which counts in the total only

The last minute, hour and day of a tally.

    samples   ┼──┼──┼──┼──┼──┼──┼──┼──┼──┼──┼──┼──►  one every ten seconds
    minute                      ├─────────────────┤  six samples back
    hour      marks every ten minutes, up to an hour back
    day       marks every hour, up to a day back

A mark is what the tally was at a sample. It is made only when the tally changed, so a topic that nobody uses costs nothing; the
growth over a span is the newest mark less the last one made before the span began.

A tally: numbers that only grow. Whoever handles messages keeps the tally of its topic or group at hand and adds to it.
"""

import logging
from collections import deque
from typing import Final, NamedTuple
from weakref import ref

from pocketmq.errors import InvalidSetting


class Tally:
    """What went one way. A single message is two additions, to `count` and `bytes`; nothing else happens.

    `joined` are the messages that came along with another one in the same call, so that `calls` need not be counted:
    of a batch of five, or of a pull that found five, four are joined. `ms` is the time that the calls took, where that
    is measured. All of them change only together with `count`.
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
        """Add what another one counted."""
        self.count += other.count
        self.bytes += other.bytes
        self.joined += other.joined
        self.ms += other.ms


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


log = logging.getLogger("pocketmq.broker")

Key = tuple[str, ...]


class Total(NamedTuple):
    """Messages, and calls that brought them."""

    messages: int
    calls: int

    def and_of(self, other: "Total") -> "Total":
        return Total(self.messages + other.messages, self.calls + other.calls)


class Rows:
    """Rows by key, at most `most` of them."""

    def __init__(self, what: str, most: int, timeline: Timeline) -> None:
        if most < 1:
            raise InvalidSetting(f"{what}: statistics of at most {most} could not count anything; allow at least 1")
        self._what = what
        self._most = most
        self._timeline = timeline
        self._rows: dict[Key, tuple[Tally, History]] = {}
        self._gone = Tally()
        self._shared = Tally()
        self._told_full = False

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, key: Key) -> bool:
        return key in self._rows

    def get(self, *key: str) -> Tally:
        """The tally to add to. Not to be kept when the topic or group is deleted: see `forget`."""
        found = self._rows.get(key)
        if found is not None:
            return found[0]
        if len(self._rows) >= self._most:
            self._say_full()
            return self._shared
        tally = Tally()
        self._rows[key] = tally, History(self._timeline)
        return tally

    def _say_full(self) -> None:
        if not self._told_full:
            self._told_full = True
            log.warning("%s: there are %d statistics; further ones count in the totals only", self._what, self._most)

    def tallies(self) -> list[tuple[Key, Tally]]:
        """What each row has counted so far."""
        return [(key, tally) for key, (tally, _) in self._rows.items()]

    def growth(self, key: Key, span: Span) -> Growth | None:
        """What was added in the span; None when there is no such row."""
        found = self._rows.get(key)
        return found and found[1].growth(span, self._timeline)

    def total(self) -> Total:
        """All that was ever counted here."""
        tallies = [self._gone, self._shared, *(tally for tally, _ in self._rows.values())]
        messages = sum([tally.count for tally in tallies])
        return Total(messages, messages - sum([tally.joined for tally in tallies]))

    def sample(self) -> None:
        """Let every row that changed make its marks; once in a while look at the others too, and forget the idle ones."""
        look_at_all = self._timeline.begins(HOUR)
        self._note([row for row in self._rows.values() if look_at_all or row[0].count != row[1].last.messages])
        if look_at_all:
            self._forget_idle()

    def _note(self, rows: list[tuple[Tally, History]]) -> None:
        for tally, history in rows:
            history.note(tally, self._timeline)

    def _forget_idle(self) -> None:
        for key in [key for key, (_, history) in self._rows.items() if history.is_idle(self._timeline)]:
            self._forget_unused(key)

    def _forget_unused(self, key: Key) -> None:
        """Forget a row unless somebody has its tally at hand, and may add to it at any time.

        Nobody has it when it is gone as soon as it is let go here.
        """
        tally, history = self._rows.pop(key)
        counted = Tally()
        counted.add(tally)
        watch = ref(tally)
        del tally
        if (in_use := watch()) is not None:
            self._rows[key] = in_use, history
        else:
            self._gone.add(counted)

    def forget(self, place: int, name: str) -> None:
        """What is called `name` was deleted: forget the rows that have it at this place of their key."""
        for key in [key for key in self._rows if key[place] == name]:
            self._gone.add(self._rows.pop(key)[0])
