"""How groups without members move on: that is how a Spark query looks from outside, which publishes its progress batch by batch.

    offset ─┐          ┌────────  a batch: the offsets move at once,
            │      ┌───┘          then stand until the next one is done
            └──────┘

Rate and batch time are what was seen, as exactly as the collector looks.
"""

from collections import deque
from collections.abc import Mapping
from typing import Final

import msgspec

from pocketmq.client.administration.lag import GroupLag

KEPT_MOVES: Final = 20
FORGOTTEN_S: Final = 3_600.0
"""A group that stood still so long is no running pipeline any more."""


class Stride(msgspec.Struct, frozen=True, kw_only=True):
    """How a group has moved of late."""

    moves: int
    """How often it was seen to move, of the last ones that are kept."""
    last_move_ms: int
    per_s: float | None
    """Messages a second over those moves; None before the second."""
    batch_s: float | None
    """Seconds between two of them on average."""


class _Track:
    """One group: where it stood whenever it had moved."""

    def __init__(self, place: int) -> None:
        self.place = place
        self.moves: deque[tuple[float, int]] = deque(maxlen=KEPT_MOVES)
        self.last_move_ms = 0


class Strides:
    """Notes where groups stand, time after time."""

    def __init__(self) -> None:
        self._tracks: dict[str, _Track] = {}

    def note(self, lags: Mapping[str, GroupLag], now: float, now_ms: int) -> None:
        for group, lag in lags.items():
            place = sum(queue.committed or 0 for queue in lag.queues)
            track = self._tracks.setdefault(group, _Track(place))
            if place != track.place:
                track.place, track.last_move_ms = place, now_ms
                track.moves.append((now, place))
        for group in [group for group in self._tracks if group not in lags]:
            del self._tracks[group]
        for track in self._tracks.values():
            if track.moves and track.moves[-1][0] < now - FORGOTTEN_S:
                track.moves.clear()

    def all(self) -> dict[str, Stride]:
        """Of groups that were seen to move."""
        return {group: _stride(track) for group, track in self._tracks.items() if track.moves}


def _stride(track: _Track) -> Stride:
    first, last = track.moves[0], track.moves[-1]
    took_s = last[0] - first[0]
    many = len(track.moves)
    return Stride(
        moves=many,
        last_move_ms=track.last_move_ms,
        per_s=max(0, last[1] - first[1]) / took_s if took_s else None,
        batch_s=took_s / (many - 1) if many > 1 else None,
    )
