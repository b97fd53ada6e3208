"""From threads to a loop: whatever many threads put in is taken out in one go, so the loop is woken once and not each time.

    threads ── put ──► │ │ │ │ ── woken at once ──► loop: take, take, take, take
    another loop ── put ──► │ │ │ ── woken when that loop has done what is ready ──► loop: take, take, take

To wake a thread that then waits for the interpreter, which the one that woke it still has, costs both. So a loop that puts goes on first.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Mailbox(Generic[T]):
    """Any thread puts, or only that of `source`; `take` is called on the loop, once for each thing, in the order of the putting."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        take: Callable[[T], None],
        *,
        source: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._loop = loop
        self._take = take
        self._source = source
        self._waiting: deque[T] = deque()
        self._is_called = False

    def put(self, thing: T) -> None:
        """RuntimeError when the loop is closed."""
        self._waiting.append(thing)
        if not self._is_called:
            # Two threads may both find it false; then the loop comes twice, and finds nothing the second time.
            self._is_called = True
            try:
                self._call()
            except RuntimeError:
                self._is_called = False  # the next who puts is told as well
                raise

    def __len__(self) -> int:
        """Things that wait."""
        return len(self._waiting)

    def left(self) -> list[T]:
        """What was put in and nobody took, once the loop is closed; it is taken out. Nothing before that."""
        found: list[T] = []
        if self._loop.is_closed():
            self._is_called = False  # first, so that whoever puts from now on is told
            while self._waiting:
                found.append(self._waiting.popleft())
        return found

    def _call(self) -> None:
        if self._source is None:
            self._loop.call_soon_threadsafe(self._empty)
        elif self._loop.is_closed():
            raise RuntimeError("the loop is closed")
        else:
            self._source.call_soon(self._wake)

    def _wake(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._empty)
        except RuntimeError:
            self._is_called = False  # closed meanwhile: the next who puts is told

    def _empty(self) -> None:
        self._is_called = False  # first, so that whoever puts from now on calls again
        try:
            while self._waiting:
                self._take(self._waiting.popleft())
        finally:
            if self._waiting:  # one could not be taken, which is no fault of the others
                self._loop.call_soon(self._empty)
