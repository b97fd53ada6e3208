"""Properties of many messages, taken apart at once.

    KEYS 01 k1 02 TAGS 01 a 02 | TAGS 01 b 02 | …        the texts of all rows, one after the other
         ^     ^       ^    ^         ^     ^            separators take turns: one ends a name, the next one a value

A text is plain when its separators take turns; the last one may be missing, as brokers of 4.x leave it out. One comparison over
all rows settles that. Rows that are not plain, or not UTF-8, are named by `odd_rows` and have to be parsed one by one. Of
the plain ones, names and values become slices of the one text, so that picking a column is one `take` of pyarrow.
"""

from typing import Any, Final

from pocketmq.spark.arrow import np, number_array, pa
from pocketmq.spark.decode.records import Bytes, Numbers, Switches

_TURNS: Final = np.frombuffer(b"\x01\x02", np.uint16)[0]
_HIGH_BIT: Final = 0b1000_0000
_FIRST_TWO_BITS: Final = 0b1100_0000
_MAX_SPARE: Final = 16
"""How many places for names a row may have for each name that it has."""


class PropertyTexts:
    """The property texts of rows: row `n` is text[offsets[n]:offsets[n + 1]].

    `places` are the separators, `kinds` tell which they are, `widths` how long: a missing last one is thought to stand at the
    end of its row, 0 long.
    """

    def __init__(self, text: Bytes, offsets: Numbers) -> None:
        self.text = text
        self.offsets = offsets
        places = np.flatnonzero(text - np.uint8(1) < 2)
        kinds = text[places]
        widths = np.ones(len(places), np.int64)
        unclosed = self._unclosed_ends()
        if len(unclosed):
            before = np.searchsorted(places, unclosed)
            places, kinds = np.insert(places, before, unclosed), np.insert(kinds, before, np.uint8(2))
            widths = np.insert(widths, before, 0)
        self.places: Numbers = places
        self.kinds: Bytes = kinds
        self.widths: Numbers = widths

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def odd_rows(self) -> Switches | None:
        """Which rows a `PropertyTable` cannot read; None when it can read all."""
        odd = self._not_utf8()
        if not self._take_turns():
            out_of_turn = self._out_of_turn()
            odd = out_of_turn if odd is None else odd | out_of_turn
        return odd

    def _unclosed_ends(self) -> Numbers:
        ends = self.offsets[1:]
        filled = ends[ends > self.offsets[:-1]]
        unclosed: Numbers = filled[self.text[filled - 1] != 2]
        return unclosed

    def _take_turns(self) -> bool:
        kinds = self.kinds
        return len(kinds) % 2 == 0 and bool((np.ascontiguousarray(kinds).view(np.uint16) == _TURNS).all())

    def _out_of_turn(self) -> Switches:
        # A separator that is only thought to be there stands where the next row begins, but belongs to the one before.
        owners = np.searchsorted(self.offsets, self.places - (self.widths == 0), side="right") - 1
        counts = np.bincount(owners, minlength=len(self))
        turns = np.arange(len(self.places)) - np.repeat(np.cumsum(counts) - counts, counts)
        odd: Switches = counts % 2 == 1
        odd[owners[self.kinds != turns % 2 + 1]] = True
        return odd

    def _not_utf8(self) -> Switches | None:
        """The rows with any byte beyond ASCII, if the text as a whole, or the first byte of a row, is not UTF-8."""
        high = self.text >= _HIGH_BIT
        if not high.any():
            return None
        starts = self.offsets[:-1][self.offsets[:-1] < self.offsets[1:]]
        begins_within = (self.text[starts] & _FIRST_TWO_BITS) == _HIGH_BIT
        if not begins_within.any() and _is_utf8(self.text.tobytes()):
            return None
        before = np.concatenate(([0], np.cumsum(high)))
        odd: Switches = before[self.offsets[1:]] > before[self.offsets[:-1]]
        return odd


class PropertyTable:
    """Names and values of texts that have no odd rows."""

    def __init__(self, texts: PropertyTexts) -> None:
        self._rows = len(texts)
        name_ends, ends = texts.places[0::2], texts.places[1::2]
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
        """The values of one property as a string array; null where a row has none. Of equal names the last one counts."""
        if name not in self._known:
            return pa.nulls(self._rows, pa.string())
        entries = np.flatnonzero(self._names == self._known.index(name))
        places = np.full(self._rows, -1, np.int64)
        places[self._owners[entries]] = self._entries[entries] * 4 + 2
        missing = places < 0
        return self._fields.take(pa.array(places, mask=missing) if missing.any() else number_array(places))

    def maps(self) -> Any:
        """All properties as a map array. Of equal names the first one's place and the last one's value count, as in a dict."""
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
        """For each name of a row its first and its last entry, in the order of the first ones; None when no name repeats.

        They do repeat in messages sent in batches: RocketMQ 5 appends the properties of the batch to those of each.
        """
        marks = self._owners * len(self._known) + self._names
        if self._rows * len(self._known) > _MAX_SPARE * len(marks):  # almost every name is a new one
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
    """A string array over `text` whose item 4n is name n, and 4n + 2 its value; nobody looks at the others."""
    offsets = np.empty(len(bounds) * len(bounds[0]) + 1, np.int32)
    for number, bound in enumerate(bounds):
        offsets[number : -1 : len(bounds)] = bound
    offsets[-1] = len(text)
    return pa.Array.from_buffers(
        pa.string(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(text))]
    )
