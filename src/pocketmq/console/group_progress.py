"""How groups without members move on: that is how a Spark query looks from outside, which publishes its progress batch by batch.

    offset ─┐          ┌────────  a batch: the offsets move at once,
            │      ┌───┘          then stand until the next one is done
            └──────┘
    looks     ·  ·  ·  ·  ·  ·    where it was seen to stand between two moves, the time between them is that of a batch;
                                  where it moved with every look, a batch takes that long at most

Rate and batch time are what was seen, as exactly as somebody looked.

How fast pipelines go, seen closely: while somebody looks at their page, groups that move without members are looked at twice a second.

The collector looks at all groups every five seconds, in which a query may do many batches. Few groups are asked one by one here, and
more seldom where it takes long.
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
from pocketmq.model.names import group_of

KEPT_MOVES: Final = 20
TIMED_MOVES: Final = 10
"""The last ones, of which the time between batches is told: it follows soon when somebody begins to look more closely."""
FORGOTTEN_S: Final = 24 * 3_600.0
"""A group that stood still so long is not shown any more."""
PATIENCE_S: Final = 30.0
PATIENCE_BATCHES: Final = 5
"""A group that is behind, and has not moved for both of these, has stopped."""


class Activity(StrEnum):
    """What a group does, by how it moved."""

    RUNNING = "running"
    WAITING = "waits for messages"
    STOPPED = "stopped"


class GroupProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How a group has moved of late."""

    moves: int
    """How often it was seen to move, of the last ones that are kept."""
    last_move_ms: int
    per_s: float
    """Messages a second over those moves."""
    batch_s: float
    """Seconds between two of them on average."""
    is_at_most: bool = False
    """Batches may be shorter than that: they came faster than anybody looked."""

    def activity(self, now_ms: int, behind: int | None) -> Activity:
        """Whether it runs. One that has read everything cannot be told from one that stopped: it waits."""
        if now_ms - self.last_move_ms < 1_000 * max(PATIENCE_S, PATIENCE_BATCHES * self.batch_s):
            return Activity.RUNNING
        return Activity.WAITING if behind == 0 else Activity.STOPPED


class _Move(NamedTuple):
    at: float
    place: int
    is_seen_closely: bool
    """It was seen to stand since the move before."""


class _Track:
    """One group: where it stood whenever it had moved."""

    def __init__(self, place: int) -> None:
        self.place = place
        self.moves: deque[_Move] = deque(maxlen=KEPT_MOVES)
        self.last_move_ms = 0
        self.looked_at = float("-inf")
        self.stood = False

    def look(self, place: int, asked_at: float, now_ms: int) -> None:
        if asked_at <= self.looked_at:
            return  # two looked at the same time, and this is the older picture
        self.looked_at = asked_at
        if place == self.place:
            self.stood = True
            return
        if place < self.place:  # somebody reset it: what was seen before is another story
            self.place, self.stood = place, False
            self.moves.clear()
            return
        self.moves.append(_Move(asked_at, place, self.stood))
        self.place, self.last_move_ms, self.stood = place, now_ms, False


class ProgressTracker:
    """Notes where groups stand, time after time."""

    def __init__(self) -> None:
        self._tracks: dict[str, _Track] = {}

    def note(self, lags: Mapping[str, GroupLag], asked_at: float, now_ms: int) -> None:
        """All groups, as they stood when they were asked."""
        self.note_some(lags, asked_at, now_ms)
        for group in [group for group in self._tracks if group not in lags]:
            del self._tracks[group]
        for track in self._tracks.values():
            if track.moves and track.moves[-1].at < asked_at - FORGOTTEN_S:
                track.moves.clear()

    def note_some(self, lags: Mapping[str, GroupLag], asked_at: float, now_ms: int) -> None:
        """Some of them, in between."""
        for group, lag in lags.items():
            if any(queue.problem for queue in lag.queues):
                continue  # what is not known now would look like a step back
            place = sum(queue.committed or 0 for queue in lag.queues if not group_of(queue.queue.topic))
            self._tracks.setdefault(group, _Track(place)).look(place, asked_at, now_ms)

    def all(self) -> dict[str, GroupProgress]:
        """Of groups that were seen to move on at least twice: once may be a reset."""
        return {group: _progress(track) for group, track in self._tracks.items() if len(track.moves) > 1}


def _progress(track: _Track) -> GroupProgress:
    first, last = track.moves[0], track.moves[-1]
    took_s = last.at - first.at
    batch_s, is_at_most = _between([*track.moves][-TIMED_MOVES:])
    return GroupProgress(
        moves=len(track.moves),
        last_move_ms=track.last_move_ms,
        per_s=(last.place - first.place) / took_s,
        batch_s=batch_s,
        is_at_most=is_at_most,
    )


def _between(moves: list[_Move]) -> tuple[float, bool]:
    """Seconds from a move to the next, of those that were seen closely if that is half of them; else of all, which is a bound."""
    gaps = [(move.at - before.at, move.is_seen_closely) for before, move in pairwise(moves)]
    close = [gap for gap, is_seen_closely in gaps if is_seen_closely]
    if len(close) * 2 >= len(gaps):
        return sum(close) / len(close), False
    return sum(gap for gap, _ in gaps) / len(gaps), True


PACED_GROUPS: Final = 10
"""The rest is seen as the collector sees all groups."""
PACE_S: Final = 0.5
WANTED_S: Final = 10.0
"""So long after somebody looked at the page."""

Tell = Callable[[Mapping[str, GroupLag], float], None]
"""How far groups are, and when they were asked."""


class ProgressSampler:
    """Looks as long as somebody wants it."""

    def __init__(self, admin: AsyncAdmin, clock: Clock, rest_factor: float) -> None:
        """What a look took, times `rest_factor`, is how long it rests at least."""
        self._admin = admin
        self._clock = clock
        self._rest_factor = rest_factor
        self._groups: tuple[str, ...] = ()
        self._until = 0.0
        self._wanted = asyncio.Event()

    def want(self, groups: Iterable[str]) -> None:
        """Somebody looks at these."""
        self._groups = tuple(groups)[:PACED_GROUPS]
        self._until = self._clock.monotonic() + WANTED_S
        self._wanted.set()

    async def run(self, tell: Tell) -> None:
        while True:
            await self._wanted.wait()
            began = self._clock.monotonic()
            if began >= self._until:
                self._wanted.clear()
                continue
            for group in self._groups:
                await self._look(group, tell)
            await asyncio.sleep(max(PACE_S, (self._clock.monotonic() - began) * self._rest_factor))

    async def _look(self, group: str, tell: Tell) -> None:
        asked = self._clock.monotonic()
        try:
            lag = await self._admin.offsets.lag(group)
        except PocketMQError:  # the collector asks, too, and says so
            return
        tell({group: lag}, asked)
