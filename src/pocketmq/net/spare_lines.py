"""Lines that no thread uses at the moment, kept for the next one.

take ──► the one used last, if it is still alive, or a new one ──► give ──► kept, unless it was closed
            └─ `most` are open to this address: None      └─ all that died meanwhile, to any address, are closed first
"""

import threading
from collections.abc import Callable
from math import inf
from typing import Generic, TypeVar

from pocketmq.net.address import Address
from pocketmq.net.blocking_line import BlockingLine

Line = TypeVar("Line", bound=BlockingLine)


class SpareLines(Generic[Line]):
    """All of it may be called from any thread. `connect` is told how many seconds it has."""

    def __init__(self, connect: Callable[[Address, float], Line], *, most: int) -> None:
        self._connect = connect
        self._most = most
        self._idle: dict[Address, list[Line]] = {}
        self._open: dict[Address, int] = {}
        self._lock = threading.Lock()  # guards all of the others; nothing is sent or waited for under it
        self._is_closed = False
        self.taken = 0
        """Lines in use now."""

    def take(self, address: Address, within_s: float = inf) -> Line | None:
        """A line that nobody else uses; None when there are too many, or after `close`. ConnectFailed when none can be made."""
        with self._lock:
            idle = self._idle.get(address, ())
            while idle:
                line = idle.pop()
                if line.is_usable():
                    self.taken += 1
                    return line
                line.close()
                self._open[address] -= 1
            count = self._open.get(address, 0)
            if self._is_closed or count >= self._most:
                return None
            self._close_dead()
            self._open[address] = count + 1
            self.taken += 1
        try:
            return self._connect(address, within_s)
        except BaseException:
            self._gone(address)
            raise

    def give(self, line: Line) -> None:
        """Take back a line on which nothing is awaited any more, or one that is closed."""
        if line.is_open:
            with self._lock:
                if not self._is_closed:
                    self._idle.setdefault(line.address, []).append(line)
                    self.taken -= 1
                    return
            line.close()
        self._gone(line.address)

    def close(self) -> None:
        """Close those that nobody uses; the others follow when they are given back. Harmless when done twice."""
        with self._lock:
            self._is_closed = True
            idle = [line for lines in self._idle.values() for line in lines]
            self._idle.clear()
        for line in idle:
            line.close()

    def open_lines(self) -> dict[Address, int]:
        """How many there are to each address, in use or not; those that `close` ended are still counted."""
        with self._lock:
            return {address: count for address, count in self._open.items() if count}

    def begin_anew(self) -> None:
        """In the child of a fork: a thread that the child does not have may have held the lock."""
        self._lock = threading.Lock()

    def _close_dead(self) -> None:
        """Of addresses that nobody asks for any more, nobody else would ever notice."""
        for address, lines in self._idle.items():
            dead = [line for line in lines if not line.is_usable()]
            for line in dead:
                line.close()
                lines.remove(line)
            self._open[address] -= len(dead)

    def _gone(self, address: Address) -> None:
        with self._lock:
            self._open[address] -= 1
            self.taken -= 1
