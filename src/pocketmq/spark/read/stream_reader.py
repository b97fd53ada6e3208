"""A streaming read. The checkpoint decides; state in this process only saves requests.

Spark                    one process of the driver                                            brokers
initialOffset ─────────► always the same: see `offsets`
latestOffset(start) ───► `stream_driver`: the end of the next batch                          ◄─── queried
partitions(start, end) ► the logged range in the logged number of partitions, whatever the options are now
read(partition) ───────► in an executor, with another copy of this object                    ◄─── pulled
SIGTERM ───────────────► stop: publish the offsets of the last batch                         ◄─── committed

Spark ends the process by SIGTERM, often sent twice, without waiting for it. By default that kills Python at once. Here the first
SIGTERM starts an orderly exit, and later ones are ignored.
"""

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pocketmq.errors import PocketMQError
from pocketmq.spark.executors import SentToExecutors
from pocketmq.spark.options.options import LARGEST
from pocketmq.spark.options.read_options import ReadOptions
from pocketmq.spark.pyspark_versions import (
    LIMITS,
    REPORTS,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
    has,
)
from pocketmq.spark.python_processes import (
    is_streaming_read,
    keep_memory,
    require_libraries,
    short_errors,
)
from pocketmq.spark.read.offsets import SEEN, UNRESOLVED, QueryOffset, parse_offset, ranges_between, write_batch
from pocketmq.spark.read.planning import plan_partitions
from pocketmq.spark.read.stream_driver import StreamDriver
from pocketmq.spark.schema import NULLS_ANYWHERE, Name, NeverNull

log = logging.getLogger("pocketmq.spark")


class TopicStreamReader(SentToExecutors, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Spark sends it to executors; it connects on the first request."""

    def __init__(self, options: ReadOptions, columns: Sequence[Name], never_null: NeverNull = NULLS_ANYWHERE) -> None:
        self._options = options
        self._columns = tuple(columns)
        self._never_null = never_null
        self._driver: StreamDriver | None = None
        self._planned: QueryOffset | None = None
        self._reached: dict[str, Any] = dict(UNRESOLVED)
        self._is_first_call = True
        self._is_terminated = False
        self._is_stopped = False
        if not is_streaming_read():
            keep_memory()  # this process plans many queries

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return dict(UNRESOLVED)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        options = self._options
        if options.max_bytes is not None and options.max_offsets is None:
            return ReadMaxBytes(options.max_bytes)
        if options.max_offsets is not None or options.min_offsets is not None:
            return ReadMaxRows(options.max_offsets or LARGEST)
        # If any limit is set, Spark passes this one only for a trigger that reads all available messages.
        return ReadAllAvailable()

    @short_errors()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._connected().fix_target()

    @short_errors()
    def latestOffset(  # noqa: N802
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """Without arguments, as PySpark 4.0 and 4.1 call it: from the end of the last batch that Spark planned."""
        if start is None or limit is None:
            start, limit = self._reached, self._own_limit()
        before = parse_offset(start)
        driver = self._connected()
        after = self._planned = driver.next(before, everything=isinstance(limit, ReadAllAvailable))
        if after is before:
            return start
        fields = after.to_json()
        if not has(REPORTS):
            fields[SEEN] = driver.latest_seen()
        return fields

    def _own_limit(self) -> ReadLimit:
        """PySpark 4.0 and 4.1 do not say which trigger a query has. `availableNow` and `once` call only once, and need everything."""
        limit = self.getDefaultReadLimit()
        if not self._is_first_call or isinstance(limit, ReadAllAvailable):
            return limit
        self._is_first_call = False
        log.warning(
            "PySpark %s passes no limits to Python data sources: %s. PySpark %s.%s passes them",
            pyspark.__version__,
            LIMITS.without,
            *LIMITS.since,
        )
        return ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return None if self._driver is None else self._driver.latest_seen()

    @short_errors()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        # Before its first call of latestOffset after a restart, PySpark 4.0 and 4.1 plan an empty batch at the last end.
        self._reached = end
        before, after = parse_offset(start), parse_offset(end)
        # Equal offsets mean an empty batch, as when only another source of the query has new messages. The start of their own
        # batch must not be used then.
        ranges = [] if after is None or after == before else ranges_between(before, after)
        if after is not None and ranges and after != self._planned:  # the batch was planned by an earlier process
            ranges = self._connected().without_recreated(ranges, after.seen_ms)
        count = None if after is None else after.partitions
        plan = None
        if ranges and (self._options.filter is not None or self._options.filter_sql is not None):
            plan = self._connected().planned_filter([part.queue for part in ranges])
            ranges = [part for part in map(plan.pushed.narrowed, ranges) if part is not None]
        cores = os.cpu_count() or 1
        planned = plan_partitions(ranges, self._columns, self._options, cores=cores, count=count, plan=plan)
        if self._options.batch_file is not None:
            write_batch(Path(self._options.batch_file), start, end)
        return [InputPartition(one) for one in planned]

    @short_errors()
    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        """Without partitions, Spark reads one without a value, and PySpark 4.0 reads None."""
        from pocketmq.spark.read.range_reading import read_partition

        return (
            iter(())
            if partition is None or partition.value is None
            else read_partition(partition.value, self._never_null)
        )

    @short_errors()
    def commit(self, end: dict[str, Any]) -> None:
        if (done := parse_offset(end)) is not None:
            self._connected().publish(done.queues)

    def stop(self) -> None:
        if self._driver is not None:
            self._driver.close()
            self._driver = None
        self._is_stopped = True
        if self._is_terminated:
            os._exit(0)  # Spark has closed its end; a normal exit would log a traceback about that

    def _connected(self) -> StreamDriver:
        if self._driver is None:
            require_libraries()
            self._driver = StreamDriver(self._options)
            self._handle_sigterm()
        return self._driver

    def _handle_sigterm(self) -> None:
        """Make SIGTERM call `stop`, if signals can be handled here and have no other handler."""
        if threading.current_thread() is not threading.main_thread() or not is_streaming_read():
            return
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._terminate)

    def _terminate(self, *_: object) -> None:
        if self._is_stopped:
            os._exit(0)  # already exiting; an exception here would print a traceback
        if not self._is_terminated:
            self._is_terminated = True
            sys.exit()


class FailingStreamReader(SentToExecutors, DataSourceStreamReader):
    """Raises on the first call. If `streamReader` raised, Spark would report that it has no reader to stop instead."""

    def __init__(self, error: PocketMQError) -> None:
        self._error = error

    @short_errors()
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        raise self._error

    @short_errors()
    def latestOffset(  # noqa: N802
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        raise self._error

    @short_errors()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[Any]:
        raise self._error
