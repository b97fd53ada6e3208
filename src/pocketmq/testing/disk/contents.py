"""The bytes of one file: as programs see them, and as they may be after a power loss.

    image ──────────────► + log of changes since ────────► the live contents
    safe pages              each: pending │ doubtful │ safe   (a flat buffer, built at the first read)

A successful sync moves the changes before its start into the image. A failed sync makes them doubtful: as on Linux, no later
sync writes those bytes again, although it succeeds. Sizes are written again, so they become safe. Images are never modified, so
that crash states can share them. Pages that were never written are absent.
"""

import mmap
from collections.abc import Iterable
from enum import IntEnum
from typing import Literal, NamedTuple

from pocketmq import system

PAGE = 4096
"""Unit of space and of sharing, in bytes."""
_LARGE = 1 << 20
"""Buffers from this size are anonymous maps, which use no memory for untouched pages."""


class Certainty(IntEnum):
    PENDING = 0
    DOUBTFUL = 1
    SIZE_SAFE = 2
    """The data is still unsynced, but a later sync made the size safe."""
    SAFE = 3


class Change(NamedTuple):
    """One change of a file: `data` at `offset`, and the size it leads to.

    A write or allocation makes the file at least `size` bytes long, a truncation exactly that.
    """

    kind: Literal["write", "truncate", "allocate"]
    size: int
    offset: int = 0
    data: bytes = b""
    certainty: Certainty = Certainty.PENDING


class Image(NamedTuple):
    """Immutable contents: the size, the written pages, and the end of the reserved space."""

    size: int = 0
    pages: dict[int, bytes] = {}  # noqa: RUF012 never modified
    reserved: int = 0

    def after(self, changes: Iterable[Change]) -> "Image":
        """This image with `changes` made in order."""
        size, reserved, overhang = self.size, self.reserved, False
        pages: dict[int, bytes | bytearray] = {**self.pages}
        for change in changes:
            if change.kind == "write":
                _patch(pages, change.offset, change.data)
                size = max(size, change.size)
                overhang |= change.offset + len(change.data) > size
            elif change.kind == "allocate":
                size, reserved = max(size, change.size), max(reserved, change.size)
            else:
                if change.size < size or overhang:
                    _cut(pages, change.size)
                size, reserved = change.size, min(reserved, change.size)
        if overhang:
            _cut(pages, size)
        return Image(size, {number: bytes(page) for number, page in pages.items()}, reserved)


def _patch(pages: dict[int, bytes | bytearray], offset: int, data: bytes) -> None:
    done = 0
    while done < len(data):
        number, start = divmod(offset + done, PAGE)
        piece = data[done : done + PAGE - start]
        page = pages.get(number, bytes(PAGE))
        if isinstance(page, bytes):
            page = pages[number] = bytearray(page)
        page[start : start + len(piece)] = piece
        done += len(piece)


def _cut(pages: dict[int, bytes | bytearray], size: int) -> None:
    last, kept = divmod(size, PAGE)
    for number in [number for number in pages if number > last or (number == last and not kept)]:
        del pages[number]
    if last in pages:
        pages[last] = bytes(pages[last][:kept]).ljust(PAGE, b"\0")


