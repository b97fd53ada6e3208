"""A lake that is written: batches of messages become files of it, small files become large ones, each step whole or not at all.

with Lake(folder, form) as lake:          repairs what a killed run left
    lake.add(batch, stage)                stage ── commit ── publish
    lake.compact(spark)                   the same, with files that are replaced

Which small files become one: a plan, made of the manifest alone.

    folder    ▂ ▂ ▂ █ ▂ ▂            small files of one folder, in the order in which they came
    groups   [▂ ▂ ▂   ▂ ▂]           as many as make about one file of the size aimed at; a large one stays as it is

A file is rewritten at most a few times: what has half the size that is aimed at is no small one any more.
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
from pocketmq.files import DiskFiles, Files
from pocketmq.model.queue import QueueRange
from pocketmq.pipelines.archive.form import Form, archive_rows, keep_form, staging_of
from pocketmq.pipelines.archive.manifest import Commit, DataFile, Manifest, ManifestLog, not_covered, still_to_do
from pocketmq.pipelines.archive.staging import (
    Place,
    Stage,
    clear,
    clear_unfinished,
    publish,
    read_files,
    stage_merged,
    stage_rows,
)
from pocketmq.pipelines.core.libraries import Column, DataFrame, SparkSession, functions
from pocketmq.spark.read.offsets import Cause, Lost

SMALL_PART: Final = 2
"""A file is small below so many parts of the size aimed at."""


def groups_to_merge(files: Iterable[DataFile], *, aim_bytes: int, at_least: int) -> list[list[DataFile]]:
    """Files to be made one, by groups of at least `at_least`, each of about `aim_bytes` together."""
    by_folder: dict[str, list[DataFile]] = {}
    for file in sorted(files, key=lambda file: (file.folder, file.path)):
        if file.bytes * SMALL_PART < aim_bytes:
            by_folder.setdefault(file.folder, []).append(file)
    return [group for small in by_folder.values() for group in _cut(small, aim_bytes) if len(group) >= at_least]


def _cut(small: list[DataFile], aim_bytes: int) -> list[list[DataFile]]:
    groups: list[list[DataFile]] = []
    room = 0
    for file in small:
        if file.bytes > room:
            groups.append([])
            room = aim_bytes
        groups[-1].append(file)
        room -= file.bytes
    return groups


log = logging.getLogger("pocketmq.pipelines")

_FULL: Final = ("No space left on device", "Disk quota exceeded", "ENOSPC")


class Batch(NamedTuple):
    """What a batch was to read, and what of it was gone before it was planned."""

    query: str
    number: int
    ranges: tuple[QueueRange, ...]
    lost: tuple[Lost, ...] = ()
    is_filtered: bool = False
    """Whether messages may be missing because nobody wanted them."""


class Lake:
    """The files of one folder, and their manifest. One process at a time; StoreLocked for a second one."""

    def __init__(self, folder: Path, form: Form, *, files: Files | None = None, clock: Clock | None = None) -> None:
        self._folder = folder
        self._files = files or DiskFiles()
        self._clock = clock or SystemClock()
        self._form = keep_form(folder, form, self._files)
        self._log = ManifestLog(folder, self._files)
        self._repair()

    @property
    def manifest(self) -> Manifest:
        return self._log.manifest

    def add(self, batch: Batch, stage: Stage) -> Commit | None:
        """Make what of a batch is not in the lake part of it; None when all of it is."""
        # Spark may plan a batch anew when its own notes were lost: only what it reads now and is not here counts then.
        lost = () if self.manifest.has_batch(batch.query, batch.number) else batch.lost
        anew = {one.range.queue for one in lost if one.cause is Cause.RECREATION}
        wanted = still_to_do(batch.ranges, self.manifest.ends(), anew)
        if not wanted and not lost:
            return None
        with self._staging() as place:
            added = stage(wanted, place) if wanted else ()
            spans = [span for file in added for span in file.spans]
            gone = [] if batch.is_filtered else not_covered(wanted, spans)
            commit = Commit(
                number=place.number,
                made_ms=self._clock.now_ms(),
                query=batch.query,
                batch=batch.number,
                added=added,
                lost=(*lost, *gone),
                ends=tuple(wanted),
            )
            self._finish(commit)
        return commit

    def compact(self, spark: SparkSession, *, aim_bytes: int, at_least: int) -> list[Commit]:
        """Make one file of many small ones, folder by folder; what was done."""
        done = []
        for group in groups_to_merge(self.manifest.files.values(), aim_bytes=aim_bytes, at_least=at_least):
            with self._staging() as place:
                paths = [file.path for file in group]
                added = self._merged(spark, paths, place)
                before, after = sum(file.rows for file in group), sum(file.rows for file in added)
                if before != after:
                    raise WrongState(
                        f"{len(group)} files of {group[0].folder} hold {after:,} messages and not the {before:,} that the "
                        "manifest has: they were changed by somebody else; nothing was compacted"
                    )
                commit = Commit(number=place.number, made_ms=self._clock.now_ms(), added=added, removed=tuple(paths))
                self._finish(commit)
                done.append(commit)
        return done

    def close(self) -> None:
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _merged(self, spark: SparkSession, paths: list[str], place: Place) -> tuple[DataFile, ...]:
        if self._form.is_quick:
            return stage_merged(spark, self._folder, paths, place)
        return stage_rows(read_files(spark, self._folder, paths, self._form).coalesce(1), place)

    def _finish(self, commit: Commit) -> None:
        self._log.commit(commit)
        publish(self._folder, commit, self._files)

    @contextmanager
    def _staging(self) -> Iterator[Place]:
        """A place for the next commit. After a failure before the commit nothing of it is left."""
        number = self.manifest.number + 1
        staging = self._folder / staging_of(number)
        try:
            yield Place(staging, number, self._form, self._files)
        except Exception as error:
            if self.manifest.number < number:
                self._clear_after(error, staging)
            if is_full(error):
                free = self._files.usage(self._folder).free
                raise StoreFull(
                    f"the disk of the lake {self._folder} is full ({free:,} bytes are free): make room and run it again; "
                    "what is in the lake is whole, and the batch that did not fit is read again"
                ) from error
            raise

    def _clear_after(self, error: Exception, staging: Path) -> None:
        try:
            clear(staging, self._files)
        except OSError as second:  # the next start removes it
            log.warning("what a failed batch left in %s stays there for now: %s (after %s)", staging, second, error)

    def _repair(self) -> None:
        unfinished = clear_unfinished(self._folder, self.manifest.number, self._files)
        if unfinished:
            log.info("removed %d unfinished batches of an earlier run from %s", len(unfinished), self._folder)
        last = self._log.last()
        if last is not None and self._files.status(self._folder / staging_of(last.number)) is not None:
            publish(self._folder, last, self._files)


def is_full(error: BaseException | None) -> bool:
    """Whether a disk without room is behind a failure, of Python or of Spark."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        if any(words in str(error) for words in _FULL):
            return True
        error = error.__cause__
    return False


def frame_stage(messages: DataFrame, ranges: Sequence[QueueRange]) -> Stage:
    """Spark's way to stage what of `ranges`, which are all of `messages`, is wanted."""

    def stage(wanted: Sequence[QueueRange], place: Place) -> tuple[DataFile, ...]:
        rows = messages if list(wanted) == list(ranges) else messages.where(within(wanted))
        return stage_rows(archive_rows(rows, place.form.slot), place)

    return stage


def within(wanted: Iterable[QueueRange]) -> Column:
    """Rows of these ranges."""
    parts = [
        (functions.col("topic") == one.queue.topic)
        & (functions.col("brokerName") == one.queue.broker_name)
        & (functions.col("queueId") == one.queue.queue_id)
        & functions.col("queueOffset").between(one.start, one.end - 1)
        for one in wanted
    ]
    return reduce(lambda left, right: left | right, parts, functions.lit(False))
