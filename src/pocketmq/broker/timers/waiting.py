"""Waiting: the log offsets of timed messages, by the time for which they wait.

    1700000007000 ──► [4711, 4900, 5013 …]     arrays of 64-bit numbers, each in the order of the log
    1700000008000 ──► [4800]                   a heap of the times says which is next

    log, in stretches of 1 MiB:  | 12 wait | 0 | 3 wait | …      how far back the oldest one lies, without looking at all

A message is taken from the beginning of its array, so none is ever searched for. What was rolled stays where it is until its time
comes, and is left out then.
"""

import heapq
from array import array
from typing import Final

STRETCH_BITS: Final = 20


class Waiting:
    """Add in the order of the log; take in the order of (time, log offset). Pure."""

    def __init__(self) -> None:
        self._by_time: dict[int, array[int]] = {}
        self._taken: dict[int, int] = {}
        self._times: list[int] = []
        self._stretches: dict[int, int] = {}
        self._rolled_to = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, out_ms: int, log_offset: int) -> None:
        offsets = self._by_time.get(out_ms)
        if offsets is None:
            offsets = self._by_time[out_ms] = array("q")
            heapq.heappush(self._times, out_ms)
        offsets.append(log_offset)
        stretch = log_offset >> STRETCH_BITS
        self._stretches[stretch] = self._stretches.get(stretch, 0) + 1
        self._count += 1

    @property
    def next_ms(self) -> int | None:
        """The earliest time for which a message waits."""
        return self._times[0] if self._times else None

    def next_offsets(self, count: int) -> "array[int]":
        """Up to `count` messages of the earliest time, in the order of the log; not taken yet."""
        if not self._times:
            return array("q")
        start = self._taken.get(self._times[0], 0)
        return self._by_time[self._times[0]][start : start + count]

    def is_rolled(self, log_offset: int) -> bool:
        return log_offset < self._rolled_to

    def take(self, count: int) -> None:
        """The first `count` messages of the earliest time are done."""
        out_ms = self._times[0]
        offsets, start = self._by_time[out_ms], self._taken.get(out_ms, 0)
        for log_offset in offsets[start : start + count]:
            if not self.is_rolled(log_offset):
                self._leave(log_offset)
        if start + count < len(offsets):
            self._taken[out_ms] = start + count
        else:
            heapq.heappop(self._times)
            del self._by_time[out_ms]
            self._taken.pop(out_ms, None)

    def roll(self, log_offset: int) -> None:
        """This message waits no more at its place; `forget_before` is told how far that was done."""
        self._leave(log_offset)

    def forget_before(self, log_offset: int) -> int:
        """Nothing before `log_offset` waits any more; of how many messages there that is news, as far as is known by now."""
        self._rolled_to = max(self._rolled_to, log_offset)
        lost = 0
        while self._stretches and (first := next(iter(self._stretches))) + 1 << STRETCH_BITS <= log_offset:
            lost += self._stretches.pop(first)
        self._count -= lost
        return lost

    def _leave(self, log_offset: int) -> None:
        stretch = log_offset >> STRETCH_BITS
        left = self._stretches.get(stretch, 0) - 1
        if left >= 0:
            self._count -= 1
        if left > 0:
            self._stretches[stretch] = left
        else:
            self._stretches.pop(stretch, None)

    @property
    def oldest(self) -> int | None:
        """A log offset before which no message waits, not far before the oldest that does; None when none waits."""
        if not self._stretches:
            return None
        return max(next(iter(self._stretches)) << STRETCH_BITS, self._rolled_to)
