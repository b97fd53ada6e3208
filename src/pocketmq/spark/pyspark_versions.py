"""What PySpark 4.0 to 4.3 offer a Python data source, and what the connector does where a version lacks it.

Names that only newer versions have are imported from here. For older versions they are defined here: the connector then has one
class for each purpose, and Spark ignores what it does not know.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from pyspark import __version__
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter

Version = tuple[int, int]

PYSPARK: Final[Version] = (int(__version__.split(".")[0]), int(__version__.split(".")[1]))
"""The version that runs, without its patch number."""
SUPPORTED: Final[tuple[Version, ...]] = ((4, 0), (4, 1), (4, 2), (4, 3))


class Feature(NamedTuple):
    """What PySpark offers since a version, and what happens without it."""

    what: str
    since: Version
    name: str
    """What PySpark has since then; empty for what only Java has."""
    without: str = ""


PUSHDOWN: Final = Feature(
    "filter push-down",
    (4, 1),
    "pyspark.sql.datasource.DataSourceReader.pushFilters",
    "Spark applies all filters; options such as `filterTags` and `startingTimestamp` still narrow a read",
)
LIMITS: Final = Feature(
    "limits of a micro-batch: `maxOffsetsPerTrigger`, `maxBytesPerTrigger`, `minOffsetsPerTrigger`",
    (4, 2),
    "pyspark.sql.streaming.datasource.ReadMaxRows",
    "the first micro-batch after each start reads the whole backlog; later ones observe the limits",
)
REPORTS: Final = Feature(
    "`latestOffset` in the progress: ends of queues, lag, problems",
    (4, 2),
    "pyspark.sql.datasource.DataSourceStreamReader.reportLatestOffset",
    "`endOffset` contains it as `seen`, as of the planning of the batch; an outage is only logged",
)
NAMED_SOURCES: Final = Feature(
    "named sources: `readStream.name`",
    (4, 2),
    "pyspark.sql.streaming.readwriter.DataStreamReader.name",
    "Spark identifies sources by their order in the query: do not change it",
)
DOUBLED_QUOTES: Final = Feature(
    "`''` for a quote in a text of SQL",
    (4, 1),
    "",
    "Spark joins the parts: `'it''s'` is `its`. The option `filter` refuses it; write `\"it's\"`",
)
FEATURES: Final = (
    Feature("batch reads", (4, 0), "pyspark.sql.datasource.DataSourceReader"),
    Feature("streaming reads", (4, 0), "pyspark.sql.datasource.DataSourceStreamReader"),
    Feature("batch writes of Arrow batches", (4, 0), "pyspark.sql.datasource.DataSourceArrowWriter"),
    Feature(
        "streaming writes of Arrow batches",
        (4, 1),
        "pyspark.sql.datasource.DataSourceStreamArrowWriter",
        "the connector writes them through the class for batch writes, which Spark 4.0 also accepts for streams",
    ),
    PUSHDOWN,
    DOUBLED_QUOTES,
    LIMITS,
    Feature(
        "`availableNow` in several micro-batches",
        (4, 2),
        "pyspark.sql.streaming.datasource.SupportsTriggerAvailableNow",
        "one micro-batch with the whole backlog; after a failed batch, a run repeats only that batch. Its offsets are published to "
        "`groupId` by the next run, or at once by a `ProgressListener`",
    ),
    REPORTS,
    NAMED_SOURCES,
    Feature(
        "profiles: `spark.sql.pyspark.dataSource.profiler`",
        (4, 2),
        "pyspark.sql.worker.utils.worker_run",
        "profile the worker processes from outside, for example with py-spy",
    ),
    Feature(
        "`spark.python.unix.domain.socket.enabled`",
        (4, 1),
        "",
        "Spark uses TCP, which takes about 40 ms more for a micro-batch",
    ),
    Feature(
        "`spark-pipelines`, and with it `pocketmq pipeline run`",
        (4, 1),
        "pyspark.pipelines.create_sink",
        "write the query as a program",
    ),
)


def has(feature: Feature) -> bool:
    """Whether the PySpark that runs offers it."""
    return feature.since <= PYSPARK


if PYSPARK >= (4, 1):
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
else:

    class DataSourceStreamArrowWriter(DataSourceStreamWriter, DataSourceArrowWriter):  # type: ignore[no-redef, misc]
        """Spark 4.0 passes Arrow batches to any writer that is a DataSourceArrowWriter."""


if PYSPARK >= (4, 2):
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
else:

    class ReadLimit:  # type: ignore[no-redef]
        """A limit of a micro-batch."""

    @dataclass
    class ReadAllAvailable(ReadLimit):  # type: ignore[no-redef]
        """No limit."""

    @dataclass
    class ReadMaxRows(ReadLimit):  # type: ignore[no-redef]
        """A limit of rows."""

        max_rows: int

    @dataclass
    class ReadMaxBytes(ReadLimit):  # type: ignore[no-redef]
        """A limit of bytes."""

        max_bytes: int

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Marks readers for newer versions."""


__all__ = [
    "DOUBLED_QUOTES",
    "FEATURES",
    "LIMITS",
    "NAMED_SOURCES",
    "PUSHDOWN",
    "PYSPARK",
    "REPORTS",
    "SUPPORTED",
    "DataSourceStreamArrowWriter",
    "Feature",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
    "Version",
    "has",
]
