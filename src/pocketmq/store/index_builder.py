"""Reads the log behind its writers and enters every message into the key index, a slice at a time.

    log:  start ─────────── indexed_to ─────────────── written
                            └─ work ──► ├── backlog ──┤

A send does not wait for its keys: entering them costs more than storing the message. The owner calls `work` when it has
nothing better to do, and more often when the backlog grows. After a restart the work goes on where the index ends.
"""

import logging
import struct
from collections.abc import Callable
from typing import Final

from pocketmq.model.flags import SysFlag
from pocketmq.protocol.record import MAGIC_BLANK, MAGIC_V1, MAGIC_V2
from pocketmq.store.index_file import PlacedKey
from pocketmq.store.key_index import KeyIndex

log = logging.getLogger(__name__)

CHUNK_BYTES: Final = 256 * 1024

_HOSTS_V6: Final = SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6
_unpack_head = struct.Struct(">II28xi16xq20xi").unpack_from
"""size, magic, sysFlag, store ms and body length of a record with IPv4 hosts."""


class IndexBuilder:
    """Feeds a `KeyIndex` from a log.

    `read(offset, size)` gives bytes of the log, at most `size` of them and none beyond the file that holds `offset`.
    """

    def __init__(self, index: KeyIndex, read: Callable[[int, int], bytes | memoryview], log_file_bytes: int) -> None:
        self._index = index
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
            budget -= self._index_records(bytes(self._read(at, min(CHUNK_BYTES, end - at))), budget)
            if self.indexed_to == at:
                budget -= self._index_or_skip(end)
        return self.indexed_to < written

    def _index_records(self, chunk: bytes, budget: int) -> int:
        """Enter the messages whose records lie whole in `chunk`, which begins at `indexed_to`; how many there were."""
        keys_of = self._index.keys_of
        keys: list[PlacedKey] = []
        base, at, done = self.indexed_to, 0, 0
        while done < budget and (parts := _parts_of(chunk, at)) is not None:
            size, sys_flag, store_ms, topic, properties = parts
            keys += keys_of(topic, properties, sys_flag, base + at, store_ms)
            at += size
            done += 1
        self._index.put(keys)
        self.indexed_to = base + at
        return done

    def _index_or_skip(self, end: int) -> int:
        """Get over what is not a record of usual size: a large one, filler, or damage. How many messages were entered."""
        at = self.indexed_to
        head = bytes(self._read(at, min(8, end - at)))
        size, magic = int.from_bytes(head[:4], "big"), int.from_bytes(head[4:], "big")
        if CHUNK_BYTES < size <= end - at and self._index_records(bytes(self._read(at, size)), 1):
            return 1
        self.indexed_to = end
        if magic != MAGIC_BLANK:
            self.skipped_bytes += end - at
            log.error("the log holds no sound record at %d: keys of messages from there to %d are not indexed", at, end)
        return 0


Parts = tuple[int, int, int, bytes, bytes]
"""Of a record: size, sysFlag, store ms, topic, properties."""


def _parts_of(data: bytes, at: int) -> Parts | None:
    """What the index needs of the record at `at`; None when there is none, or not all of it. The body is not looked at."""
    try:
        size, magic, sys_flag, store_ms, body_bytes = _unpack_head(data, at)
        body_at = at + 88
        if sys_flag & _HOSTS_V6:
            body_at, store_ms, body_bytes = _behind_long_hosts(data, at, sys_flag)
        body_end = body_at + body_bytes
        if magic == MAGIC_V1:
            topic_at, topic_bytes = body_end + 1, data[body_end]
        elif magic == MAGIC_V2:
            topic_at, topic_bytes = body_end + 2, data[body_end] << 8 | data[body_end + 1]
        else:
            return None
        topic_end = topic_at + topic_bytes
        end = topic_end + 2 + (data[topic_end] << 8 | data[topic_end + 1])
        if body_bytes < 0 or end != at + size or end > len(data):
            return None
        return size, sys_flag, store_ms, data[topic_at:topic_end], data[topic_end + 2 : end]
    except (struct.error, IndexError):
        return None


def _behind_long_hosts(data: bytes, at: int, sys_flag: int) -> tuple[int, int, int]:
    """Where the body begins, store ms and body length of a record with IPv6 hosts: each moves what follows by 12 bytes."""
    born = 12 if sys_flag & SysFlag.BORN_HOST_V6 else 0
    body_at = at + 88 + born + (12 if sys_flag & SysFlag.STORE_HOST_V6 else 0)
    (store_ms,) = struct.unpack_from(">q", data, at + 56 + born)
    (body_bytes,) = struct.unpack_from(">i", data, body_at - 4)
    return body_at, store_ms, body_bytes
