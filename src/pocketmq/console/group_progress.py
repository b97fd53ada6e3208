"""Progress of groups without members: a Spark query commits offsets to such a group after every batch.

    offset            ┌───────    the committed offset changes after each batch,
              ┌───────┘           and stays the same until the next one
        ──────┘
    samples   ·  ·  ·  ·  ·  ·    if it stayed the same in between, the time between two changes is that of a batch;
                                  if it changed with every sample, a batch takes at most that long

The collector samples all groups every five seconds, during which a query may run many batches. While a page with such groups
is open, the sampler queries a few of them twice a second, or less often if the queries take long.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec

from pocketmq.client.admin.admin import AsyncAdmin
from pocketmq.client.admin.lag import GroupLag
from pocketmq.clock import Clock
from pocketmq.errors import PocketMQError
from pocketmq.model import group_of

KEPT_MOVES: Final = 20
TIMED_MOVES: Final = 10
"""The time between batches is that of the last moves, so that it is soon exact after sampling becomes frequent."""
FORGOTTEN_S: Final = 24 * 3_600.0
"""A group without a commit for this time is no longer shown."""
PATIENCE_S: Final = 30.0
PATIENCE_BATCHES: Final = 5
"""A group with a lag and without a commit for both of these has stopped."""


class Activity(StrEnum):
    """The state of a group, derived from its commits."""

    RUNNING = "running"
    WAITING = "waiting for messages"
    STOPPED = "stopped"


class GroupProgress(msgspec.Struct, frozen=True, kw_only=True):
    """Rate and batch time of a group."""

    moves: int
    """The number of observed commits, up to KEPT_MOVES."""
    last_move_ms: int
    per_s: float
    """Messages per second over these commits."""
    batch_s: float
    """Average seconds between two commits."""
    is_at_most: bool = False
    """Batches may be shorter: every sample saw a new commit."""

    def activity(self, now_ms: int, lag: int | None) -> Activity:
        """A group without lag and without commits waits: it cannot be distinguished from one that has stopped."""
        if now_ms - self.last_move_ms < 1_000 * max(PATIENCE_S, PATIENCE_BATCHES * self.batch_s):
            return Activity.RUNNING
        return Activity.WAITING if lag == 0 else Activity.STOPPED


class _Move(NamedTuple):
    at: float
    offset: int
    is_exact: bool
    """A sample before it saw the same offset as the move before."""


class _Track:
    """The commits of one group. `offset` is the sum over its queues."""

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.moves: deque[_Move] = deque(maxlen=KEPT_MOVES)
        self.last_move_ms = 0
        self.sampled_at = float("-inf")
        self.was_unchanged = False

    def add(self, offset: int, sampled_at: float, now_ms: int) -> None:
        if sampled_at <= self.sampled_at:
            return  # an older sample that arrived late
        self.sampled_at = sampled_at
        if offset == self.offset:
            self.was_unchanged = True
            return
        if offset < self.offset:  # a reset: earlier commits do not count
            self.offset, self.was_unchanged = offset, False
            self.moves.clear()
            return
        self.moves.append(_Move(sampled_at, offset, self.was_unchanged))
        self.offset, self.last_move_ms, self.was_unchanged = offset, now_ms, False


class ProgressTracker:
    """Records samples of committed offsets."""

    def __init__(self) -> None:
        self._tracks: dict[str, _Track] = {}

    def record(self, lags: Mapping[str, GroupLag], sampled_at: float, now_ms: int) -> None:
        """A sample of all groups."""
        self.record_some(lags, sampled_at, now_ms)
        for group in [group for group in self._tracks if group not in lags]:
            del self._tracks[group]
        for track in self._tracks.values():
            if track.moves and track.moves[-1].at < sampled_at - FORGOTTEN_S:
                track.moves.clear()

    def record_some(self, lags: Mapping[str, GroupLag], sampled_at: float, now_ms: int) -> None:
        """A sample of some groups."""
        for group, lag in lags.items():
            if any(queue.problem for queue in lag.queues):
                continue  # an unknown offset would look like a reset
            offset = sum(queue.committed or 0 for queue in lag.queues if not group_of(queue.queue.topic))
            self._tracks.setdefault(group, _Track(offset)).add(offset, sampled_at, now_ms)

    def all(self) -> dict[str, GroupProgress]:
        """The progress of groups with at least two commits: a single one may be a reset."""
        return {group: _progress(track) for group, track in self._tracks.items() if len(track.moves) > 1}


def _progress(track: _Track) -> GroupProgress:
    first, last = track.moves[0], track.moves[-1]
    took_s = last.at - first.at
    batch_s, is_at_most = _between([*track.moves][-TIMED_MOVES:])
    return GroupProgress(
        moves=len(track.moves),
        last_move_ms=track.last_move_ms,
        per_s=(last.offset - first.offset) / took_s,
        batch_s=batch_s,
        is_at_most=is_at_most,
    )


def _between(moves: list[_Move]) -> tuple[float, bool]:
    """Average seconds between two moves: of the exact ones if they are half of all, otherwise of all, which is an upper limit."""
    gaps = [(move.at - before.at, move.is_exact) for before, move in pairwise(moves)]
    close = [gap for gap, is_exact in gaps if is_exact]
    if len(close) * 2 >= len(gaps):
        return sum(close) / len(close), False
    return sum(gap for gap, _ in gaps) / len(gaps), True


SAMPLED_GROUPS: Final = 10
"""Other groups are only sampled by the collector."""
SAMPLE_EVERY_S: Final = 0.5
WATCHED_S: Final = 10.0
"""Frequent sampling continues for this time after a request for the page."""

OnSample = Callable[[Mapping[str, GroupLag], float], None]
"""Lags of groups, and the time of the sample."""


class ProgressSampler:
    """Samples groups frequently while their page is open."""

    def __init__(self, admin: AsyncAdmin, clock: Clock, rest_factor: float) -> None:
        """A sample is not repeated for its duration times `rest_factor`."""
        self._admin = admin
        self._clock = clock
        self._rest_factor = rest_factor
        self._groups: tuple[str, ...] = ()
        self._until = 0.0
        self._is_watched = asyncio.Event()

    def watch(self, groups: Iterable[str]) -> None:
        """Sample these groups for WATCHED_S."""
        self._groups = tuple(groups)[:SAMPLED_GROUPS]
        self._until = self._clock.monotonic() + WATCHED_S
        self._is_watched.set()

    async def run(self, on_sample: OnSample) -> None:
        while True:
            await self._is_watched.wait()
            began = self._clock.monotonic()
            if began >= self._until:
                self._is_watched.clear()
                continue
            for group in self._groups:
                await self._sample(group, on_sample)
            await asyncio.sleep(max(SAMPLE_EVERY_S, (self._clock.monotonic() - began) * self._rest_factor))

    async def _sample(self, group: str, on_sample: OnSample) -> None:
        sampled_at = self._clock.monotonic()
        try:
            lag = await self._admin.offsets.lag(group)
        except PocketMQError:  # the collector reports it
            return
        on_sample({group: lag}, sampled_at)
