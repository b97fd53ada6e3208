"""Copies between an in-memory disk and a real folder. Holes in files stay holes."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

from pocketmq.errors import UsageError
from pocketmq.files import Files
from pocketmq.testing.disk.contents import PAGE, Contents
from pocketmq.testing.disk.model import Disk, Operation

_CHUNK = 256 * PAGE
_HOLE = bytes(PAGE)


def save(disk: Disk, folder: Path, files: Files) -> None:
    """Write the live state of `disk` below `folder`."""
    if files.list(folder):
        raise UsageError(f"{folder} is not empty; use an empty or a new folder")
    files.make_dir(folder)
    for name, contents in disk.entries():
        path = folder / name[1:]
        if contents is None:
            files.make_dir(path)
        else:
            _save_file(contents, path, files)


def _save_file(contents: Contents, path: Path, files: Files) -> None:
    with files.open(path, create=True) as file:
        file.truncate(contents.size)
        for number, page in contents.image.after(contents.log).pages.items():
            start = number * PAGE
            file.write_at(start, page[: contents.size - start])


def load(folder: Path, root: Path, files: Files) -> Disk:
    """A disk with a copy of `folder` as `root`; all of it is safe."""
    disk = Disk()
    _make_folder(disk, root)
    for name in files.list(folder):
        _load_entry(disk, folder / name, root / name, files)
    return disk.crash(Random(0), "everything", tear_bytes=False)  # noqa: S311 nothing is random here


def _load_entry(disk: Disk, path: Path, copy: Path, files: Files) -> None:
    status = files.status(path)
    if status is None:
        return  # deleted meanwhile
    if status.is_dir:
        _make_folder(disk, copy)
        for name in files.list(path):
            _load_entry(disk, path / name, copy / name, files)
        return
    number = disk.next_number
    disk.apply(Operation("create", str(copy), number))
    for offset, page in _pages(path, files):
        disk.apply(Operation("write", str(copy), number, offset, page))
    disk.apply(Operation("truncate", str(copy), number, size=status.size, at_ms=status.modified_ms))


def _make_folder(disk: Disk, path: Path) -> None:
    for missing in list(disk.names.missing_folders(str(path))):
        disk.apply(Operation("make_dir", missing, disk.next_number))


def _pages(path: Path, files: Files) -> Iterator[tuple[int, bytes]]:
    with files.open(path, write=False) as file:
        for start in range(0, file.size(), _CHUNK):
            chunk = file.read_at(start, _CHUNK)
            for offset in range(0, len(chunk), PAGE):
                page = chunk[offset : offset + PAGE]
                if page != _HOLE[: len(page)]:
                    yield start + offset, page
