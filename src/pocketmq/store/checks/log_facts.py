"""What the pass over the log has learned so far, for those who compare other files with it."""

from bisect import bisect_right
from typing import Final

MAX_HOLES: Final = 100_000
"""Ranges that are kept apart; of a log with more, the last one is taken to be longer."""


class LogFacts:
    """Where the log begins and ends, and which parts of it cannot be read."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.end = start
        """Where the last sound record ends; true once the pass is over."""
        self.newest_ms = 0
        self.known_end = start
        """Up to where queue entries say that there are messages; beyond `end` only when the log lost its tail."""
        self.known_by = ""
        """The queue that says so."""
        self._begins: list[int] = []
        self._ends: list[int] = []

    @property
    def last_hole_end(self) -> int:
        """Where the last unreadable part ended; before the start when there was none."""
        return self._ends[-1] if self._ends else -1

    def add_hole(self, begin: int, end: int) -> None:
        """From `begin` to `end` the log has no record that can be trusted. Holes come in order."""
        if len(self._begins) >= MAX_HOLES:
            self._ends[-1] = end
            return
        self._begins.append(begin)
        self._ends.append(end)

    def in_hole(self, log_offset: int) -> bool:
        place = bisect_right(self._begins, log_offset) - 1
        return place >= 0 and log_offset < self._ends[place]

    def note_known(self, log_end: int, by: str) -> None:
        """A queue entry points to a message that ends at `log_end`."""
        if log_end > self.known_end:
            self.known_end, self.known_by = log_end, by
