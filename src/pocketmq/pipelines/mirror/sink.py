"""The mirror's own sink for Spark: tasks send, and what they tell about it comes back in a file.

    job ── order ──► format("rocketmq-mirror") ── tasks: `copying` ──► the other cluster
     ▲                                     │ commit, in a process of the driver's machine
     └──────────── runs.json ◄─────────────┘

Spark hands the messages of a commit to nobody but the sink, which it runs in a process of its own; hence the file. (`mapInArrow`, which
gives rows back, would need pandas.)
"""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pocketmq.errors import WrongState
from pocketmq.files import DiskFiles, Files, write_atomically
from pocketmq.pipelines.libraries import DataFrame
from pocketmq.pipelines.mirror.copying import Order, mirror_rows
from pocketmq.pipelines.mirror.offset_map import MirroredRun

NAME: Final = "rocketmq-mirror"
ANSWER: Final = "runs.json"


@dataclasses.dataclass
class RunsMade(WriterCommitMessage):
    """What a task did."""

    runs: tuple[MirroredRun, ...]


class MirrorSink(DataSource):
    """Takes rows of whole queues. Options: `order`, as JSON, and `answer`, the file for the runs."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def writer(self, schema: StructType, overwrite: bool) -> "MirrorWriter":
        order = msgspec.json.decode(self.options["order"], type=Order)
        return MirrorWriter(order, self.options["answer"])


class MirrorWriter(DataSourceArrowWriter):
    """One batch."""

    def __init__(self, order: Order, answer: str) -> None:
        self._order = order
        self._answer = answer

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        task = TaskContext.get()
        assert task is not None, "rows are written by a task"
        runs = mirror_rows(self._order, iterator, task.attemptNumber(), f"stage {task.stageId()}")
        return RunsMade(tuple(runs))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        runs = [run for message in messages if isinstance(message, RunsMade) for run in message.runs]
        write_atomically(DiskFiles(), Path(self._answer), msgspec.json.encode(runs))


def send_batch(rows: DataFrame, order: Order, folder: Path, files: Files) -> list[MirroredRun]:
    """Let Spark send rows; where they went."""
    answer = folder / ANSWER
    if files.status(answer) is not None:
        files.unlink(answer)
    rows.sparkSession.dataSource.register(MirrorSink)
    options = {"order": msgspec.json.encode(order).decode(), "answer": str(answer)}
    rows.write.format(NAME).options(**options).mode("append").save()
    if files.status(answer) is None:
        raise WrongState(f"Spark ended a batch of the mirror without a word about it in {answer}")
    return msgspec.json.decode(files.read(answer), type=list[MirroredRun])
