"""The disk itself: operations go in, what programs see and what a power loss leaves come out.

    FaultyFiles ── Operation ──► Disk.apply ──► names   which name means which file
                      │                    └──► files   number -> contents
                      └────────► journal: applied again to a copy, it gives the same disk

An `Operation` names files by number, so that a file which was renamed or unlinked while open is still the same one.

Chance: which of the changes that no sync covered had reached the disk when the power went.

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
from typing import Literal, NamedTuple

from pocketmq.testing.disk.contents import PAGE, Certainty, Change, Contents, Image
from pocketmq.testing.disk.names import ROOT, Key, NameChange, Names

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


Kind = Literal[
    "create", "write", "truncate", "allocate", "sync", "make_dir", "remove_dir", "replace", "unlink", "sync_dir"
]


class Operation(NamedTuple):
    """One thing that was done to the disk.

    `covers` of a sync counts the changes that had been issued when it began: what came later is not in it.
    `failed` means that the caller got an error: `data` of a write is what arrived all the same.
    """

    kind: Kind
    path: str
    number: int = 0
    offset: int = 0
    data: bytes = b""
    size: int = 0
    target: str = ""
    covers: int = 0
    failed: bool = False
    at_ms: int = 0


class Disk:
    """Names and files. Not thread-safe by itself: `FaultyFiles` holds the lock."""

    def __init__(self) -> None:
        self.names = Names()
        self.files: dict[int, Contents] = {}
        self.next_number = ROOT + 1

    def copy(self) -> "Disk":
        """The same disk, with the same changes in flight. Cheap: safe contents are shared."""
        twin = Disk()
        twin.names = self.names.copy()
        twin.files = {number: contents.copy() for number, contents in self.files.items()}
        twin.next_number = self.next_number
        return twin

    def crash(self, random: Random, survives: Survives, *, tear_bytes: bool) -> "Disk":
        """A disk as it may be found after a power loss now."""
        loss = PowerLoss(random, survives, tear_bytes=tear_bytes)
        found = Disk()
        found.names = self.names.after_power_loss(loss.names(self.names.pending))
        found.next_number = self.next_number
        for number in sorted(found.names.referenced() - found.names.folders.keys()):
            contents = self.files[number]
            image = contents.image.after(loss.changes(contents.log)) if contents.log else contents.image
            found.files[number] = Contents(image, contents.modified_ms)
        return found

    def apply(self, operation: Operation) -> None:
        """Do `operation`, or raise the OSError of a name that is not as it should be."""
        match operation.kind:
            case "create" | "make_dir":
                self._create(operation)
            case "write" | "truncate" | "allocate":
                self._change(operation)
            case "sync":
                if contents := self.files.get(operation.number):
                    contents.sync(operation.covers, failed=operation.failed)
            case "sync_dir":
                self.names.sync(operation.number, operation.covers, failed=operation.failed)
                self._forget_unreachable()
            case "replace":
                self._unlinked(self.names.replace(operation.path, operation.target))
            case "unlink":
                self._unlinked(self.names.remove_file(operation.path))
            case "remove_dir":
                self.names.remove_folder(operation.path)

    def _create(self, operation: Operation) -> None:
        is_folder = operation.kind == "make_dir"
        self.names.add(operation.path, operation.number, folder=is_folder)
        if not is_folder:
            self.files[operation.number] = Contents(Image(), operation.at_ms)
        self.next_number = operation.number + 1

    def _change(self, operation: Operation) -> None:
        contents = self.files.get(operation.number)
        if contents is None:
            return  # unlinked for good while open: nobody will ever find it again
        contents.modified_ms = operation.at_ms
        if operation.kind == "write":
            contents.write(operation.offset, operation.data)
        elif operation.kind == "truncate":
            contents.truncate(operation.size)
        else:
            contents.allocate(operation.size)

    def _unlinked(self, number: int | None) -> None:
        if number in self.files:
            self.files[number].linked = False

    def _forget_unreachable(self) -> None:
        kept = self.names.referenced()
        self.files = {number: file for number, file in self.files.items() if number in kept or file.opens}
        self.names.folders = {number: folder for number, folder in self.names.folders.items() if number in kept}

    def used(self) -> int:
        """Space taken, in bytes: a file that is unlinked gives it back when the last one closes it."""
        return PAGE * sum(contents.blocks for contents in self.files.values() if contents.linked or contents.opens)

    def room(self, contents: Contents, offset: int, size: int, capacity: int) -> int:
        """How many of `size` bytes at `offset` can be written before the disk is full."""
        needed = contents.new_blocks(offset, size)
        if not needed:
            return size
        free = max(0, capacity - self.used()) // PAGE
        return size if len(needed) <= free else max(0, needed[free] * PAGE - offset)

    def walk(self, path: str = "", folder: int = ROOT) -> Iterator[tuple[str, Contents | None]]:
        """Every name below `folder` with its contents (None for a folder), parents first, in name order."""
        for name, number in sorted(self.names.folders[folder].live.items()):
            below = f"{path}/{name}"
            yield below, self.files.get(number)
            if number in self.names.folders:
                yield from self.walk(below, number)
