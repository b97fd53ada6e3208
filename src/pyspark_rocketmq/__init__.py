"""The module in which Spark finds `format("rocketmq")`: it imports every `pyspark_…` module and uses its `DefaultSource`.

Spark does so for every read of any source, and finds no source at all if one of these modules cannot be imported. So this
module needs only Spark, and imports the connector when it is used.
"""

from collections.abc import MutableMapping

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from pocketmq import spark
from pocketmq.spark.executors import SentToExecutors

__all__ = ["DefaultSource"]


class DefaultSource(SentToExecutors, DataSource):
    """Topics of RocketMQ; see `pocketmq.spark.source`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        spark.keep_memory()

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    def schema(self) -> StructType:
        return spark.RocketMQSource(self.options).schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        return spark.RocketMQSource(self.options).reader(schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return spark.RocketMQSource(self.options).streamReader(schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return spark.RocketMQSource(self.options).writer(schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        return spark.RocketMQSource(self.options).streamWriter(schema, overwrite)
