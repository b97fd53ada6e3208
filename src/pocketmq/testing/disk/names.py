"""Folders: which name means which file, as programs see it and as the disk would give it back.

    folder 1 (root)     live  what programs see
      "store" ─► 2      safe  what is there after a power loss, whatever happens
                        pending  changes in between, in order: each may or may not survive

A change sets one name (create, unlink) or two at once (replace), and survives whole or not at all. Changes to one name keep their
order: a later one survives only together with the earlier ones. Changes to different names are independent.
`sync_dir` makes safe what was done in that folder, and what that depends on. It does not make the folder's own name safe.
"""

import errno
import os
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple

ROOT = 1

Key = tuple[int, str]
"""A name in a folder."""


class NameChange(NamedTuple):
    """Names that change together; `keys` also holds names that merely must not be lost if this survives."""

    number: int
    sets: dict[Key, int | None]
    keys: frozenset[Key]
    doubtful: bool = False


class Folder:
    """Entries of one folder: name -> number of the file or folder it means."""

    __slots__ = ("live", "safe")

    def __init__(self, live: dict[str, int], safe: dict[str, int]) -> None:
        self.live = live
        self.safe = safe


class Names:
    """The tree of folders. A number that is not in `folders` is a file's."""

    def __init__(self) -> None:
        self.folders = {ROOT: Folder({}, {})}
        self.pending: list[NameChange] = []
        self.issued = 0

    def copy(self) -> "Names":
        twin = Names()
        twin.folders = {number: Folder(old.live.copy(), old.safe.copy()) for number, old in self.folders.items()}
        twin.pending = self.pending.copy()
        twin.issued = self.issued
        return twin

    def find(self, path: str) -> int | None:
        """What `path` means; None when it does not exist."""
        found = ROOT
        for part in _parts(path):
            folder = self.folders.get(found)
            if folder is None:
                raise os_error(errno.ENOTDIR, path)
            child = folder.live.get(part)
            if child is None:
                return None
            found = child
        return found

    def existing(self, path: str) -> int:
        found = self.find(path)
        if found is None:
            raise os_error(errno.ENOENT, path)
        return found

    def folder(self, path: str) -> Folder:
        found = self.folders.get(self.existing(path))
        if found is None:
            raise os_error(errno.ENOTDIR, path)
        return found

    def key(self, path: str) -> Key:
        """The folder that holds `path`, which must exist, and the name in it."""
        *above, name = _parts(path) or [""]
        parent = self.existing("/".join(above))
        if parent not in self.folders:
            raise os_error(errno.ENOTDIR, path)
        if not name:
            raise os_error(errno.EBUSY, path)
        return parent, name

    def missing_folders(self, path: str) -> Iterator[str]:
        """The folders that are not there yet on the way to `path` and `path` itself, from the top."""
        parts = _parts(path)
        for depth in range(1, len(parts) + 1):
            way = "/" + "/".join(parts[:depth])
            found = self.find(way)
            if found is None:
                yield way
            elif found not in self.folders:
                raise os_error(errno.EEXIST if depth == len(parts) else errno.ENOTDIR, path)

    def add(self, path: str, number: int, *, folder: bool) -> None:
        key = self.key(path)
        if folder:
            self.folders[number] = Folder({}, {})
        self._change({key: number}, {key})

    def remove_file(self, path: str) -> int:
        key = self.key(path)
        found = self.existing(path)
        if found in self.folders:
            raise os_error(errno.EISDIR, path)
        self._change({key: None}, {key})
        return found

    def remove_folder(self, path: str) -> None:
        key = self.key(path)
        if self.folder(path).live:
            raise os_error(errno.ENOTEMPTY, path)
        self._change({key: None}, {key, *self._emptying(self.existing(path))})

    def replace(self, source: str, target: str) -> int | None:
        """Move a name; the number of what it stood on before, if anything."""
        old_key, new_key, found, replaced = self.key(source), self.key(target), self.existing(source), self.find(target)
        if found == replaced:
            return None
        way = dict(self._way(target))
        if found in way:
            raise os_error(errno.EINVAL, target)
        if replaced is not None:
            self._check_replaceable(found, replaced, source, target)
        # The way to the target must not be lost if the move survives: the file would be gone under both names.
        self._change({old_key: None, new_key: found}, {old_key, *way.items(), *self._emptying(replaced)})
        return replaced

    def _emptying(self, folder: int | None) -> Iterator[Key]:
        """Names in the changes that emptied `folder`: what was moved out of it may not be lost with it."""
        for change in self.pending:
            if any(inside == folder for inside, _ in change.sets):
                yield from change.keys

    def _check_replaceable(self, found: int, replaced: int, source: str, target: str) -> None:
        if replaced in dict(self._way(source)):
            raise os_error(errno.ENOTEMPTY, target)
        if found not in self.folders and replaced in self.folders:
            raise os_error(errno.EISDIR, target)
        if found in self.folders and replaced not in self.folders:
            raise os_error(errno.ENOTDIR, source)
        if replaced in self.folders and self.folders[replaced].live:
            raise os_error(errno.ENOTEMPTY, target)

    def _way(self, path: str) -> Iterator[Key]:
        """The folders down to `path`, each with the name that is taken in it."""
        number = ROOT
        for part in _parts(path):
            yield number, part
            number = self.folders[number].live.get(part, 0) if number in self.folders else 0

    def _change(self, sets: dict[Key, int | None], keys: Collection[Key]) -> None:
        _set(sets, lambda folder: self.folders[folder].live)
        self.pending.append(NameChange(self.issued, sets, frozenset(keys)))
        self.issued += 1

    def sync(self, folder: int, covers: int, *, failed: bool) -> None:
        """End of a sync of `folder` that began when `covers` changes had been issued."""
        if failed:
            self.pending = [
                change._replace(doubtful=True) if _covered(change, folder, covers) else change
                for change in self.pending
            ]
            return
        needed: set[Key] = set()
        safe: list[NameChange] = []
        for change in reversed(self.pending):
            if (_covered(change, folder, covers) and not change.doubtful) or needed & change.keys:
                needed |= change.keys
                safe.append(change)
        numbers = {change.number for change in safe}
        self.pending = [change for change in self.pending if change.number not in numbers]
        for change in reversed(safe):
            _set(change.sets, lambda folder: self.folders[folder].safe)

    def after_power_loss(self, survivors: Iterable[NameChange]) -> "Names":
        """What a disk holds on which `survivors`, of the pending changes, took place."""
        entries = {number: folder.safe.copy() for number, folder in self.folders.items()}
        for change in survivors:
            _set(change.sets, entries.__getitem__)
        found = Names()
        found.folders = {number: Folder(entries[number], entries[number].copy()) for number in _reachable(entries)}
        return found

    def referenced(self) -> set[int]:
        """Every file and folder that has a name or may have one after a power loss."""
        numbers = {ROOT}
        for folder in self.folders.values():
            numbers.update(folder.live.values(), folder.safe.values())
        for change in self.pending:
            numbers.update(number for number in change.sets.values() if number is not None)
        return numbers


def os_error(code: int, path: str) -> OSError:
    """The error that the operating system would raise; Python picks the fitting subclass."""
    return OSError(code, os.strerror(code), path)


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part and part != "."]


def _covered(change: NameChange, folder: int, covers: int) -> bool:
    return change.number < covers and any(inside == folder for inside, _ in change.sets)


def _set(sets: dict[Key, int | None], entries: Callable[[int], dict[str, int]]) -> None:
    for (folder, name), number in sets.items():
        if number is None:
            entries(folder).pop(name, None)
        else:
            entries(folder)[name] = number


def _reachable(entries: dict[int, dict[str, int]]) -> list[int]:
    found = [ROOT]
    for folder in found:
        found += [number for number in entries[folder].values() if number in entries]
    return found
