"""What the tests of a consume queue have in common: one with its disk."""

from pathlib import Path

from tests.store.queue_kit import FILE_ENTRIES, entries_of

from pocketmq.store.log.segments import OpenFiles
from pocketmq.store.queues.consume_queue import ConsumeQueue, Entry
from pocketmq.testing import FaultyFiles

FOLDER = Path("/store/consumequeue/T/0")


class Fixture:
    """A queue with its disk."""

    def __init__(self) -> None:
        self.disk = FaultyFiles()
        self.open_files = OpenFiles(self.disk, 2)
        self.queue = self.another()

    def another(self) -> ConsumeQueue:
        """The same queue as a later start finds it, before its bounds are known."""
        return ConsumeQueue("T", 0, FOLDER, self.open_files, FILE_ENTRIES)

    def reopened(self, low: int, high: int) -> ConsumeQueue:
        queue = self.another()
        queue.min_offset, queue.max_offset, queue.next_offset = low, high, high
        return queue

    def file(self, number: int) -> list[Entry]:
        return entries_of(self.disk, self.queue, number)

    def files(self) -> list[str]:
        return self.disk.list(FOLDER)