class Contents:
    """One file's bytes. Not thread-safe by itself: the owner of the disk holds its lock."""

    def __init__(self, image: Image, modified_ms: int) -> None:
        self.image = image
        self.log: list[Change] = []
        self.size = image.size
        self.modified_ms = modified_ms
        self.opens = 0
        self.linked = True
        self._folded = 0
        self._reserved = image.reserved
        self._blocks = set(image.pages)
        self._buffer: bytearray | mmap.mmap | None = None

    def copy(self) -> "Contents":
        """The same file on another disk, with the same unsynced changes, and not open."""
        twin = Contents(self.image, self.modified_ms)
        twin.log = self.log.copy()
        twin.size, twin.linked = self.size, self.linked
        twin._folded, twin._reserved, twin._blocks = self._folded, self._reserved, self._blocks.copy()
        return twin

    @property
    def issued(self) -> int:
        """The number of changes so far: a sync covers those before its start."""
        return self._folded + len(self.log)

    @property
    def blocks(self) -> int:
        """Used space, in pages."""
        reserved = _pages_up_to(self._reserved)
        return reserved + sum(number >= reserved for number in self._blocks)

    def new_blocks(self, offset: int, size: int) -> list[int]:
        """New pages that a write there needs."""
        first = max(offset // PAGE, _pages_up_to(self._reserved))
        return [number for number in range(first, _pages_up_to(offset + size)) if number not in self._blocks]

    def write(self, offset: int, data: bytes) -> None:
        end = max(self.size, offset + len(data))
        self.log.append(Change("write", offset + len(data), offset, data))
        self._blocks.update(range(offset // PAGE, _pages_up_to(offset + len(data))))
        self._grow(end)
        if self._buffer is not None:
            self._buffer[offset : offset + len(data)] = data

    def truncate(self, size: int) -> None:
        self.log.append(Change("truncate", size))
        if size >= self.size:
            self._grow(size)
            return
        self._clear_buffer(size)
        self._blocks = {number for number in self._blocks if number < _pages_up_to(size)}
        self._reserved = min(self._reserved, size)
        self.size = size

    def allocate(self, size: int) -> None:
        self.log.append(Change("allocate", size))
        self._reserved = max(self._reserved, size)
        self._grow(max(self.size, size))

    def sync(self, covers: int, *, failed: bool) -> None:
        """End of a sync that began when `covers` changes had been issued."""
        count = covers - self._folded
        if count <= 0:
            return
        covered = self.log[:count]
        if failed:
            self.log[:count] = [_doubted(change) for change in covered]
        elif all(change.certainty in (Certainty.PENDING, Certainty.SAFE) for change in covered):
            self.image = self.image.after(covered)
            self._folded += count
            del self.log[:count]
        else:
            self.log[:count] = [_confirmed(change) for change in covered]

    def next_data(self, offset: int) -> int | None:
        """The start of the next written page, at or behind `offset`."""
        behind = [number for number in self._blocks if number >= offset // PAGE]
        found = max(offset, min(behind) * PAGE) if behind else self.size
        return found if found < self.size else None

    def read(self, offset: int, size: int) -> bytes:
        return bytes(self._live()[offset : max(offset, min(offset + size, self.size))])

    def map(self, size: int) -> memoryview:
        return self._live().toreadonly()[:size]

    def _live(self) -> memoryview:
        if self._buffer is None:
            self._buffer = _new_buffer(self.size)
            for number, page in self.image.after(self.log).pages.items():
                start = number * PAGE
                end = min(start + PAGE, self.size)
                self._buffer[start:end] = page[: end - start]
        return memoryview(self._buffer)

    def _grow(self, size: int) -> None:
        """Grow the file. A buffer that is too small is replaced, and its maps no longer show later writes."""
        self.size = size
        if self._buffer is None or size <= len(self._buffer):
            return
        old, self._buffer = self._buffer, _new_buffer(max(size, 2 * len(self._buffer)))
        for number in self._blocks:
            start, end = number * PAGE, min((number + 1) * PAGE, len(old))
            if start < end:
                self._buffer[start:end] = old[start:end]

    def _clear_buffer(self, start: int) -> None:
        if self._buffer is None:
            return
        for number in self._blocks:
            first, end = max(start, number * PAGE), min((number + 1) * PAGE, len(self._buffer))
            if first < end:
                self._buffer[first:end] = bytes(end - first)


def _pages_up_to(size: int) -> int:
    return -(-size // PAGE)


def _new_buffer(size: int) -> bytearray | mmap.mmap:
    if size < _LARGE:
        return bytearray(size)
    return system.private_memory(size)


def _doubted(change: Change) -> Change:
    return change._replace(certainty=Certainty.DOUBTFUL) if change.certainty is Certainty.PENDING else change


def _confirmed(change: Change) -> Change:
    if change.certainty is Certainty.DOUBTFUL and change.kind == "write":
        return change._replace(certainty=Certainty.SIZE_SAFE)
    return change if change.certainty is Certainty.SIZE_SAFE else change._replace(certainty=Certainty.SAFE)
