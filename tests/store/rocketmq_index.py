"""The key index as a RocketMQ broker continues it after a crash, by the observed rules of the Java code.

    newer than the checkpoint    the file is thrown away
    slot behind the count        counts as empty, for look-ups and for what is entered next
    message before the end       is taken for entered; every other that is found in the log enters

It repairs nothing else. The rules work on plain bytes; nothing here asks the code under test.
"""

import struct
from collections.abc import Iterator
from pathlib import Path

from pocketmq.store.index.index_file import IndexShape, KeyEntry
from pocketmq.testing import FaultyFiles

_HEADER = struct.Struct(">qqqqii")
_ENTRY = struct.Struct(">iqii")


class RocketMQIndex:
    """All files of a folder, in memory."""

    def __init__(self, files: FaultyFiles, folder: Path, shape: IndexShape, checkpoint_ms: int) -> None:
        self._shape = shape
        read = (bytearray(files.read(folder / name)) for name in files.list(folder))
        whole = (_JavaFile(data.ljust(shape.file_bytes, b"\0"), shape) for data in read)
        self._files = [file for file in whole if file.end_ms <= checkpoint_ms]

    @property
    def end_offset(self) -> int:
        """The end of the newest file that has any keys; -1 if there is none."""
        return max((file.end_offset for file in self._files if file.count > 1), default=-1)

    def enter(self, keys: list[KeyEntry]) -> None:
        """The keys of one message that was found in the log."""
        for key_hash, log_offset, store_ms in keys:
            if not self._files or self._files[-1].is_full:
                self._files.append(_JavaFile(bytearray(self._shape.file_bytes), self._shape))
            if log_offset >= self._files[-1].end_offset:
                self._files[-1].put(key_hash, log_offset, store_ms)

    def find(self, key_hash: int) -> set[int]:
        return {log_offset for file in self._files for log_offset in file.find(key_hash)}


class _JavaFile:
    def __init__(self, data: bytearray, shape: IndexShape) -> None:
        self._data = data
        self._shape = shape
        self._begin_ms, self.end_ms, self._begin_offset, self.end_offset, _, count = _HEADER.unpack_from(data)
        self.count: int = max(1, count)

    @property
    def is_full(self) -> bool:
        return self.count >= self._shape.entries

    def put(self, key_hash: int, log_offset: int, store_ms: int) -> None:
        slot_at = 40 + key_hash % self._shape.slots * 4
        previous = self._number_at(slot_at)
        previous = previous if 0 < previous <= self.count else 0
        if self.count <= 1:
            self._begin_ms, self._begin_offset = store_ms, log_offset
        entry_at = self._shape.entries_at + self.count * 20
        _ENTRY.pack_into(self._data, entry_at, key_hash, log_offset, (store_ms - self._begin_ms) // 1000, previous)
        self._data[slot_at : slot_at + 4] = self.count.to_bytes(4, "big")
        self.count += 1
        self.end_ms, self.end_offset = store_ms, log_offset

    def find(self, key_hash: int) -> Iterator[int]:
        number = self._number_at(40 + key_hash % self._shape.slots * 4)
        while 0 < number <= self.count and self.count > 1:
            found, log_offset, _, previous = _ENTRY.unpack_from(self._data, self._shape.entries_at + number * 20)
            if found == key_hash:
                yield log_offset
            if previous == number:
                return
            number = previous

    def _number_at(self, at: int) -> int:
        return int.from_bytes(self._data[at : at + 4], "big", signed=True)
