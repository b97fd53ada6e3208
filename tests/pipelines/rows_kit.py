"""Rows as they are read from topics, built without a broker."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pocketmq.spark.schema import COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def messages(spark: "SparkSession", bodies: Sequence[Any], keys: Sequence[str | None] | None = None) -> "DataFrame":
    """A message for each body, in one queue; what is not bytes becomes JSON."""
    rows = [
        (
            "orders",
            "broker-a",
            0,
            number,
            f"id-{number}",
            keys[number] if keys else f"key-{number}",
            "tag",
            body if isinstance(body, bytes) else json.dumps(body).encode(),
            {"said": "so", "UNIQ_KEY": f"id-{number}"},
            None,
            None,
            0,
        )
        for number, body in enumerate(bodies)
    ]
    return spark.createDataFrame(rows, ", ".join(f"{column.name} {column.type}" for column in COLUMNS))
