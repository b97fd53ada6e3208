"""Whose a checkpoint is. Spark would go on with the checkpoint of another query without a word, and lose or double rows.

    CHECKPOINT/pipeline.json    {"pipeline": "archive", "topics": ["orders"], "sink": "the lake /data/lake", "name": "9f86d081884c"}
    CHECKPOINT/pipeline.lock    held while a run lasts, so that a second one is refused
    CHECKPOINT/offsets/17 …     Spark's

Topics may be added to a pipeline; everything else must stay as it is. Where only Spark can reach the checkpoint there is no lock:
Spark itself refuses the slower one of two runs.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from uuid import uuid4

import msgspec
from msgspec.structs import replace

from pocketmq.errors import WrongState
from pocketmq.files import DiskFiles, Files
from pocketmq.pipelines.libraries import SparkSession
from pocketmq.pipelines.notes import FileNotes, Notes, SparkNotes, is_classic, is_local
from pocketmq.spark.offsets import QueryOffset, parse_offset

__all__ = ["Owner", "check_owner", "is_local", "last_offset", "owned"]

OWNER_FILE: Final = "pipeline.json"
LOCK_FILE: Final = "pipeline.lock"
_SPARKS_OWN: Final = ("metadata", "offsets", "commits")


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """The pipeline that a checkpoint belongs to. `name` is given by the first run, and stays."""

    pipeline: str
    topics: tuple[str, ...] = ()
    sink: str = ""
    name: str = ""

    def __str__(self) -> str:
        topics = f" of {', '.join(self.topics)}" if self.topics else ""
        return f"{self.pipeline}{topics}" + (f" into {self.sink}" if self.sink else "")

    def may_follow(self, before: "Owner") -> bool:
        """Whether it may go on with a checkpoint of `before`: the same, or with more topics."""
        same = (self.pipeline, self.sink) == (before.pipeline, before.sink)
        return same and set(self.topics) >= set(before.topics)


@contextmanager
def owned(spark: SparkSession, checkpoint: str, owner: Owner, *, files: Files | None = None) -> Iterator[str]:
    """The checkpoint is `owner`'s while this lasts. Its name, for writes that must be the same in every run of it.

    WrongState when it is another's, or another run uses it.
    """
    if not (is_local(checkpoint) and is_classic(spark)):
        yield _taken(SparkNotes(spark, checkpoint), checkpoint, owner)
        return
    disk, folder = files or DiskFiles(), Path(checkpoint)
    check_owner(checkpoint, owner, files=disk)  # before anything is made in a folder that may be another's
    disk.make_dir(folder)
    with disk.open(folder / LOCK_FILE, create=True) as lock:
        if not lock.lock():
            raise WrongState(
                f"another run of {owner.pipeline} uses the checkpoint {checkpoint}: wait for it, or stop it"
            )
        yield _taken(FileNotes(folder, disk), checkpoint, owner)


def check_owner(checkpoint: str, owner: Owner, *, files: Files | None = None) -> None:
    """WrongState when a checkpoint of this machine is another's. One that only Spark can reach is checked when it is used."""
    if not is_local(checkpoint):
        return
    disk, folder = files or DiskFiles(), Path(checkpoint)
    if (status := disk.status(folder)) is not None and not status.is_dir:
        raise WrongState(f"the checkpoint {checkpoint} is a file: give a folder")
    _check(FileNotes(folder, disk), checkpoint, owner)


def last_offset(folder: Path, files: Files) -> QueryOffset | None:
    """How far the query of a checkpoint is, or will be when its batch under way is done; None for a new one."""
    batches = sorted(int(name) for name in files.list(folder / "offsets") if name.isdecimal())
    return offset_of(folder, batches[-1], files) if batches else None


def offset_of(folder: Path, batch: int, files: Files) -> QueryOffset | None:
    """Where a batch of the query ends, which Spark notes before it begins; None for a query of other sources."""
    lines = files.read(folder / "offsets" / str(batch)).decode().splitlines()
    for line in lines[2:]:  # the version, the metadata, and an offset for each source
        offset = parse_offset(msgspec.json.decode(line)) if line.startswith("{") else None
        if offset is not None:
            return offset
    return None


def _taken(notes: Notes, checkpoint: str, owner: Owner) -> str:
    known = _check(notes, checkpoint, owner)
    now = replace(owner, name=known.name if known else uuid4().hex[:12])
    if known != now:
        notes.write(OWNER_FILE, msgspec.json.encode(now).decode())
    return now.name


def _check(notes: Notes, checkpoint: str, owner: Owner) -> Owner | None:
    advice = "give another --checkpoint, or remove this one to begin anew"
    text = notes.read(OWNER_FILE)
    if text is None:
        if notes.has(*_SPARKS_OWN):
            raise WrongState(f"the checkpoint {checkpoint} belongs to a query that is none of our pipelines: {advice}")
        return None
    try:
        known = msgspec.json.decode(text, type=Owner)
    except msgspec.MsgspecError as error:
        raise WrongState(f"{checkpoint}/{OWNER_FILE} is damaged ({error}): {advice}") from None
    if not owner.may_follow(known):
        raise WrongState(f"the checkpoint {checkpoint} belongs to: {known}. This is: {owner}. Please {advice}")
    return known
