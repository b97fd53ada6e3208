"""Checks a broker's answers: every acknowledged message must have its own offset, and no offset may be unused.

Four numbers are kept for a queue of any length. If each offset from `lowest` to `highest` was returned once, their count and
their sum are known; an offset that is returned twice or skipped changes one of them.
"""

import struct

from bench.broker.shots import NotMeasured

_RECORD = struct.Struct(">II12xq")
_RECORD_MAGICS = (0xDAA320A7, 0xDAA320AB)
_LEAST_RECORD = 88


class Ledger:
    """The offsets that one queue assigned to the messages of one producer."""

    __slots__ = ("count", "highest", "lowest", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0
        self.lowest = -1
        self.highest = -1

    def add(self, first: int, count: int = 1) -> None:
        """Add `count` consecutive messages, the first at offset `first`."""
        self.count += count
        self.total += first * count + count * (count - 1) // 2
        if self.lowest < 0 or first < self.lowest:
            self.lowest = first
        if first + count - 1 > self.highest:
            self.highest = first + count - 1

    @property
    def is_true(self) -> bool:
        """Whether each offset from the lowest to the highest was returned exactly once. There must be no other producer."""
        if self.count == 0:
            return True
        expected = self.highest - self.lowest + 1
        return self.count == expected and self.total * 2 == (self.lowest + self.highest) * expected


def count_records(body: bytes, offset: int) -> int:
    """The number of stored messages in the answer to a pull at `offset`. NotMeasured if they are not the expected ones."""
    at = records = 0
    while at + _LEAST_RECORD <= len(body):
        size, magic, found = _RECORD.unpack_from(body, at)
        if magic not in _RECORD_MAGICS or size < _LEAST_RECORD or at + size > len(body):
            raise NotMeasured(f"byte {at} of an answer to a pull is not the start of a stored message")
        if found != offset + records:
            raise NotMeasured(f"the broker was asked for offset {offset + records} and answered with {found}")
        at += size
        records += 1
    return records
