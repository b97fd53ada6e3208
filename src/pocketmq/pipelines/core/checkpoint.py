"""The owner of a checkpoint. Spark would continue another query's checkpoint without a warning, and lose or repeat rows.

    CHECKPOINT/pipeline.json    {"pipeline": "archive", "topics": ["orders"], "sink": "the lake /data/lake", "name": "9f86d081884c"}
    CHECKPOINT/pipeline.lock    locked during a run, so that a second run is refused
    CHECKPOINT/batch.json       the start and end offset of the last batch, by the option batchFile of the connector
    CHECKPOINT/offsets/17 …     Spark's: no pipeline reads them

Topics may be added to a pipeline; nothing else may change. If only Spark can access the checkpoint there is no lock: Spark itself
refuses the slower of two runs.

Pipelines keep small files beside their checkpoints: the owner, and state that later batches need.

    local path                           a file, replaced atomically and synced
    object store, or Spark Connect       a folder of text files that Spark writes
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Protocol
from uuid import uuid4

import msgspec
from msgspec.structs import replace

from pocketmq.errors import InvalidSetting, WrongState
from pocketmq.files import DiskFiles, Files, may_write_in, write_atomically
from pocketmq.pipelines.core.libraries import SPARK_ERRORS, SparkSession
from pocketmq.spark.read.offsets import BatchOffsets, read_batch


class StateFiles(Protocol):
    """Texts by name, in one folder."""

    def read(self, name: str) -> str | None:
        """None if there is no such text."""

    def write(self, name: str, text: str) -> None:
        """Replaces an earlier text. One line."""

    def has(self, *names: str) -> bool:
        """Whether one of these names exists."""


class LocalStateFiles:
    """State as local files."""

    def __init__(self, folder: Path, files: Files) -> None:
        self._folder = folder
        self._files = files

    def read(self, name: str) -> str | None:
        path = self._folder / name
        return None if self._files.status(path) is None else self._files.read(path).decode()

    def write(self, name: str, text: str) -> None:
        self._files.make_dir(self._folder)
        write_atomically(self._files, self._folder / name, text.encode())

    def has(self, *names: str) -> bool:
        return any(self._files.status(self._folder / name) is not None for name in names)


class SparkStateFiles:
    """State as small text tables of Spark."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self._spark = spark
        self._folder = folder.rstrip("/")

    def read(self, name: str) -> str | None:
        rows = self._rows(name)
        return str(rows[0][0]) if rows else None

    def write(self, name: str, text: str) -> None:
        table = self._spark.createDataFrame([(text,)], "value string").coalesce(1)
        table.write.mode("overwrite").text(f"{self._folder}/{name}")

    def has(self, *names: str) -> bool:
        return any(self._rows(name) for name in names)

    def _rows(self, name: str) -> list[Any]:
        try:
            return list(self._spark.read.text(f"{self._folder}/{name}").take(1))
        except SPARK_ERRORS as error:
            if "PATH_NOT_FOUND" in str(error):
                return []
            raise


def is_local(folder: str) -> bool:
    """Whether a path belongs to a local file system."""
    return not re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", folder)


def local_path(folder: str) -> str:
    """A path without `file:`. Other URIs stay as they are."""
    found = re.match(r"file:(?://(?:localhost)?)?(?=/(?!/))", folder)
    return folder[found.end() :] if found else folder


def is_classic(spark: SparkSession) -> bool:
    """Whether Spark's driver runs in this process, and not behind Spark Connect."""
    return not type(spark).__module__.startswith("pyspark.sql.connect")


def state_files(spark: SparkSession, folder: str, files: Files | None = None) -> StateFiles:
    """The state files of a folder, accessed directly if it is local."""
    if is_local(folder) and is_classic(spark):
        return LocalStateFiles(Path(folder), files or DiskFiles())
    return SparkStateFiles(spark, folder)


