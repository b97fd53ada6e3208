"""The writer of a lake: batches of messages become files, small files are merged, and each step is atomic.

    with Lake(folder, form) as lake:          repairs the lake after a killed run
        lake.add(batch, stage)                stage ── commit ── publish
        lake.compact(spark)                   the same, with files that are replaced

Compaction is planned by the manifest alone:

    folder    ▂ ▂ ▂ █ ▂ ▂            small files of one folder, in the order of their commits
    groups   [▂ ▂ ▂   ▂ ▂]           as many as make about one file of the target size; large files stay as they are

A file is rewritten a few times at most: from half the target size on it counts as large.
"""

import errno
import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import Final, NamedTuple, Self

from pocketmq.clock import Clock, SystemClock
from pocketmq.errors import StoreFull, WrongState
from pocketmq.model import QueueRange
from pocketmq.pipelines.archive.form import OFFSET_COLUMNS, Form, keep_form, staging_of
from pocketmq.pipelines.archive.hadoop import Location
from pocketmq.pipelines.archive.manifest import (
    Commit,
    DataFile,
    Manifest,
    ManifestLog,
    check_within,
    in_rounds,
    missing_ranges,
    not_covered,
)
from pocketmq.pipelines.archive.staging import (
    Stage,
    StagingFolder,
    clear,
    clear_unfinished,
    publish,
    read_files,
    stage_merged,
    stage_rows,
)
from pocketmq.pipelines.core.libraries import Column, DataFrame, SparkSession, functions
from pocketmq.spark.read.offsets import Lost

SMALL_PART: Final = 2
"""A file is small below this part of the target size."""


def groups_to_merge(files: Iterable[DataFile], *, aim_bytes: int, at_least: int) -> list[list[DataFile]]:
    """Groups of at least `at_least` files to merge, each of about `aim_bytes` in total."""
    by_folder: dict[str, list[DataFile]] = {}
    for file in sorted(files, key=lambda file: (file.folder, file.path)):
        if file.bytes * SMALL_PART < aim_bytes:
            by_folder.setdefault(file.folder, []).append(file)
    return [group for small in by_folder.values() for group in _cut(small, aim_bytes) if len(group) >= at_least]


def _cut(small: list[DataFile], aim_bytes: int) -> list[list[DataFile]]:
    groups: list[list[DataFile]] = []
    free = 0
    for file in small:
        if file.bytes > free:
            groups.append([])
            free = aim_bytes
        groups[-1].append(file)
        free -= file.bytes
    return groups


log = logging.getLogger("pocketmq.pipelines")

_FULL: Final = ("No space left on device", "Disk quota exceeded", "ENOSPC")


class Batch(NamedTuple):
    """The ranges of a batch, and the messages that were lost before it was planned."""

    query: str
    number: int
    ranges: tuple[QueueRange, ...]
    lost: tuple[Lost, ...] = ()
    is_filtered: bool = False
    """Whether a filter may have excluded messages."""


