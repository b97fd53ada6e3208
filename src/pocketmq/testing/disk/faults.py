"""Rules for calls that fail or stall: from the n-th matching call, for a number of calls or until healed.

matching calls     1   2   3   4   5   6
nth=3, times=2     ·   ·   x   x   ·   ·
nth=2, times=None  ·   x   x   x   x   x   … until `heal` or `release`

A pattern is matched against the whole path, and `*` crosses slashes: `*.tmp`, `/store/commitlog/*`.
"""

import threading
from fnmatch import fnmatchcase
from typing import Literal, Self, get_args

from pocketmq.errors import Stuck, UsageError

Call = Literal[
    "open",
    "create",
    "read",
    "write",
    "truncate",
    "allocate",
    "sync",
    "make_dir",
    "remove_dir",
    "replace",
    "unlink",
    "open_dir",
    "sync_dir",
]
"""Calls that can fail or stall. `open` is every opening of a file, `create` that of a new file, `open_dir` that of a folder,
which `sync_dir` opens first."""

LONGEST_STALL_S = 60.0
"""Real time after which a stalled call raises `Stuck`: a test forgot to release it."""


class Rule:
    """Selects calls. The caller holds the lock of the disk."""

    def __init__(self, call: Call, pattern: str, nth: int, times: int | None) -> None:
        if call not in get_args(Call):
            raise UsageError(f"unknown call {call!r}; the calls are {', '.join(get_args(Call))}")
        if nth < 1 or (times is not None and times < 1):
            raise UsageError(f"nth={nth}, times={times}: both must be at least 1")
        self.call = call
        self.pattern = pattern
        self.hits = 0
        self._before = nth - 1
        self._left = times

    @property
    def over(self) -> bool:
        return self._left == 0

    def end(self) -> None:
        """Select no further calls."""
        self._left = 0

    def would_meet(self, call: str, paths: tuple[str, ...]) -> bool:
        """Whether the rule applies to this call, which is not counted."""
        return self._concerns(call, paths) and not self._before

    def _concerns(self, call: str, paths: tuple[str, ...]) -> bool:
        return call == self.call and not self.over and any(fnmatchcase(path, self.pattern) for path in paths)

    def meets(self, call: str, paths: tuple[str, ...]) -> bool:
        """Count a call; returns whether the rule applies to it."""
        if not self._concerns(call, paths):
            return False
        if self._before:
            self._before -= 1
            return False
        self.hits += 1
        if self._left is not None:
            self._left -= 1
        return True


class Fault(Rule):
    """Calls that raise `OSError(code)`. As a context manager, it is healed at the end of the block."""

    def __init__(self, call: Call, code: int, pattern: str, nth: int, times: int | None) -> None:
        super().__init__(call, pattern, nth, times)
        self.code = code

    def heal(self) -> None:
        self.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.heal()


class Stall(Rule):
    """Calls that block before they do anything. As a context manager, it is released at the end of the block."""

    def __init__(self, call: Call, pattern: str, nth: int, times: int | None, longest_s: float) -> None:
        super().__init__(call, pattern, nth, times)
        self.longest_s = longest_s
        self._changed = threading.Condition()
        self._waiting = 0
        self._released = False

    @property
    def waiting(self) -> int:
        """The number of blocked calls."""
        return self._waiting

    @property
    def released(self) -> bool:
        return self._released

    def block(self) -> None:
        """Called by the stalled call: wait until the test releases it."""
        with self._changed:
            if self._released:
                return
            self._waiting += 1
            self._changed.notify_all()
            if self._changed.wait_for(lambda: self._released, self.longest_s):
                return
            self._waiting -= 1
        raise Stuck(f"{self.call} on {self.pattern} was stalled and not released for {self.longest_s} s")

    def wait_until_reached(self, calls: int = 1, *, deadline_s: float = 5.0) -> None:
        """Called by the test: wait until `calls` calls are blocked."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._waiting >= calls, deadline_s):
                raise Stuck(
                    f"{self._waiting} of {calls} calls of {self.call} on {self.pattern} stalled within {deadline_s} s"
                )

    def release(self) -> None:
        """Release all blocked calls, and block no further ones."""
        with self._changed:
            self.end()
            self._released = True
            self._waiting = 0  # at once: a virtual loop must wait for these threads from now on
            self._changed.notify_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()
