"""The disk itself: operations go in, what programs see and what a power loss leaves come out.

    FaultyFiles ── Operation ──► Disk.apply ──► names   which name means which file
                      │                    └──► files   number -> contents
                      └────────► journal: applied again to a copy, it gives the same disk

An `Operation` names files by number, so that a file which was renamed or unlinked while open is still the same one.
"""

from collections.abc import Iterator
from random import Random
from typing import Literal, NamedTuple

from pocketmq.testing.disk.contents import PAGE, Contents, Image
from pocketmq.testing.disk.names import ROOT, Names
from pocketmq.testing.disk.power_loss import PowerLoss, Survives

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
