"""A batch of metadata, as Spark calls it: the driver reads small tables, and tasks read dead letters."""

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from pocketmq.spark.executors import SentToExecutors
from pocketmq.spark.options.metadata_options import MetadataOptions
from pocketmq.spark.python_processes import require_libraries, short_errors
from pocketmq.spark.read.metadata import ClientMetadata
from pocketmq.spark.read.metadata_tables import LetterRange, letter_ranges, letters_in, names_of_kind, rows_of
from pocketmq.spark.shared_clients import READING


class MetadataReader(SentToExecutors, DataSourceReader):
    """Spark sends it to executors. `columns` are those of the kind that the schema names, in its order."""

    def __init__(self, options: MetadataOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._positions = [names_of_kind(options.metadata).index(name) for name in columns]

    @short_errors()
    def partitions(self) -> Sequence[InputPartition]:
        require_libraries()
        if self._options.metadata == "dead-letters":
            return [InputPartition(part) for part in self._answer(letter_ranges)]
        return [InputPartition(self._answer(rows_of))]

    @short_errors()
    def read(self, partition: InputPartition | None) -> Iterator[Any]:
        """Without partitions, Spark reads one without a value, and PySpark 4.0 reads None."""
        rows = (None if partition is None else partition.value) or []
        if isinstance(rows, LetterRange):
            part = rows
            rows = self._answer(lambda _, metadata: letters_in(part, metadata))
        return iter([tuple(row[position] for position in self._positions) for row in rows])

    def _answer(self, query: Any) -> Any:
        options = self._options
        with READING.borrow(options.connection, options.idle_timeout_ms) as client:
            metadata = ClientMetadata(
                client,
                retries=options.fetch_retries,
                retry_interval_ms=options.fetch_interval_ms,
                ttl_ms=options.metadata_ttl_ms,
            )
            return query(options, metadata)
