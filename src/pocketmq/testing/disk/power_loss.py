"""Chance: which of the changes that no sync covered had reached the disk when the power went.

    style     names and each file, by themselves
    nothing   none survived
    all       every one did
    prefix    the first few did, the next one is torn, none after it
    subset    each sector of each change by itself: lost, torn and out of order

    write of 1300 bytes at 400:  |400..511|512..1023|1024..1535|1536..1699|     four sectors, each there or not
    its size:                     unchanged, up to the last sector that is there, or the whole

Sizes and data go separate ways: a file may have grown while its data is missing (zeros), or the reverse (the data is not seen).
"""

from collections.abc import Iterator, Sequence
from random import Random
from typing import Literal

from pocketmq.testing.disk.contents import Certainty, Change
from pocketmq.testing.disk.names import Key, NameChange

SECTOR = 512
"""What a disk writes whole or not at all, in bytes."""

Survives = Literal["any", "nothing", "everything"]
"""What of the unsafe changes is there after a power loss: chance decides, or one of the two ends."""

_STYLES = ("nothing", "all", "prefix", "subset", "subset")
_ODDS = (0.1, 0.5, 0.9)


class PowerLoss:
    """One roll of the dice; the same `random` gives the same result for the same changes."""

    def __init__(self, random: Random, survives: Survives = "any", *, tear_bytes: bool = False) -> None:
        self._random = random
        self._survives = survives
        self._tear_bytes = tear_bytes

    def names(self, pending: Sequence[NameChange]) -> list[NameChange]:
        """The changes of names that took place."""
        survivors: list[NameChange] = []
        lost: set[Key] = set()
        for change, odds in zip(pending, self._odds(len(pending)), strict=True):
            if lost & change.keys or self._random.random() >= odds:
                lost |= change.keys
            else:
                survivors.append(change)
        return survivors

    def changes(self, log: Sequence[Change]) -> list[Change]:
        """The changes of one file that took place, cut into what of them did."""
        survivors: list[Change] = []
        unsafe = [change for change in log if change.certainty is not Certainty.SAFE]
        odds = iter(self._odds(len(unsafe)))
        for change in log:
            survivors += [change] if change.certainty is Certainty.SAFE else self._parts(change, next(odds))
        return survivors

    def _odds(self, count: int) -> Sequence[float]:
        """For each of `count` changes, how likely each of its parts survived; 0 and 1 mean never and surely."""
        if self._survives != "any":
            return [float(self._survives == "everything")] * count
        style = self._random.choice(_STYLES)
        if style == "prefix":
            whole = self._random.randrange(count + 1)
            return ([1.0] * whole + [0.5] + [0.0] * count)[:count]
        odds = {"nothing": 0.0, "all": 1.0}.get(style)
        return [self._random.choice(_ODDS) if odds is None else odds] * count

    def _parts(self, change: Change, odds: float) -> Iterator[Change]:
        if odds == 1:
            yield change
            return
        if change.kind != "write":
            if self._random.random() < odds:
                yield change
            return
        landed = change.offset
        if odds:
            for piece in self._sectors(change, odds):
                landed = piece.offset + len(piece.data)
                yield piece
        if change.certainty is Certainty.SIZE_SAFE:
            yield Change("write", change.size)
        elif odds:
            yield Change("write", self._random.choice((0, landed, change.size)))

    def _sectors(self, change: Change, odds: float) -> Iterator[Change]:
        data, start = change.data, 0
        while start < len(data):
            end = min(len(data), start + SECTOR - (change.offset + start) % SECTOR)
            if self._random.random() < odds:
                torn = self._tear_bytes and self._random.random() < 0.5
                cut = self._random.randrange(start, end) + 1 if torn else end
                yield Change("write", 0, change.offset + start, data[start:cut])
            start = end
