"""What others do with the same messages: a plain file, which is what the disk can do at best, and SQLite.

Both come with Python, so they are always there to compare with.
"""

import os
import sqlite3
from collections.abc import Iterable, Sequence
from itertools import count, cycle
from pathlib import Path

from bench.samples import BORN_HOST, STORE_HOST
from bench.store.messages import BORN_MS, TOPIC, Draft
from pocketmq.protocol.record import encode_record

FILE_BYTES = 1024 * 1024 * 1024
TAGS_CODE = 2598919


def records(messages: Iterable[Draft]) -> list[bytes]:
    """The bytes that our log holds of these messages."""
    return [
        encode_record(TOPIC.encode(), 0, 0, 0, body, properties, 0, 0, BORN_MS, BORN_HOST, BORN_MS, STORE_HOST)
        for body, properties in messages
    ]


class PlainFile:
    """Appends bytes to a file of a gigabyte, and starts at 0 again when it is full. It has no messages, queues or offsets."""

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT)
        os.ftruncate(self._handle, FILE_BYTES)
        self._end = 0

    def append(self, turns: Iterable[bytes]) -> None:
        for turn in turns:
            os.pwrite(self._handle, turn, self._end)
            self._end = (self._end + len(turn)) % (FILE_BYTES - len(turn))

    def append_safely(self, turn: bytes) -> None:
        self.append([turn])
        os.fdatasync(self._handle)

    def read(self, at: int, size: int) -> bytes:
        return os.pread(self._handle, size, at)

    def close(self) -> None:
        os.close(self._handle)


class SqliteQueues:
    """Messages in a table with an index on queue and offset, in write-ahead mode; one transaction per turn."""

    def __init__(self, path: Path, synchronous: str, queues: int) -> None:
        self._database = sqlite3.connect(path, isolation_level=None)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute(f"PRAGMA synchronous = {synchronous}")
        self._database.execute(
            "CREATE TABLE message (queue INTEGER, offset INTEGER, store_ms INTEGER, tags INTEGER, body BLOB, properties BLOB)"
        )
        self._database.execute("CREATE UNIQUE INDEX by_offset ON message (queue, offset)")
        self._offsets = [0] * queues
        self._queues = cycle(range(queues))
        self._clock = count(BORN_MS)

    def append(self, turns: Iterable[Sequence[Draft]]) -> None:
        offsets, execute = self._offsets, self._database.execute
        for turn in turns:
            rows = []
            store_ms = next(self._clock)
            for (body, properties), queue in zip(turn, self._queues, strict=False):
                rows.append((queue, offsets[queue], store_ms, TAGS_CODE, body, properties))
                offsets[queue] += 1
            execute("BEGIN")
            self._database.executemany("INSERT INTO message VALUES (?, ?, ?, ?, ?, ?)", rows)
            execute("COMMIT")

    def read(self, queue: int, offset: int, size: int) -> list[tuple[int, bytes, bytes]]:
        """`size` messages from `offset` on."""
        found = self._database.execute(
            "SELECT offset, body, properties FROM message WHERE queue = ? AND offset >= ? ORDER BY offset LIMIT ?",
            (queue, offset, size),
        )
        return found.fetchall()

    def index_times(self) -> None:
        self._database.execute("CREATE INDEX by_time ON message (queue, store_ms, offset)")

    def offset_at_time(self, queue: int, store_ms: int) -> int:
        found = self._database.execute(
            "SELECT offset FROM message WHERE queue = ? AND store_ms >= ? ORDER BY store_ms, offset LIMIT 1",
            (queue, store_ms),
        )
        offset: int = found.fetchone()[0]
        return offset

    def close(self) -> None:
        self._database.close()


class SqliteKeys:
    """Keys of messages, and where those are. Two rows per message, as our index has two entries."""

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path, isolation_level=None)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = NORMAL")
        self._database.execute("CREATE TABLE entry (key TEXT, position INTEGER)")
        self._database.execute("CREATE INDEX by_key ON entry (key)")

    def add(self, entries: Iterable[tuple[str, int]]) -> None:
        self._database.execute("BEGIN")
        self._database.executemany("INSERT INTO entry VALUES (?, ?)", entries)
        self._database.execute("COMMIT")

    def find(self, key: str) -> list[int]:
        return [
            place for (place,) in self._database.execute("SELECT position FROM entry WHERE key = ? LIMIT 32", (key,))
        ]

    def close(self) -> None:
        self._database.close()
