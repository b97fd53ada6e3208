"""The disk: it applies operations, and derives the states that a power loss may leave.

    FaultyFiles ── Operation ──► Disk.apply ──► names   numbers of files by name
                      │                    └──► files   contents by number
                      └────────► journal: applied to a copy, it gives the same disk

An `Operation` identifies files by number, so that a file that is renamed or unlinked while open stays the same.

A random style decides which unsynced changes survive a power loss, for names and for each file:

    nothing   none
    all       all
    prefix    the first few; the next one is torn
    subset    each sector independently: lost, torn and out of order

    write of 1300 bytes at 400:  |400..511|512..1023|1024..1535|1536..1699|     four sectors, each survives or not
    its size:                     unchanged, up to the last surviving sector, or the whole

Sizes and data survive independently: a file may grow without its data (zeros), or the data may survive beyond the file size.
"""

from collections.abc import Iterator, Sequence
from random import Random
from typing import Literal, NamedTuple

from pocketmq.testing.disk.contents import PAGE, Certainty, Change, Contents, Image
from pocketmq.testing.disk.names import ROOT, Key, NameChange, Names

SECTOR = 512
"""The unit that a disk writes atomically, in bytes."""

Survives = Literal["any", "nothing", "everything"]
"""Which unsynced changes survive a power loss: a random choice, none or all."""

_STYLES = ("nothing", "all", "prefix", "subset", "subset")
_ODDS = (0.1, 0.5, 0.9)


class PowerLoss:
    """A random choice of surviving changes; the same `random` gives the same choice."""

    def __init__(self, random: Random, survives: Survives = "any", *, tear_bytes: bool = False) -> None:
        self._random = random
        self._survives = survives
        self._tear_bytes = tear_bytes

    def names(self, pending: Sequence[NameChange]) -> list[NameChange]:
        """The surviving changes of names."""
        survivors: list[NameChange] = []
        lost: set[Key] = set()
        for change, odds in zip(pending, self._odds(len(pending)), strict=True):
            if lost & change.keys or self._random.random() >= odds:
                lost |= change.keys
            else:
                survivors.append(change)
        return survivors

    def changes(self, log: Sequence[Change]) -> list[Change]:
        """The surviving changes of one file, or their surviving parts."""
        survivors: list[Change] = []
        unsafe = [change for change in log if change.certainty is not Certainty.SAFE]
        odds = iter(self._odds(len(unsafe)))
        for change in log:
            survivors += [change] if change.certainty is Certainty.SAFE else self._parts(change, next(odds))
        return survivors

    def _odds(self, count: int) -> Sequence[float]:
        """The probability that parts of each change survive."""
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
    """One operation on the disk.

    `covers` of a sync is the number of changes before its start. `failed` means that the caller got an error; `data` of a
    failed write is the part that was written.
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
    """Names and files. Not thread-safe: `FaultyFiles` holds the lock."""

    def __init__(self) -> None:
        self.names = Names()
        self.files: dict[int, Contents] = {}
        self.next_number = ROOT + 1

    def copy(self) -> "Disk":
        """The same disk with the same unsynced changes. Cheap: safe contents are shared."""
        twin = Disk()
        twin.names = self.names.copy()
        twin.files = {number: contents.copy() for number, contents in self.files.items()}
        twin.next_number = self.next_number
        return twin

    def crash(self, random: Random, survives: Survives, *, tear_bytes: bool) -> "Disk":
        """A possible disk after a power loss now."""
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
        """Apply `operation`, or raise the OSError of the operating system."""
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
            return  # unlinked while open: no name leads to it any more
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
        """Used space, in bytes. An unlinked file frees its space when it is closed."""
        return PAGE * sum(contents.blocks for contents in self.files.values() if contents.linked or contents.opens)

    def free_bytes(self, contents: Contents, offset: int, size: int, capacity: int) -> int:
        """The number of `size` bytes at `offset` that fit on the disk."""
        needed = contents.new_blocks(offset, size)
        if not needed:
            return size
        free = max(0, capacity - self.used()) // PAGE
        return size if len(needed) <= free else max(0, needed[free] * PAGE - offset)

    def entries(self, path: str = "", folder: int = ROOT) -> Iterator[tuple[str, Contents | None]]:
        """All names below `folder` with their contents (None for a folder), parents first, sorted."""
        for name, number in sorted(self.names.folders[folder].live.items()):
            below = f"{path}/{name}"
            yield below, self.files.get(number)
            if number in self.names.folders:
                yield from self.entries(below, number)
