"""`format("killing")`: the connector, and at a chosen moment of the second batch, once, something that kills.

    offsets logged ── rows read ── rows written ── tasks done ── sink committed ── batch done
          ▲               ▲             ▲              ▲               ▲               ▲
       partitions        read         write         commit          commit        latestOffset

The victim is the task's own worker, or the driver with the JVM and all its workers. What is to happen stands in three options
of its own, which the connector does not get to see.
"""

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import InputPartition, WriterCommitMessage
from pyspark.sql.types import StructType

from pocketmq.spark.pyspark_versions import LIMITS, ReadLimit, has
from pocketmq.spark.read.stream_reader import TopicStreamReader
from pocketmq.spark.source import RocketMQSource
from pocketmq.spark.write.writer import BATCH_ID_PROPERTY, TopicStreamWriter, _task


class Moment(StrEnum):
    OFFSETS_LOGGED = "offsets-logged"
    ROWS_READ = "rows-read"
    ROWS_WRITTEN = "rows-written"
    TASKS_DONE = "tasks-done"
    SINK_COMMITTED = "sink-committed"
    BATCH_DONE = "batch-done"


class Victim(StrEnum):
    WORKER = "worker"
    DRIVER = "driver"


class Killer:
    """Kills once, if a file exists that the test creates before."""

    def __init__(self, moment: str, victim: str, once: str) -> None:
        self._moment, self._victim, self._once = moment, victim, once

    def at(self, moment: Moment) -> None:
        if moment != self._moment:
            return
        try:
            Path(self._once).touch(exist_ok=False)
        except FileExistsError:
            return
        if self._victim == Victim.DRIVER:
            for pid in _session():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


def _session() -> list[int]:
    """All other processes of this session: the daemon of the workers creates a process group of its own."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal() and int(folder.name) != os.getpid():
            with suppress(ProcessLookupError, PermissionError):
                if os.getsid(int(folder.name)) == os.getsid(0):
                    found.append(int(folder.name))
    return found


class KillingSource(RocketMQSource):
    @classmethod
    def name(cls) -> str:
        return "killing"

    def __init__(self, options: dict[str, str]) -> None:
        own = [options.get(name, "") for name in ("kill.moment", "kill.victim", "kill.once")]
        self._killer = Killer(*own)
        super().__init__({name: text for name, text in options.items() if not name.startswith("kill.")})

    def streamReader(self, schema: StructType) -> TopicStreamReader:
        plain = super().streamReader(schema)
        assert isinstance(plain, TopicStreamReader)
        return KillingReader(plain, self._killer)

    def streamWriter(self, schema: StructType, overwrite: bool) -> TopicStreamWriter:
        plain = super().streamWriter(schema, overwrite)
        assert isinstance(plain, TopicStreamWriter)
        return KillingWriter(plain, self._killer)


class KillingReader(TopicStreamReader):
    def __init__(self, plain: TopicStreamReader, killer: Killer) -> None:
        super().__init__(plain._options, plain._columns)
        self._killer = killer
        self._asked = 0

    def latestOffset(self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None) -> dict[str, Any]:
        self._asked += 1
        if self._asked > 2:
            self._killer.at(Moment.BATCH_DONE)
        return super().latestOffset(start, limit)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if "start" not in start:
            self._killer.at(Moment.OFFSETS_LOGGED)
        return super().partitions(start, end)

    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        for batch in super().read(partition):
            yield batch
            if _is_to_be_killed():
                self._killer.at(Moment.ROWS_READ)


class KillingWriter(TopicStreamWriter):
    def __init__(self, plain: TopicStreamWriter, killer: Killer) -> None:
        super().__init__(plain._options)
        self._killer = killer

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return super().write(self._some_of(iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        if batchId > 0:
            self._killer.at(Moment.TASKS_DONE)
        super().commit(messages, batchId)
        if batchId > 0:
            self._killer.at(Moment.SINK_COMMITTED)

    def _some_of(self, batches: Iterator[Any]) -> Iterator[Any]:
        for number, batch in enumerate(batches):
            if number == 2 and _is_to_be_killed():
                self._killer.at(Moment.ROWS_WRITTEN)
            yield batch


def _is_to_be_killed() -> bool:
    """The second batch. Where PySpark passes no limits, the first one has all rows, and there is no second."""
    return _batch_id() >= int(has(LIMITS))


def _batch_id() -> int:
    return int(_task().getLocalProperty(BATCH_ID_PROPERTY) or 0)
