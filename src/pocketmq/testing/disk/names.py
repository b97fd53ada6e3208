"""Folders: names of files, as programs see them, and as they may be after a power loss.

    folder 1 (root)     live     as programs see it
      "store" ─► 2      safe     survives every power loss
                        pending  changes since, in order: each may survive or not

A change sets one name (create, unlink) or two at once (replace), and survives as a whole or not at all. A change survives only
together with the earlier changes of the same name. Changes of different names are independent. `sync_dir` makes the changes
in a folder safe, with those they depend on, but not the folder's own name.
"""

import errno
import os
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple

ROOT = 1

Key = tuple[int, str]
"""A name in a folder."""


class NameChange(NamedTuple):
    """Names that change together. `keys` also has names that must survive if this change does."""

    number: int
    sets: dict[Key, int | None]
    keys: frozenset[Key]
    doubtful: bool = False


class Folder:
    """Entries of one folder: the number of the file or folder for each name."""

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
        """The number of `path`; None if it does not exist."""
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
        """The parent folder of `path`, which must exist, and the name in it."""
        *above, name = _parts(path) or [""]
        parent = self.existing("/".join(above))
        if parent not in self.folders:
            raise os_error(errno.ENOTDIR, path)
        if not name:
            raise os_error(errno.EBUSY, path)
        return parent, name

    def missing_folders(self, path: str) -> Iterator[str]:
        """The missing folders of `path`, including itself, from the top."""
        parts = _parts(path)
        for depth in range(1, len(parts) + 1):
            folder = "/" + "/".join(parts[:depth])
            found = self.find(folder)
            if found is None:
                yield folder
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
        """Move a name; returns the number of the replaced file, if any."""
        old_key, new_key, found, replaced = self.key(source), self.key(target), self.existing(source), self.find(target)
        if found == replaced:
            return None
        ancestors = dict(self._ancestors(target))
        if found in ancestors:
            raise os_error(errno.EINVAL, target)
        if replaced is not None:
            self._check_replaceable(found, replaced, source, target)
        # If the move survives, the folders of the target must survive too, or the file would be lost under both names.
        self._change({old_key: None, new_key: found}, {old_key, *ancestors.items(), *self._emptying(replaced)})
        return replaced

    def _emptying(self, folder: int | None) -> Iterator[Key]:
        """Names of the changes that emptied `folder`: files moved out of it must not be lost with it."""
        for change in self.pending:
            if any(inside == folder for inside, _ in change.sets):
                yield from change.keys

    def _check_replaceable(self, found: int, replaced: int, source: str, target: str) -> None:
        if replaced in dict(self._ancestors(source)):
            raise os_error(errno.ENOTEMPTY, target)
        if found not in self.folders and replaced in self.folders:
            raise os_error(errno.EISDIR, target)
        if found in self.folders and replaced not in self.folders:
            raise os_error(errno.ENOTDIR, source)
        if replaced in self.folders and self.folders[replaced].live:
            raise os_error(errno.ENOTEMPTY, target)

    def _ancestors(self, path: str) -> Iterator[Key]:
        """The folders down to `path`, each with the next name."""
        number = ROOT
        for part in _parts(path):
            yield number, part
            number = self.folders[number].live.get(part, 0) if number in self.folders else 0

    def _change(self, sets: dict[Key, int | None], keys: Collection[Key]) -> None:
        _set(sets, lambda folder: self.folders[folder].live)
        self.pending.append(NameChange(self.issued, sets, frozenset(keys)))
        self.issued += 1

    def sync(self, folder: int, covers: int, *, failed: bool) -> None:
        """End a sync of `folder` that started after `covers` changes."""
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
        """The names after a power loss that these pending changes survived."""
        entries = {number: folder.safe.copy() for number, folder in self.folders.items()}
        for change in survivors:
            _set(change.sets, entries.__getitem__)
        found = Names()
        found.folders = {number: Folder(entries[number], entries[number].copy()) for number in _reachable(entries)}
        return found

    def referenced(self) -> set[int]:
        """Every file and folder that has a name, or may have one after a power loss."""
        numbers = {ROOT}
        for folder in self.folders.values():
            numbers.update(folder.live.values(), folder.safe.values())
        for change in self.pending:
            numbers.update(number for number in change.sets.values() if number is not None)
        return numbers


def os_error(code: int, path: str) -> OSError:
    """The error of the operating system; Python chooses the subclass."""
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
