"""The manifest on disk: one small file for each commit, and now and then one for all of them.

    _manifest/0000000101.json … 0000000137.json     a commit each: written new, synced, renamed
    _manifest/0000000100.whole.json                 everything up to commit 100; what is older is removed

One process at a time writes, which a lock on `_manifest/lock` sees to. Readers need no lock: a commit that they see is whole, and a list
of names that is overtaken by a removal is read again.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final, Self, TypeVar

import msgspec

from pocketmq.errors import StoreDamaged, StoreLocked, WrongState
from pocketmq.files import DiskFiles, File, Files, write_atomically
from pocketmq.pipelines.archive.layout import MANIFEST, padded
from pocketmq.pipelines.archive.manifest import Commit, Manifest, check_version

COMMITS_UNTIL_WHOLE: Final = 100
READ_ATTEMPTS: Final = 3
_WHOLE: Final = ".whole.json"
_COMMIT: Final = ".json"
_LOCK: Final = "lock"

M = TypeVar("M")


def read_manifest(lake: Path, files: Files | None = None) -> Manifest:
    """What a lake holds now; an empty manifest where there is none yet."""
    files = files or DiskFiles()
    for left in range(READ_ATTEMPTS - 1, -1, -1):
        try:
            return _read(lake / MANIFEST, files)
        except (FileNotFoundError, WrongState):  # a writer made one file of many, and removed those that were listed
            if not left:
                raise
    raise AssertionError("the last attempt returns or raises")


class ManifestLog:
    """The manifest of a lake, for the one who writes it."""

    def __init__(self, lake: Path, files: Files | None = None) -> None:
        self._folder = lake / MANIFEST
        self._files = files or DiskFiles()
        self._files.make_dir(self._folder)
        self._lock: File = self._files.open(self._folder / _LOCK, create=True)
        if not self._lock.lock():
            self._lock.close()
            raise StoreLocked(f"another process writes to the lake {lake}: one archive at a time, or a lake for each")
        try:
            self.manifest = _read(self._folder, self._files)
        except BaseException:
            self._lock.close()
            raise

    def commit(self, commit: Commit) -> None:
        """From here on the commit is part of the lake; when this fails it is not."""
        found = self._folder / f"{padded(commit.number)}{_COMMIT}"
        write_atomically(self._files, found, msgspec.json.encode(commit))
        self.manifest.add(commit)
        if commit.number % COMMITS_UNTIL_WHOLE == 0:
            self._make_whole()

    def last(self) -> Commit | None:
        """The last commit, which a killed run may not have published; None in a new lake."""
        path = self._folder / f"{padded(self.manifest.number)}{_COMMIT}"
        return _decoded(path, Commit, self._files) if self.manifest.number else None

    def close(self) -> None:
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _make_whole(self) -> None:
        number = self.manifest.number
        write_atomically(self._files, self._folder / f"{padded(number)}{_WHOLE}", msgspec.json.encode(self.manifest))
        for name in self._files.list(self._folder):
            if name.endswith(_COMMIT) and name < padded(number):  # the last one stays: its files may be on their way
                self._files.unlink(self._folder / name)


def _read(folder: Path, files: Files) -> Manifest:
    names = [name for name in files.list(folder) if name.endswith(_COMMIT)]
    wholes = [name for name in names if name.endswith(_WHOLE)]
    manifest = _decoded(folder / wholes[-1], Manifest, files) if wholes else Manifest()
    check_version(manifest.version)
    for name in names:
        if not name.endswith(_WHOLE) and name > padded(manifest.number) + _COMMIT:
            manifest.add(_decoded(folder / name, Commit, files))
    return manifest


def _decoded(path: Path, kind: Callable[..., M], files: Files) -> M:
    try:
        return msgspec.json.decode(files.read(path), type=kind)  # type: ignore[no-any-return]
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"{path} is not what a manifest holds: {error}") from None
