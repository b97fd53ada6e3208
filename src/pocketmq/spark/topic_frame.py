"""`read_topic`: a topic as a DataFrame that reads only the columns that it needs.

Spark 4.3 does not pass the columns of a query to a Python source: `select("value")` decodes all of them. The schema of a read
decides, and this function writes it.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pocketmq.spark.options.read_options import options_with
from pocketmq.spark.schema import parse_columns
from pocketmq.spark.source import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NO_OPTIONS: Final[Mapping[str, Any]] = {}


def read_topic(
    spark: "SparkSession",
    topic: str | None = None,
    *,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    stream: bool = False,
    options: Mapping[str, Any] = NO_OPTIONS,
) -> "DataFrame":
    """A batch, or with `stream` a stream, of these columns, or of all.

    `topic` is the option `subscribe`, and `where` the option `filter`: it may use columns that are not read. InvalidSetting for a
    column or a condition that does not exist; Spark reports other wrong options on the first use.
    """
    reader: Any = (spark.readStream if stream else spark.read).format("rocketmq")
    given = options_with(options, topic, where)
    if columns is not None:
        reader = reader.schema(spark_schema(parse_columns(columns)))
    frame: DataFrame = reader.options(**given).load()
    return frame
