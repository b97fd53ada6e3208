"""The content of a topic as a multiset, and a fault after a send."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.spark.broker_kit import Broker, options

from pocketmq.pipelines.archive.form import schema_of
from pocketmq.spark.options.read_options import parse_read_options
from pocketmq.spark.read.batch_reader import TopicReader
from pocketmq.spark.schema import Name


def bodies(start: int, end: int) -> list[str]:
    return [f"{number}" for number in range(start, end)]


def rows_in(broker: Broker, topic: str) -> list[dict[str, Any]]:
    """The rows of a topic, read without Spark, by queue and offset."""
    names = [Name(part.split()[0]) for part in schema_of(properties=True).split(", ")]
    reader = TopicReader(parse_read_options(options(broker, subscribe=topic), streaming=False, environ={}), names)
    found = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    return sorted(found, key=lambda row: (row["brokerName"], row["queueId"], row["queueOffset"]))


def values_in(broker: Broker, topic: str) -> Counter[str]:
    return Counter(row["value"].decode() for row in rows_in(broker, topic))


class FailsOnce:
    """A function that does its work, and then breaks off once, at its call number `calls`: its caller knows nothing of it."""

    def __init__(self, real: Callable[..., Any], calls: int) -> None:
        self._real = real
        self._left = calls

    def __call__(self, *args: Any, **given: Any) -> Any:
        result = self._real(*args, **given)
        self._left -= 1
        if self._left == 0:
            raise RuntimeError("the machine is gone")
        return result
