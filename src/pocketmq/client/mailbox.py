"""From threads to a loop: whatever many threads put in is taken out in one go, so the loop is woken once and not each time."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Mailbox(Generic[T]):
    """Any thread puts; `take` is called on the loop, once for each thing, in the order of the putting."""

    def __init__(self, loop: asyncio.AbstractEventLoop, take: Callable[[T], None]) -> None:
        self._loop = loop
        self._take = take
        self._waiting: deque[T] = deque()
        self._is_called = False

    def put(self, thing: T) -> None:
        self._waiting.append(thing)
        if not self._is_called:
            # Two threads may both find it false; then the loop comes twice, and finds nothing the second time.
            self._is_called = True
            self._loop.call_soon_threadsafe(self._empty)

    def _empty(self) -> None:
        self._is_called = False  # first, so that whoever puts from now on calls again
        try:
            while self._waiting:
                self._take(self._waiting.popleft())
        finally:
            if self._waiting:  # one could not be taken, which is no fault of the others
                self._loop.call_soon(self._empty)
