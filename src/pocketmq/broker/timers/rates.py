"""How many a second, over the last ten seconds."""

from collections import deque
from typing import Final

WINDOW_S: Final = 10
STEP_S: Final = 1


class Rate:
    """Raise `count`, and let it `tick` now and then."""

    __slots__ = ("_marks", "count")

    def __init__(self) -> None:
        self.count = 0
        self._marks: deque[tuple[float, int]] = deque()

    def tick(self, monotonic: float) -> None:
        if not self._marks or monotonic - self._marks[-1][0] >= STEP_S:
            self._marks.append((monotonic, self.count))
        while len(self._marks) > 1 and monotonic - self._marks[1][0] >= WINDOW_S:
            self._marks.popleft()

    def per_second(self, monotonic: float) -> float:
        self.tick(monotonic)
        began, count = self._marks[0]
        return round((self.count - count) / (monotonic - began), 1) if monotonic > began else 0.0
