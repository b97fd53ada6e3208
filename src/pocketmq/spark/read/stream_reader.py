"""A streaming read. What stands in the checkpoint decides; what is remembered here only saves questions.

Spark                    one process of the driver                                            brokers
initialOffset ─────────► always the same: see `offsets`
latestOffset(start) ───► `stream_driver`: where the next batch ends                          ◄─── asked
partitions(start, end) ► the logged range in the logged number of partitions, whatever the options are now
read(partition) ───────► in an executor, with another copy of this object                    ◄─── pulled
SIGTERM ───────────────► stop: what is known to be done is published once more               ◄─── told

Spark ends the process by SIGTERM, often two of them, without waiting for it; as Python is set up, that would end it at once. Here
the first one is an exit in good order, and the others come too late to disturb it.
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from pocketmq.errors import PocketMQError
from pocketmq.spark.options.options import LARGEST
from pocketmq.spark.options.read_options import ReadOptions
from pocketmq.spark.python_processes import is_streaming_read, keep_memory, require_libraries, short_errors
from pocketmq.spark.read.offsets import UNRESOLVED, QueryOffset, parse_offset, ranges_between
from pocketmq.spark.read.planning import plan_partitions
from pocketmq.spark.read.stream_driver import StreamDriver
from pocketmq.spark.schema import NULLS_ANYWHERE, Name, NeverNull


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Travels to executors as it was made; connections are made by the first question."""

    def __init__(self, options: ReadOptions, columns: Sequence[Name], never_null: NeverNull = NULLS_ANYWHERE) -> None:
        self._options = options
        self._columns = tuple(columns)
        self._never_null = never_null
        self._driver: StreamDriver | None = None
        self._given: QueryOffset | None = None
        self._is_told_to_end = False
        self._is_stopped = False
        if not is_streaming_read():
            keep_memory()  # one that plans query after query, and not only this one

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return dict(UNRESOLVED)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        options = self._options
        if options.max_bytes is not None and options.max_offsets is None:
            return ReadMaxBytes(options.max_bytes)
        if options.max_offsets is not None or options.min_offsets is not None:
            return ReadMaxRows(options.max_offsets or LARGEST)
        # With a limit of any kind this one comes only by a trigger that takes all at once, and waits for nothing.
        return ReadAllAvailable()

    @short_errors()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._asking().fix_target()

    @short_errors()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        before = parse_offset(start)
        after = self._given = self._asking().next(before, everything=isinstance(limit, ReadAllAvailable))
        return start if after is before else after.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return None if self._driver is None else self._driver.latest_seen()

    @short_errors()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        before, after = parse_offset(start), parse_offset(end)
        # The same offset twice is nothing, as when only another source of the query has something new: where its own batch
        # began must not be looked at then.
        ranges = [] if after is None or after == before else ranges_between(before, after)
        if after is not None and ranges and after != self._given:  # a batch that another process has begun is run again
            ranges = self._asking().of_the_same_queues(ranges, after.seen_ms)
        count = None if after is None else after.partitions
        planned = plan_partitions(ranges, self._columns, self._options, cores=os.cpu_count() or 1, count=count)
        return [InputPartition(one) for one in planned]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Where none was planned Spark reads one without a value."""
        from pocketmq.spark.read.range_reading import read_partition

        return iter(()) if partition.value is None else read_partition(partition.value, self._never_null)

    @short_errors()
    def commit(self, end: dict[str, Any]) -> None:
        if (done := parse_offset(end)) is not None:
            self._asking().publish(done.queues)

    def stop(self) -> None:
        if self._driver is not None:
            self._driver.close()
            self._driver = None
        self._is_stopped = True
        if self._is_told_to_end:
            os._exit(0)  # Spark has closed its end, and would only be told, with a traceback in its log, that it has

    def _asking(self) -> StreamDriver:
        if self._driver is None:
            require_libraries()
            self._driver = StreamDriver(self._options)
            self._end_in_good_order()
        return self._driver

    def _end_in_good_order(self) -> None:
        """Let SIGTERM lead to `stop`. Only where nobody else handles it, and signals can be handled at all."""
        if threading.current_thread() is not threading.main_thread() or not is_streaming_read():
            return
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._told_to_end)

    def _told_to_end(self, *_: object) -> None:
        if self._is_stopped:
            os._exit(
                0
            )  # it was stopped already, so this interrupts the end of the process, which would print a traceback
        if not self._is_told_to_end:
            self._is_told_to_end = True
            sys.exit()


class RefusedStreamReader(DataSourceStreamReader):
    """Raises by its first answer. Spark hides an error of `streamReader` behind one of its own: that it has no reader to stop."""

    def __init__(self, error: PocketMQError) -> None:
        self._error = error

    @short_errors()
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        raise self._error

    @short_errors()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        raise self._error

    @short_errors()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[Any]:
        raise self._error
