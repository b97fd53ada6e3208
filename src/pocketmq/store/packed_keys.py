"""Keys to be entered into the index, as bytes: what the compiled twin reads from the log, and what it enters.

    | key hash 4 | log offset 8 | store ms 8 |   again and again, in the machine's own order

A tuple of three numbers for each key of each message would cost more than to find the key. Whoever looks at one of them gets it as
a tuple all the same.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Self, overload

from pocketmq.store.index_file import PlacedKey

_KEY: Final = struct.Struct("=iqq")
KEY_BYTES: Final = 20


class PackedKeys(Sequence[PlacedKey]):
    """A sequence of keys like any other; `raw` are the bytes."""

    __slots__ = ("raw",)

    def __init__(self, raw: bytes) -> None:
        self.raw = raw

    @classmethod
    def of(cls, keys: Iterable[PlacedKey]) -> Self:
        return cls(b"".join([_KEY.pack(*key) for key in keys]))

    def __len__(self) -> int:
        return len(self.raw) // KEY_BYTES

    def __iter__(self) -> Iterator[PlacedKey]:
        return _KEY.iter_unpack(self.raw)

    @overload
    def __getitem__(self, at: int) -> PlacedKey: ...

    @overload
    def __getitem__(self, at: slice) -> "PackedKeys": ...

    def __getitem__(self, at: int | slice) -> "PlacedKey | PackedKeys":
        if isinstance(at, int):
            return _KEY.unpack_from(self.raw, range(len(self))[at] * KEY_BYTES)
        start, stop, step = at.indices(len(self))
        if step != 1:
            raise ValueError("keys are cut in one piece")
        return PackedKeys(self.raw[start * KEY_BYTES : stop * KEY_BYTES])
