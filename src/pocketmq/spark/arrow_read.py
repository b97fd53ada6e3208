"""`pocketmq.read_arrow`: topics as Arrow record batches, for work that needs no Spark.

It plans, pulls and decodes as a batch read of the connector does, in this process and on this thread, and needs only pyarrow and
numpy. Polars, DuckDB and pandas take the result without a copy or row by row work.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from pocketmq.errors import InvalidSetting, MissingLibrary
from pocketmq.spark.options.read_options import ReadOptions, options_with, parse_read_options
from pocketmq.spark.python_processes import NEEDED
from pocketmq.spark.schema import COLUMNS, Name, NeverNull, parse_columns

if TYPE_CHECKING:
    from pocketmq.spark.read.planning import ReadPartition

NO_OPTIONS: Final[Mapping[str, Any]] = {}
IDLE: Final = "rocketmqConsumer.idleTimeoutMs"
"""0 by default: a program that reads once keeps no connection, unlike a worker of Spark."""


def read_arrow(
    topic: str | None = None,
    *,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    options: Mapping[str, Any] = NO_OPTIONS,
) -> Any:
    """A `pyarrow.RecordBatchReader` of the messages that topics have now, queue by queue.

        for batch in read_arrow("orders", columns=["queueOffset", "value"], options={"rocketmq.namesrv.addr": "127.0.0.1:9876"}):
            ...

    `topic` is the option `subscribe`, and `where` the option `filter`. `options` are those of a batch read with Spark. All columns
    are read unless `columns` names some; fewer are faster. MissingLibrary without pyarrow or numpy; InvalidSetting for a wrong
    option or column. What goes wrong later, while brokers are read, is raised by the iteration.
    """
    for library in NEEDED:
        if find_spec(library) is None:
            raise MissingLibrary(f"read_arrow needs the library {library}; run pip install pyarrow numpy")
    from pocketmq.spark.arrow import arrow_schema, pa

    given = options_with(options, topic, where)
    if IDLE.lower() not in map(str.lower, given):
        given[IDLE] = "0"
    parsed = parse_read_options(given, streaming=False, environ=os.environ)
    names = _columns(columns, parsed)
    never_null = NeverNull(
        frozenset(one.name for one in COLUMNS if one.name in names and not one.may_be_null), values=True
    )
    batches = _batches(_planned(parsed, names), parsed, never_null)
    return pa.RecordBatchReader.from_batches(arrow_schema(names, never_null), batches)


def _columns(columns: Sequence[str] | None, options: ReadOptions) -> tuple[Name, ...]:
    if columns is None:
        return tuple(name for name in Name if options.include_properties or name is not Name.PROPERTIES)
    names = parse_columns(columns)
    if Name.PROPERTIES in names and not options.include_properties:
        raise InvalidSetting("columns names the column properties, which includeProperties = false omits")
    return names


def _planned(options: ReadOptions, names: tuple[Name, ...]) -> "list[ReadPartition]":
    from pocketmq.spark.read.batch_plan import plan_batch
    from pocketmq.spark.read.metadata import borrowed_metadata

    with borrowed_metadata(options) as metadata:
        return plan_batch(options, names, metadata, cores=1)


def _batches(partitions: "list[ReadPartition]", options: ReadOptions, never_null: NeverNull) -> Iterator[Any]:
    from pocketmq.spark.read.range_reading import read_partition
    from pocketmq.spark.shared_clients import READING

    with READING.borrow(options.connection, options.idle_timeout_ms):  # one client for all partitions
        for partition in partitions:
            yield from read_partition(partition, never_null)
