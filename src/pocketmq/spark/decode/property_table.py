"""Properties of many messages, parsed at once.

    KEYS 01 k1 02 TAGS 01 a 02 | TAGS 01 b 02 | …        the texts of all rows, one after the other
         ^     ^       ^    ^         ^     ^            separators alternate: one ends a name, the next one a value

A row is regular if its separators alternate and its text is UTF-8. The last separator may be missing: brokers of 4.x omit it.
One comparison checks all rows. `irregular_rows` names the others, which have to be parsed one by one. Names and values of regular
rows become slices of one text, so that a column is one `take` of pyarrow.
"""

from typing import Any, Final

from pocketmq.spark.arrow import np, number_array, pa
from pocketmq.spark.decode.records import Bytes, Numbers, Switches

_ALTERNATING: Final = np.frombuffer(b"\x01\x02", np.uint16)[0]
_HIGH_BIT: Final = 0b1000_0000
_FIRST_TWO_BITS: Final = 0b1100_0000
_MAX_CELLS_PER_NAME: Final = 16
"""Maximum number of table cells per property; above it, they are numbered from 0 again."""


class PropertyTexts:
    """The property texts of rows: row `n` is text[offsets[n]:offsets[n + 1]].

    `positions`, `kinds` and `widths` describe the separators. A missing last separator counts as one of width 0 at the end of
    its row.
    """

    def __init__(self, text: Bytes, offsets: Numbers) -> None:
        self.text = text
        self.offsets = offsets
        positions = np.flatnonzero(text - np.uint8(1) < 2)
        kinds = text[positions]
        widths = np.ones(len(positions), np.int64)
        missing_ends = self._missing_ends()
        if len(missing_ends):
            before = np.searchsorted(positions, missing_ends)
            positions, kinds = np.insert(positions, before, missing_ends), np.insert(kinds, before, np.uint8(2))
            widths = np.insert(widths, before, 0)
        self.positions: Numbers = positions
        self.kinds: Bytes = kinds
        self.widths: Numbers = widths

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def irregular_rows(self) -> Switches | None:
        """The rows that a `PropertyTable` cannot read; None if it can read all."""
        irregular = self._not_utf8()
        if not self._alternate():
            not_alternating = self._not_alternating()
            irregular = not_alternating if irregular is None else irregular | not_alternating
        return irregular

    def _missing_ends(self) -> Numbers:
        ends = self.offsets[1:]
        filled = ends[ends > self.offsets[:-1]]
        missing_ends: Numbers = filled[self.text[filled - 1] != 2]
        return missing_ends

    def _alternate(self) -> bool:
        kinds = self.kinds
        return len(kinds) % 2 == 0 and bool((np.ascontiguousarray(kinds).view(np.uint16) == _ALTERNATING).all())

    def _not_alternating(self) -> Switches:
        # A separator of width 0 has the position where the next row begins, but belongs to the row before.
        owners = np.searchsorted(self.offsets, self.positions - (self.widths == 0), side="right") - 1
        counts = np.bincount(owners, minlength=len(self))
        ranks = np.arange(len(self.positions)) - np.repeat(np.cumsum(counts) - counts, counts)
        irregular: Switches = counts % 2 == 1
        irregular[owners[self.kinds != ranks % 2 + 1]] = True
        return irregular

    def _not_utf8(self) -> Switches | None:
        """The rows with a byte beyond ASCII, if the text as a whole or the first byte of a row is not UTF-8."""
        high = self.text >= _HIGH_BIT
        if not high.any():
            return None
        starts = self.offsets[:-1][self.offsets[:-1] < self.offsets[1:]]
        begins_within = (self.text[starts] & _FIRST_TWO_BITS) == _HIGH_BIT
        if not begins_within.any() and _is_utf8(self.text.tobytes()):
            return None
        before = np.concatenate(([0], np.cumsum(high)))
        irregular: Switches = before[self.offsets[1:]] > before[self.offsets[:-1]]
        return irregular


class PropertyTable:
    """Names and values of regular rows."""

    def __init__(self, texts: PropertyTexts) -> None:
        self._rows = len(texts)
        name_ends, ends = texts.positions[0::2], texts.positions[1::2]
        name_starts = np.zeros(len(ends), np.int64)
        name_starts[1:] = ends[:-1] + texts.widths[1:-1:2]
        self._fields = _slices(texts.text, name_starts, name_ends, name_ends + 1, ends)
        whole = (name_ends > name_starts) & (
            ends > name_ends + 1
        )  # an empty name or value counts for nothing, as in Java
        firsts = np.searchsorted(name_ends, texts.offsets)
        if not whole.all():
            firsts = np.concatenate(([0], np.cumsum(whole)))[firsts]
        self._firsts = firsts
        self._owners = np.repeat(np.arange(self._rows), np.diff(firsts))
        self._entries = np.flatnonzero(whole)
        names = self._fields.take(number_array(self._entries * 4)).dictionary_encode()
        self._known: list[str] = names.dictionary.to_pylist()
        self._names: Any = names.indices.to_numpy()

    def values(self, name: str) -> Any:
        """The values of one property as a string array; null if a row has none. Of equal names the last one counts."""
        if name not in self._known:
            return pa.nulls(self._rows, pa.string())
        entries = np.flatnonzero(self._names == self._known.index(name))
        positions = np.full(self._rows, -1, np.int64)
        positions[self._owners[entries]] = self._entries[entries] * 4 + 2
        missing = positions < 0
        return self._fields.take(pa.array(positions, mask=missing) if missing.any() else number_array(positions))

    def maps(self) -> Any:
        """All properties as a map array. A repeated name keeps its first position and its last value, as in a dict."""
        firsts = self._firsts
        names = values = self._entries
        if (kept := self._without_repeats()) is not None:
            names, values = self._entries[kept[0]], self._entries[kept[1]]
            counts = np.bincount(self._owners[kept[0]], minlength=self._rows)
            firsts = np.concatenate(([0], np.cumsum(counts)))
        return pa.MapArray.from_arrays(
            number_array(firsts.astype(np.int32)),
            self._fields.take(number_array(names * 4)),
            self._fields.take(number_array(values * 4 + 2)),
        )

    def _without_repeats(self) -> tuple[Numbers, Numbers] | None:
        """For each name of a row its first and its last entry, in the order of the first ones; None if no name repeats.

        Names repeat in messages sent in batches: RocketMQ 5 appends the properties of the batch to those of each message.
        """
        marks = self._owners * len(self._known) + self._names
        if self._rows * len(self._known) > _MAX_CELLS_PER_NAME * len(marks):  # almost every name is a new one
            marks = np.unique(marks, return_inverse=True)[1]
        counts = np.bincount(marks)
        if counts.max(initial=0) < 2:
            return None
        entries = np.arange(len(marks))
        firsts, lasts = np.zeros_like(counts), np.zeros_like(counts)
        firsts[marks[::-1]] = entries[::-1]  # of equal marks the last one written stays
        lasts[marks] = entries
        kept = np.flatnonzero(firsts[marks] == entries)
        return kept, lasts[marks[kept]]


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _slices(text: Bytes, *bounds: Numbers) -> Any:
    """A string array over `text`: item 4n is name n, item 4n + 2 its value; the other items are unused."""
    offsets = np.empty(len(bounds) * len(bounds[0]) + 1, np.int32)
    for number, bound in enumerate(bounds):
        offsets[number : -1 : len(bounds)] = bound
    offsets[-1] = len(text)
    return pa.Array.from_buffers(
        pa.string(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(text))]
    )
