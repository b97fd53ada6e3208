"""Checks one index file, entry by entry, and the slots and chains that follow from its entries.

    slots of the file  ◄── compared ──►  slots that result from adding its entries one after the other

Each entry contains the number of the entry before it in its slot. So reading the entries in order, with the slots in
memory, checks every chain without following one: 4 bytes a slot, for any number of entries.
"""

from array import array
from collections.abc import Iterator
from pathlib import Path
from sys import byteorder
from typing import Final

from pocketmq.files import File, Files
from pocketmq.store.index.index_file import (
    ENTRY,
    ENTRY_BYTES,
    HEADER_BYTES,
    LARGEST_SECONDS,
    SLOT_BYTES,
    Entry,
    EntryBlocks,
    IndexHeader,
    IndexShape,
)
from pocketmq.store.log.log_scan import nonzero_range
from pocketmq.store.tools.findings import Kind, RunBudget, Runs

_BLOCK_ENTRIES: Final = 4096
_BLOCK_SLOTS: Final = 256 * 1024
NO_ENTRY: Final = (0, 0, 0, 0)
"""Unused bytes. A used entry has a hash or a log offset."""


class CheckedIndexFile:
    """An index file that is read forwards. `number` is the next entry to check."""

    def __init__(self, files: Files, path: Path, shape: IndexShape, budget: RunBudget) -> None:
        self.path = path
        self.runs = Runs(budget)
        self.flaws: list[str] = []
        """The error in the header; empty if there is none."""
        self.number = 1
        self.last: tuple[int, int] | None = None
        """Log offset and store time of the last entry's record, if known."""
        self._shape = shape
        self._file: File = files.open(path, write=False)
        self.header = self._read_header()
        self._begin_ms = self.header.begin_ms
        self._slots = array("i", bytes(shape.slots * SLOT_BYTES))
        self._used_slots = 0
        self._used_to: int | None = None
        self._block: list[Entry] = []
        self._block_first = 1

    def entry(self, ahead: int = 0) -> Entry | None:
        """The next entry to check, or one further on; None after the last entry that the header counts."""
        number = self.number + ahead
        if number >= self._counted:
            return None
        entry = self._entry_at(number)
        return None if entry == NO_ENTRY and self._position(number) >= self._used_end() else entry

    @property
    def _counted(self) -> int:
        return min(self.header.next_number, self._shape.entries)

    def uncounted_entry(self) -> Entry | None:
        """The entry after the last one that the header counts, if the file is long enough."""
        return self._entry_at(self.number) if self.number < self._shape.entries else None

    def _used_end(self) -> int:
        """The end of the nonzero entries: a header may count too many."""
        if self._used_to is None:
            found = nonzero_range(self._file, self._position(1), self._position(self._counted))
            self._used_to = 0 if found is None else found[1]
        return self._used_to

    def _entry_at(self, number: int) -> Entry:
        at = number - self._block_first
        if not 0 <= at < len(self._block):
            count = min(_BLOCK_ENTRIES, self._shape.entries - number)
            data = self._file.read_at(self._position(number), count * ENTRY_BYTES).ljust(count * ENTRY_BYTES, b"\0")
            self._block = list(ENTRY.iter_unpack(data))
            self._block_first, at = number, 0
        return self._block[at]

    def _position(self, number: int) -> int:
        return self._shape.entries_at + number * ENTRY_BYTES

    # reading the entries

    def matches(self, key_hash: int, log_offset: int, store_ms: int) -> bool:
        """Skip the next entry if it is exactly the one for this key of this record, as nearly all are."""
        number = self.number
        at = number - self._block_first
        if not 1 < number < self.header.next_number or not 0 <= at < len(self._block):
            return False
        slot = key_hash % self._shape.slots
        previous = self._slots[slot]
        if self._block[at] != (key_hash, log_offset, (store_ms - self._begin_ms) // 1000, previous):
            return False
        self._slots[slot] = number
        self._used_slots += not previous
        self.number = number + 1
        self.last = log_offset, store_ms
        return True

    def match(self, entry: Entry, key_hash: int, log_offset: int, store_ms: int) -> bool:
        """The entry belongs to this key of this record; record the differences. Returns False if the whole file shows
        that this record had another key: then the record changed.
        """
        if self.number == 1:
            self._check_begin(log_offset, store_ms)
        is_agreed = entry[0] == key_hash or not self._has_another_key(entry, key_hash, log_offset)
        seconds = min(max(0, (store_ms - self._begin_ms) // 1000), LARGEST_SECONDS)
        self._enter(entry, (key_hash if is_agreed else entry[0], log_offset, seconds))
        self.last = log_offset, store_ms
        return is_agreed

    def _has_another_key(self, entry: Entry, key_hash: int, log_offset: int) -> bool:
        following = self.entry(1)
        is_swapped = following is not None and following[:2] == (key_hash, log_offset)
        return (
            entry[1] == log_offset
            and not is_swapped
            and self.is_chained(entry)
            and not self.is_chained((key_hash, *entry[1:]))
        )

    def is_chained(self, entry: Entry) -> bool:
        """Whether the chain of the entry's own hash contains it, here and by the slots of the file."""
        return entry[0] >= 0 and entry[3] == self._slots[entry[0] % self._shape.slots] and self._is_linked(entry[0])

    def _is_linked(self, key_hash: int) -> bool:
        """Whether the slot of this hash points to the current entry or a later one."""
        at = HEADER_BYTES + key_hash % self._shape.slots * SLOT_BYTES
        return int.from_bytes(self._file.read_at(at, SLOT_BYTES), "big", signed=True) >= self.number

    def accept(self, entry: Entry) -> None:
        """The entry points to a missing record, so only its chain can be checked."""
        self._enter(entry, entry[:3])
        self.last = None

    def refuse(self, entry: Entry, why: str) -> None:
        """No record has this entry."""
        self._record(f"it has {_described(entry)}, {why}")
        if entry[0] >= 0:
            self._chain(entry[0])
        self.last = None
        self.number += 1

    def _enter(self, entry: Entry, wanted: tuple[int, int, int]) -> None:
        previous = self._chain(wanted[0]) if wanted[0] >= 0 else 0
        if entry != (*wanted, previous):
            self._record(f"it has {_described(entry)}, but must have {_described((*wanted, previous))}")
        self.number += 1

    def _chain(self, key_hash: int) -> int:
        """Make this entry the newest of its slot. Returns the previous newest entry."""
        slot = key_hash % self._shape.slots
        previous = self._slots[slot]
        self._slots[slot] = self.number
        self._used_slots += not previous
        return previous

    def _record(self, detail: str) -> None:
        self.runs.add(Kind.INDEX_ENTRY, self.path, self._position(self.number), ENTRY_BYTES, self.number, detail)

    # header and slots

    def _check_begin(self, log_offset: int, store_ms: int) -> None:
        if (self.header.begin_offset, self.header.begin_ms) != (log_offset, store_ms):
            self.flaws.append(
                f"it begins with log offset {self.header.begin_offset} at {self.header.begin_ms} ms, "
                f"but its first entry belongs to {log_offset} at {store_ms} ms"
            )
        self._begin_ms = store_ms

    def count_more(self) -> None:
        """There are more entries than the header counts: continue as if it counted them all."""
        if self.header.next_number < self._shape.entries:
            self.header = self.header._replace(next_number=self._shape.entries)
            self._used_to = None

    def finish(self, *, is_clean: bool) -> None:
        """After the last entry: compare header and slots with the entries."""
        if is_clean:
            self._check_end()
        sure = self.number if is_clean else self._sure_count()
        for slot, number in self._differing_slots():
            if is_clean or (number < sure and number != self._led_back(slot, sure)):
                detail = f"it points to entry {number}, but its newest entry is {self._slots[slot]}"
                self.runs.add(Kind.INDEX_SLOT, self.path, HEADER_BYTES + slot * SLOT_BYTES, SLOT_BYTES, slot, detail)
        self._file.close()

    def _sure_count(self) -> int:
        """The end of the entries that must have slots after a crash."""
        header = self._read_header()
        counted = min(header.next_number, self.number)
        return header._replace(next_number=counted).counted_back(EntryBlocks(self._file, self._shape).entry).next_number

    def _led_back(self, slot: int, end: int) -> int:
        """The newest entry of a slot before `end`."""
        number, blocks = self._slots[slot], EntryBlocks(self._file, self._shape)
        while number >= end:
            previous = blocks.entry(number)[3]
            if previous >= number:
                break  # this chain has a loop; it is damaged
            number = previous
        return number

    def _read_header(self) -> IndexHeader:
        return IndexHeader.parse(self._file.read_at(0, HEADER_BYTES).ljust(HEADER_BYTES, b"\0"))

    def _check_end(self) -> None:
        header = self._read_header()
        if header.next_number != self.number:
            self.flaws.append(f"it counts {header.next_number - 1} entries, but there are {self.number - 1}")
        if self.last is not None and (header.end_offset, header.end_ms) != self.last:
            self.flaws.append(
                f"it ends with log offset {header.end_offset} at {header.end_ms} ms, "
                f"but its last entry belongs to {self.last[0]} at {self.last[1]} ms"
            )
        # Old releases of RocketMQ counted entries here; the number is not used.
        if header.used_slots not in (self._used_slots, self.number - 1, self.number):
            self.flaws.append(f"it counts {header.used_slots} slots in use, but there are {self._used_slots}")

    def _differing_slots(self) -> Iterator[tuple[int, int]]:
        """Slots that differ from the entries, with their value in the file."""
        for first in range(0, self._shape.slots, _BLOCK_SLOTS):
            count = min(_BLOCK_SLOTS, self._shape.slots - first)
            found = array("i")
            found.frombytes(self._file.read_at(HEADER_BYTES + first * SLOT_BYTES, count * SLOT_BYTES))
            if byteorder == "little":
                found.byteswap()
            wanted = self._slots[first : first + count]
            if found != wanted:
                for index, (number, right) in enumerate(zip(found, wanted, strict=True)):
                    if number != right:
                        yield first + index, number


def _described(entry: Entry) -> str:
    key_hash, log_offset, seconds, previous = entry
    return f"hash {key_hash}, log offset {log_offset}, second {seconds}, previous {previous}"
