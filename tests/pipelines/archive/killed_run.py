"""A driver that archives, and ends itself and its processes by SIGKILL at one step.

python -m tests.pipelines.archive.killed_run STEP NAMESRV TOPIC LAKE ENGINE
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from pocketmq.files import DiskFiles
from pocketmq.pipelines.archive import lake as lake_module
from pocketmq.pipelines.archive.job import run_archive
from pocketmq.pipelines.archive.lake import Lake
from pocketmq.pipelines.archive.manifest import Commit, ManifestLog
from pocketmq.pipelines.archive.settings import ArchiveSettings
from pocketmq.pipelines.archive.staging import publish as publish_commit
from pocketmq.pipelines.core.running import Run
from pocketmq.pipelines.core.sessions import session

MESSAGES: Final = 12
PER_BATCH: Final = 4


def die(*_: object, **__: object) -> None:
    os.killpg(os.getpgrp(), signal.SIGKILL)


def replace_method(owner: Any, name: str, method: Callable[..., Any]) -> None:
    setattr(owner, name, method)


def planned() -> None:
    """Before anything of the second batch is staged."""
    add: Callable[..., Any] = Lake.add
    replace_method(Lake, "add", lambda self, batch, stage: die() if batch.number else add(self, batch, stage))


def staged() -> None:
    """After staging, before the manifest."""
    commit = ManifestLog.commit
    replace_method(ManifestLog, "commit", lambda self, one: die() if one.batch else commit(self, one))


def renaming() -> None:
    """After the commit was written under another name, before its rename."""
    replace = DiskFiles.replace

    def killed(self: DiskFiles, source: Path, target: Path) -> None:
        if target.name == "0000000002.json":
            die()
        replace(self, source, target)

    replace_method(DiskFiles, "replace", killed)


def committed() -> None:
    """After the rename, before a file is published."""
    _at_publish(lambda commit: commit.batch == 1)


def publishing() -> None:
    """Between two files of a commit."""
    replace, moved = DiskFiles.replace, 0

    def killed(self: DiskFiles, source: Path, target: Path) -> None:
        nonlocal moved
        moved += target.name.startswith("0000000002-")
        if moved == 2:
            die()
        replace(self, source, target)

    replace_method(DiskFiles, "replace", killed)


def published() -> None:
    """After a batch was published, before Spark knows that it is done."""
    add: Callable[..., Any] = Lake.add

    def killed(self: Lake, batch: Any, stage: Any) -> Any:
        done = add(self, batch, stage)
        if batch.number == 1:
            die()
        return done

    replace_method(Lake, "add", killed)


def merged() -> None:
    """In compaction: after the merged file was staged, before the manifest."""
    commit = ManifestLog.commit
    replace_method(ManifestLog, "commit", lambda self, one: die() if one.removed else commit(self, one))


def replaced() -> None:
    """In compaction: after the manifest, before the old files are removed."""
    _at_publish(lambda commit: bool(commit.removed))


def removing() -> None:
    """In compaction: after the first old file was removed."""
    unlink, removed = DiskFiles.unlink, 0

    def killed(self: DiskFiles, path: Path) -> None:
        nonlocal removed
        removed += path.parent.name.startswith("day=") and "_staging" not in path.parts
        if removed == 2:
            die()
        unlink(self, path)

    replace_method(DiskFiles, "unlink", killed)


STEPS: Final = {
    step.__name__: step
    for step in (planned, staged, renaming, committed, publishing, published, merged, replaced, removing)
}


def _at_publish(is_last: Callable[[Commit], bool]) -> None:
    publish: Callable[..., None] = publish_commit

    def killed(folder: Path, commit: Commit, files: Any) -> None:
        if is_last(commit):
            die()
        publish(folder, commit, files)

    replace_method(lake_module, "publish", killed)


def settings(name_server: str, topic: str, lake: str, engine: str) -> ArchiveSettings:
    told: dict[str, Any] = {"engine": engine, "max_messages": PER_BATCH, "compact": True, "compact_files": 2}
    return ArchiveSettings(namesrv=name_server, topics=[topic], lake=lake, **told)


def main(step: str, *told: str) -> None:
    STEPS[step]()
    with session("killed", "local[2]", is_quiet=True) as spark:
        run_archive(spark, settings(*told), Run())


if __name__ == "__main__":
    main(*sys.argv[1:])
