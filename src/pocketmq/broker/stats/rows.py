"""Rows of statistics: a tally and its history for each topic, or for each group in a topic.

get ──► row ── a day without a message, and nobody has its tally at hand ──► forgotten; what it counted stays in the total
 └─ the table is full ──► the shared tally, which counts in the total only
"""

import logging
from typing import NamedTuple
from weakref import ref

from pocketmq.broker.stats.history import HOUR, Growth, History, Span, Timeline
from pocketmq.broker.stats.tally import Tally
from pocketmq.errors import InvalidSetting

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
