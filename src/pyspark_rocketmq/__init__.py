"""Where Spark looks for `format("rocketmq")`: it imports every module called `pyspark_…` and takes its `DefaultSource`.

It does so for whoever reads anything, and where one such module cannot be imported it finds none at all. So this one needs nothing but
Spark, and the connector comes with the first question.
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

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
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
