"""The last step of a commit, and what a run that was killed left behind.

    staging of a number that the manifest knows       not all has been moved: move it
    staging of a number that it does not know         a batch that was never finished: remove it

Everything here may be done again any number of times. Files that are replaced are removed before those that replace them appear:
who reads the folder in that moment misses messages for a moment, and never sees them twice.
"""

from pathlib import Path

from pocketmq.files import Files, walk
from pocketmq.pipelines.archive.layout import STAGING, is_data, padded, staged_path, staging_of
from pocketmq.pipelines.archive.manifest import Commit


def publish(lake: Path, commit: Commit, files: Files) -> None:
    """Let readers see what a commit says."""
    changed: set[Path] = set()
    for path in commit.removed:
        if files.status(lake / path) is not None:
            files.unlink(lake / path)
            changed.add((lake / path).parent)
    for file in commit.added:
        staged, final = lake / staged_path(file.path, commit.number), lake / file.path
        if files.status(staged) is not None:
            files.make_dir(final.parent)
            files.replace(staged, final)
            changed.add(final.parent)
    for folder in sorted(changed):
        files.sync_dir(folder)
    clear(lake / staging_of(commit.number), files)


def clear_unfinished(lake: Path, number: int, files: Files) -> list[str]:
    """Remove what was staged for commits after `number`, the last one that there is; its names."""
    unfinished = [name for name in files.list(lake / STAGING) if name > padded(number)]
    for name in unfinished:
        clear(lake / STAGING / name, files)
    return unfinished


def staged_files(folder: Path, files: Files) -> list[str]:
    """The data files below a staging folder, relative to it."""
    return [path.relative_to(folder).as_posix() for path in walk(files, folder) if is_data(path.name)]


def sync_staged(folder: Path, names: list[str], files: Files) -> None:
    """Spark does not wait for the disk; who counts on a file has to."""
    for name in names:
        with files.open(folder / name, write=False) as file:
            file.sync()
    for parent in sorted({(folder / name).parent for name in names}):
        files.sync_dir(parent)


def clear(folder: Path, files: Files) -> None:
    """Remove a folder with all that is in it."""
    for name in files.list(folder):
        path = folder / name
        status = files.status(path)
        if status is not None and status.is_dir:
            clear(path, files)
        else:
            files.unlink(path)
    if files.status(folder) is not None:
        files.remove_dir(folder)
