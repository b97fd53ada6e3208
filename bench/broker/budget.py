"""A run ends by itself: time, disk and second tries are limited, and what no longer fits is left out and named."""

import shutil
from collections.abc import Callable
from pathlib import Path
from time import monotonic

from bench.broker.shots import NotMeasured

GIB = 1024 * 1024 * 1024
CALM = 0.08
"""Up to this share of the machine others may have without the shot being taken again."""


class UsedUp(NotMeasured):
    """There is no time or no disk left for more."""


class Budget:
    """Sections have a time each; what one leaves, the next ones may use. `spare_s` is for shots that are taken a second time."""

    def __init__(
        self,
        spare_s: float,
        folder: Path,
        disk_bytes: int,
        clock: Callable[[], float] = monotonic,
        free_bytes: Callable[[Path], int] | None = None,
    ) -> None:
        self._clock = clock
        self._free_bytes = free_bytes or _free_bytes
        self._folder = folder
        self._disk_bytes = disk_bytes
        self._free_at_start = self._free_bytes(folder)
        self._spare_s = spare_s
        self._started = clock()
        self._until_s = 0.0

    @property
    def passed_s(self) -> float:
        return self._clock() - self._started

    @property
    def used_bytes(self) -> int:
        """Of the disk, since the start; what others write there counts too."""
        return max(0, self._free_at_start - self._free_bytes(self._folder))

    def grant(self, seconds: float) -> None:
        """A section begins."""
        self._until_s += seconds

    def check(self, needed_s: float = 0.0) -> None:
        """UsedUp when something that takes `needed_s` seconds must not begin."""
        if self.passed_s + needed_s > self._until_s:
            raise UsedUp(f"{self.passed_s:.0f} s have passed, and there is no time for more")
        if self.used_bytes > self._disk_bytes:
            raise UsedUp(f"the {self._disk_bytes / GIB:.0f} GiB of disk for this run are used up")

    def may_repeat(self, disturbed: float, needed_s: float) -> bool:
        """Whether a shot that others disturbed so much is taken again; the time for it is then taken from the spare."""
        if disturbed <= CALM or needed_s > self._spare_s:
            return False
        self._spare_s -= needed_s
        return True


def _free_bytes(folder: Path) -> int:
    return shutil.disk_usage(folder).free
