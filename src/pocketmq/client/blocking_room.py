"""Room for messages that threads hand over without waiting for their result; who finds none waits. See `room`."""

import threading


class BlockingRoom:
    """The bounds of `room.Room` for threads. A message that is larger than all of it goes when it would be alone."""

    def __init__(self, max_count: int, max_bytes: int) -> None:
        self._changed = threading.Condition()  # guards the two below
        self._count = 0
        self._bytes = 0
        self._max_count = max_count
        self._max_bytes = max_bytes

    @property
    def is_empty(self) -> bool:
        """Whether nothing is on its way."""
        return not self._count

    def take(self, size: int) -> None:
        """Wait until there is room for a message of this size."""
        with self._changed:
            while not self._fits(size):
                self._changed.wait()
            self._count += 1
            self._bytes += size

    def give(self, size: int) -> None:
        with self._changed:
            self._count -= 1
            self._bytes -= size
            self._changed.notify_all()

    def _fits(self, size: int) -> bool:
        return not self._count or (self._count < self._max_count and self._bytes + size <= self._max_bytes)
