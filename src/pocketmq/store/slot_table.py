"""The slot table of one index file: for each slot, the number of its newest entry. Kept in memory where it is used.

file     big-endian, 4 bytes a slot, behind the header
memory   pages of 1024 slots, each an array of the machine's own numbers; a page is read when it is first needed,
         and written back whole when it changed
"""

from array import array
from sys import byteorder
from typing import Final

from pocketmq.files import File
from pocketmq.store.index_file import HEADER_BYTES, SLOT_BYTES

PAGE_SHIFT: Final = 10
PAGE_SLOTS: Final = 1 << PAGE_SHIFT
PAGE_MASK: Final = PAGE_SLOTS - 1
_PAGE_BYTES: Final = PAGE_SLOTS * SLOT_BYTES

Piece = tuple[int, bytes]
"""Bytes, and where in the file they belong."""


class SlotTable:
    """Slot s is `pages[s >> PAGE_SHIFT][s & PAGE_MASK]`, once that page is there; whoever writes to it marks the page dirty."""

    __slots__ = ("_file", "_slots", "dirty", "pages")

    def __init__(self, file: File, slots: int) -> None:
        self._file = file
        self._slots = slots
        self.pages: list[array[int] | None] = [None] * (-(-slots // PAGE_SLOTS))
        self.dirty = bytearray(len(self.pages))

    def read_page(self, page: int) -> "array[int]":
        """Read a page that is not there yet."""
        first = page << PAGE_SHIFT
        size = min(PAGE_SLOTS, self._slots - first) * SLOT_BYTES
        numbers = array("i", self._file.read_at(HEADER_BYTES + first * SLOT_BYTES, size))
        if byteorder == "little":
            numbers.byteswap()
        self.pages[page] = numbers
        return numbers

    def __getitem__(self, slot: int) -> int:
        page = slot >> PAGE_SHIFT
        return (self.pages[page] or self.read_page(page))[slot & PAGE_MASK]

    def __setitem__(self, slot: int, number: int) -> None:
        page = slot >> PAGE_SHIFT
        (self.pages[page] or self.read_page(page))[slot & PAGE_MASK] = number
        self.dirty[page] = 1

    def slots_outside(self, end: int) -> list[int]:
        """The slots whose number is negative, or `end` or more. Reads all of the file's table that was ever written."""
        found = []
        table_end = HEADER_BYTES + self._slots * SLOT_BYTES
        at = self._file.next_data(HEADER_BYTES)
        while at is not None and at < table_end:
            page = (at - HEADER_BYTES) // _PAGE_BYTES
            numbers = self.pages[page] or self.read_page(page)
            if max(numbers) >= end or min(numbers) < 0:
                first = page << PAGE_SHIFT
                found += [first + slot for slot, number in enumerate(numbers) if not 0 <= number < end]
            at = self._file.next_data(HEADER_BYTES + (page + 1) * _PAGE_BYTES)
        return found

    def take_dirty(self) -> list[Piece]:
        """A copy of the pages that changed since the last time, neighbours joined."""
        pieces = []
        dirty, self.dirty = self.dirty, bytearray(len(self.dirty))
        first = dirty.find(1)
        while first >= 0:
            behind = dirty.find(0, first)
            behind = len(dirty) if behind < 0 else behind
            pages = [_file_bytes(page) for page in self.pages[first:behind] if page is not None]
            pieces.append((HEADER_BYTES + first * _PAGE_BYTES, b"".join(pages)))
            first = dirty.find(1, behind)
        return pieces


def _file_bytes(page: "array[int]") -> bytes:
    if byteorder == "little":
        page = page[:]
        page.byteswap()
    return page.tobytes()