OWNER_FILE: Final = "pipeline.json"
LOCK_FILE: Final = "pipeline.lock"
BATCH_FILE: Final = "batch.json"
_SPARKS_OWN: Final = ("metadata", "offsets", "commits")


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """The pipeline that owns a checkpoint. The first run sets `name`, which stays the same."""

    pipeline: str
    topics: tuple[str, ...] = ()
    sink: str = ""
    name: str = ""

    def __str__(self) -> str:
        topics = f" of {', '.join(self.topics)}" if self.topics else ""
        return f"{self.pipeline}{topics}" + (f" into {self.sink}" if self.sink else "")

    def may_follow(self, before: "Owner") -> bool:
        """Whether it may continue a checkpoint of `before`: the same pipeline, possibly with more topics."""
        same = (self.pipeline, self.sink) == (before.pipeline, before.sink)
        return same and set(self.topics) >= set(before.topics)


@contextmanager
def owned(spark: SparkSession, checkpoint: str, owner: Owner, *, files: Files | None = None) -> Iterator[str]:
    """The checkpoint belongs to `owner` during this context. Yields its name, for writes that must be the same in every run.

    WrongState if it belongs to another pipeline, or another run uses it.
    """
    if not (is_local(checkpoint) and is_classic(spark)):
        yield _claim(SparkStateFiles(spark, checkpoint), checkpoint, owner)
        return
    disk, folder = files or DiskFiles(), Path(checkpoint)
    check_owner(checkpoint, owner, files=disk)  # before changing a folder that may belong to another pipeline
    disk.make_dir(folder)
    with disk.open(folder / LOCK_FILE, create=True) as lock:
        if not lock.lock():
            raise WrongState(
                f"another run of {owner.pipeline} uses the checkpoint {checkpoint}; wait for it, or stop it"
            )
        yield _claim(LocalStateFiles(folder, disk), checkpoint, owner)


def check_owner(checkpoint: str, owner: Owner, *, files: Files | None = None) -> None:
    """WrongState if a local checkpoint belongs to another pipeline, InvalidSetting if it is not writable. Others are checked when the
    pipeline runs.
    """
    if not is_local(checkpoint):
        return
    disk, folder = files or DiskFiles(), Path(checkpoint)
    if (status := disk.status(folder)) is not None and not status.is_dir:
        raise WrongState(f"the checkpoint {checkpoint} is a file; it must be a folder")
    if not may_write_in(folder):
        raise InvalidSetting(
            f"the checkpoint {checkpoint} is not writable; use a folder in which this user may create files"
        )
    _check(LocalStateFiles(folder, disk), checkpoint, owner)


def batch_file(checkpoint: str) -> Path:
    """The file with the offsets of the last batch, of a local checkpoint."""
    return Path(checkpoint).absolute() / BATCH_FILE


def last_batch(checkpoint: str, files: Files) -> BatchOffsets | None:
    """The last batch of a checkpoint, finished or not; None for a new checkpoint, and for one that only Spark can access."""
    if not is_local(checkpoint) or files.status(path := batch_file(checkpoint)) is None:
        return None
    return read_batch(path, files)


def _claim(state: StateFiles, checkpoint: str, owner: Owner) -> str:
    known = _check(state, checkpoint, owner)
    now = replace(owner, name=known.name if known else uuid4().hex[:12])
    if known != now:
        state.write(OWNER_FILE, msgspec.json.encode(now).decode())
    return now.name


def _check(state: StateFiles, checkpoint: str, owner: Owner) -> Owner | None:
    advice = "use another --checkpoint, or remove this one to start again"
    text = state.read(OWNER_FILE)
    if text is None:
        if state.has(*_SPARKS_OWN):
            raise WrongState(f"the checkpoint {checkpoint} belongs to a query that is not a pipeline: {advice}")
        return None
    try:
        known = msgspec.json.decode(text, type=Owner)
    except msgspec.MsgspecError as error:
        raise WrongState(f"{checkpoint}/{OWNER_FILE} is damaged ({error}): {advice}") from None
    if not owner.may_follow(known):
        raise WrongState(f"the checkpoint {checkpoint} belongs to {known}, not to {owner}: {advice}")
    return known
