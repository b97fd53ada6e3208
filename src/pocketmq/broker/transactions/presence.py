"""Since when half messages are there, by the clock that cannot be set.

    half topic    … stored by now │ stored later than now … │ end         the wall clock was set back
                                  └ mark, 40 s ago ┘
                                  └ mark, 10 s ago ──────────┘

The store's time never goes back. So after the wall clock was set back, half messages seem to be younger than those that are still
to come, and nobody would be asked about them until the clock is where it was. Their age is counted from the first mark behind
them: that is never too much, and too little by less than one run of checks.
"""

from typing import Final

MAX_MARKS: Final = 64
"""When there are more, every other one goes: what is not covered any more is taken to be younger than it is."""


class Presence:
    """Marks of where the half topic ended. Told the monotonic time. Pure."""

    def __init__(self) -> None:
        self._marks: list[tuple[int, float]] = []

    def note(self, end: int, monotonic: float) -> None:
        """The half messages before `end` are there."""
        if not self._marks or end > self._marks[-1][0]:
            self._marks.append((end, monotonic))
        if len(self._marks) > MAX_MARKS:
            del self._marks[::2]

    def clear(self) -> None:
        """The wall clock is right again: ages can be told without marks."""
        self._marks.clear()

    def age_ms(self, offset: int, monotonic: float) -> int:
        """For how long the half message at `offset` is known to be there."""
        return next((round((monotonic - since) * 1000) for end, since in self._marks if offset < end), 0)

    def older_than(self, age_ms: int, monotonic: float) -> int:
        """Where those end that are known to be there for so long; 0 when there are none."""
        old = (end for end, since in self._marks if round((monotonic - since) * 1000) >= age_ms)
        return max(old, default=0)
