"""Every operation in order, so that one can go back to any moment of a run.

    start ── op ── op ── op ── … ── now
      └ a copy of the disk as it was at `first`; the operations applied to it give every later moment

When more than `limit` operations are kept, the older half is applied to `start` and forgotten.
"""

from collections.abc import Iterator

from pocketmq.errors import UsageError
from pocketmq.testing.disk.model import Disk, Operation


class Journal:
    def __init__(self, start: Disk, limit: int) -> None:
        if limit < 1:
            raise UsageError(f"a journal of {limit} operations is impossible; give at least 1")
        self.first = 0
        self.operations: list[Operation] = []
        self._start = start
        self._limit = limit

    @property
    def position(self) -> int:
        """How many operations there were since the beginning."""
        return self.first + len(self.operations)

    def record(self, operation: Operation) -> None:
        self.operations.append(operation)
        if len(self.operations) > self._limit:
            self._forget(len(self.operations) // 2)

    def _forget(self, count: int) -> None:
        count = max(count, 1)
        for operation in self.operations[:count]:
            self._start.apply(operation)
        del self.operations[:count]
        self.first += count

    def state_at(self, position: int) -> Disk:
        """The disk after the first `position` operations."""
        if not self.first <= position <= self.position:
            raise UsageError(
                f"no state at {position}: the journal holds {self.first} to {self.position}; "
                f"a larger journal_max keeps more"
            )
        disk = self._start.copy()
        for operation in self.operations[: position - self.first]:
            disk.apply(operation)
        return disk

    def replay(self) -> Iterator[tuple[int, Operation | None, Disk]]:
        """Each position with the operation that led to it and the disk there, which moves on with the next step."""
        return _steps(self._start.copy(), self.first, tuple(self.operations))


def _steps(disk: Disk, first: int, operations: tuple[Operation, ...]) -> Iterator[tuple[int, Operation | None, Disk]]:
    yield first, None, disk
    for position, operation in enumerate(operations, first + 1):
        disk.apply(operation)
        yield position, operation, disk
