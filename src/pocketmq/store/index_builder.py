"""Reads the log behind its writers and enters every message into the key index, a slice at a time.

    log:  start ─────────── indexed_to ─────────────── written
                            └─ work ──► ├── backlog ──┤

A send does not wait for its keys: entering them costs more than storing the message. The owner calls `work` when it has
nothing better to do, and more often when the backlog grows. After a restart the work goes on where the index ends.
"""

import logging
from collections.abc import Callable
from typing import Final

from pocketmq.protocol.record import MAGIC_BLANK
from pocketmq.store.key_index import KeyIndex
from pocketmq.store.record_keys import RecordKeys

log = logging.getLogger(__name__)

CHUNK_BYTES: Final = 64 * 1024
"""What is read at a time: more than one call takes in of small messages, since what lies behind that is read again."""


class IndexBuilder:
    """Feeds a `KeyIndex` from a log.

    `read(offset, size)` gives bytes of the log, at most `size` of them and none beyond the file that holds `offset`.
    """

    def __init__(self, index: KeyIndex, read: Callable[[int, int], bytes | memoryview], log_file_bytes: int) -> None:
        self._index = index
        self._keys = RecordKeys(index)
        self._read = read
        self._file_bytes = log_file_bytes
        self.indexed_to = max(0, index.indexed_to)
        """Every message before this log offset is in the index."""
        self.skipped_bytes = 0
        """Bytes of the log that held no sound record, so that no keys could be read from them."""

    def backlog_bytes(self, written: int) -> int:
        """How far the index is behind a log that is written up to `written`."""
        return max(0, written - self.indexed_to)

    def work(self, start: int, written: int, budget: int) -> bool:
        """Enter up to `budget` messages of a log that has bytes from `start` to `written`; whether there are more.

        An OSError, of a full disk for instance, leaves the work where it was.
        """
        self.indexed_to = max(self.indexed_to, start)
        while budget > 0 and self.indexed_to < written:
            at = self.indexed_to
            end = min((at // self._file_bytes + 1) * self._file_bytes, written)
            budget -= self._index_records(self._read(at, min(CHUNK_BYTES, end - at)), budget)
            if self.indexed_to == at:
                budget -= self._index_or_skip(end)
        return self.indexed_to < written

    def _index_records(self, chunk: bytes | memoryview, budget: int) -> int:
        """Enter the messages whose records lie whole in `chunk`, which begins at `indexed_to`; how many there were."""
        keys, done, passed_bytes = self._keys.read(chunk, self.indexed_to, budget)
        self._index.put(keys)
        self.indexed_to += passed_bytes
        return done

    def _index_or_skip(self, end: int) -> int:
        """Get over what is not a record of usual size: a large one, filler, or damage. How many messages were entered."""
        at = self.indexed_to
        head = bytes(self._read(at, min(8, end - at)))
        size, magic = int.from_bytes(head[:4], "big"), int.from_bytes(head[4:], "big")
        if CHUNK_BYTES < size <= end - at and self._index_records(self._read(at, size), 1):
            return 1
        self.indexed_to = end
        if magic != MAGIC_BLANK:
            self.skipped_bytes += end - at
            log.error("the log holds no sound record at %d: keys of messages from there to %d are not indexed", at, end)
        return 0