class Lake:
    """The files of one folder, and their manifest. StoreLocked if another process writes to it."""

    def __init__(
        self,
        location: Location,
        form: Form,
        *,
        is_direct: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self._location = location
        self._folder, _, self._files = location
        self._clock = clock or SystemClock()
        self._is_direct = is_direct
        self._form = keep_form(self._folder, form, self._files)
        if is_direct:
            self._form.check_tasks()
        self._log = ManifestLog(self._folder, self._files)
        self._repair()

    @property
    def manifest(self) -> Manifest:
        return self._log.manifest

    def add(self, batch: Batch, stage: Stage) -> list[Commit]:
        """Add the part of a batch that the lake does not have yet, in one commit unless it fills several gaps of a queue."""
        # Spark plans a batch again if its checkpoint was lost: then only the messages that are not in the lake count.
        lost = () if self.manifest.has_batch(batch.query, batch.number) else batch.lost
        missing = missing_ranges(batch.ranges, self.manifest.current(), lost)
        done: list[Commit] = []
        for wanted in in_rounds(missing) or ([[]] if lost else []):
            done.append(self._added(batch, wanted, () if done else lost, stage))
        return done

    def _added(self, batch: Batch, wanted: Sequence[QueueRange], lost: Sequence[Lost], stage: Stage) -> Commit:
        with self._staging(is_filtered=batch.is_filtered) as staging:
            added = stage(wanted, staging) if wanted else ()
            spans = [span for file in added for span in file.spans]
            check_within(wanted, spans)
            missing = [] if batch.is_filtered else not_covered(wanted, spans)
            commit = Commit(
                number=staging.number,
                made_ms=self._clock.now_ms(),
                query=batch.query,
                batch=batch.number,
                added=added,
                lost=(*lost, *missing),
                ends=tuple(wanted),
            )
            self._finish(commit)
        return commit

    def compact(self, spark: SparkSession, *, aim_bytes: int, at_least: int) -> list[Commit]:
        """Merge small files, folder by folder; returns the commits."""
        done = []
        for group in groups_to_merge(self.manifest.files.values(), aim_bytes=aim_bytes, at_least=at_least):
            with self._staging() as staging:
                paths = [file.path for file in group]
                added = self._merged(spark, paths, staging)
                before, after = sum(file.rows for file in group), sum(file.rows for file in added)
                if before != after:
                    raise WrongState(
                        f"{len(group)} files of {group[0].folder} have {after:,} messages, but {before:,} in the manifest: another "
                        "program changed them; nothing was compacted"
                    )
                commit = Commit(number=staging.number, made_ms=self._clock.now_ms(), added=added, removed=tuple(paths))
                self._finish(commit)
                done.append(commit)
        return done

    def close(self) -> None:
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _merged(self, spark: SparkSession, paths: list[str], staging: StagingFolder) -> tuple[DataFile, ...]:
        if self._is_direct:
            return stage_merged(spark, self._folder, paths, staging)
        return stage_rows(read_files(spark, self._location, paths, self._form).coalesce(1), staging)

    def _finish(self, commit: Commit) -> None:
        self._log.commit(commit)
        publish(self._folder, commit, self._files)

    @contextmanager
    def _staging(self, *, is_filtered: bool = True) -> Iterator[StagingFolder]:
        """A staging folder for the next commit. After a failure before the commit it is removed."""
        number = self.manifest.number + 1
        staging = self._folder / staging_of(number)
        try:
            yield StagingFolder(staging, number, self._form, self._files, self._location.root, is_filtered)
        except Exception as error:
            if self.manifest.number < number:
                self._clear_after(error, staging)
            if is_full(error):
                free = self._files.usage(self._folder).free
                raise StoreFull(
                    f"the disk of the lake {self._folder} is full ({free:,} bytes free); free some space and run the pipeline "
                    "again: the lake is consistent, and the failed batch is read again"
                ) from error
            raise

    def _clear_after(self, error: Exception, staging: Path) -> None:
        try:
            clear(staging, self._files)
        except OSError as second:  # the next start removes it
            log.warning(
                "Removing %s after a failed batch (%s) failed: %s; the next run removes it", staging, error, second
            )

    def _repair(self) -> None:
        unfinished = clear_unfinished(self._folder, self.manifest.number, self._files)
        if unfinished:
            log.info("Removed %d unfinished batches of an earlier run from %s", len(unfinished), self._folder)
        last = self._log.last()
        if last is not None and self._files.status(self._folder / staging_of(last.number)) is not None:
            publish(self._folder, last, self._files)


def is_full(error: BaseException | None) -> bool:
    """Whether a full disk caused a failure of Python or Spark."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        if any(words in str(error) for words in _FULL):
            return True
        error = error.__cause__
    return False


def frame_stage(rows: DataFrame, ranges: Sequence[QueueRange]) -> Stage:
    """Stages a part of `rows`, which are all rows of `ranges`, with Spark's writer."""

    def stage(wanted: Sequence[QueueRange], staging: StagingFolder) -> tuple[DataFile, ...]:
        return stage_rows(rows if list(wanted) == list(ranges) else rows.where(within(wanted)), staging)

    return stage


def within(wanted: Iterable[QueueRange], names: Sequence[str] = OFFSET_COLUMNS) -> Column:
    """Whether a row is in one of these ranges. `names` are its columns with topic, broker, queue and offset."""
    topic, broker, queue_id, offset = map(functions.col, names)
    parts = [
        (topic == one.queue.topic)
        & (broker == one.queue.broker_name)
        & (queue_id == one.queue.queue_id)
        & offset.between(one.start, one.end - 1)
        for one in wanted
    ]
    return reduce(lambda left, right: left | right, parts, functions.lit(False))
