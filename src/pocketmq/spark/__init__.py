"""The Spark connector: topics as DataFrames, and DataFrames as topics.

Names come when they are asked for. Spark imports this package also where nobody reads a topic, and for each query it starts processes of
which one plans and another one reads: who plans needs no numpy and no pyarrow, and who reads no producer.
"""

from typing import TYPE_CHECKING

from pocketmq.spark.python_program import use_this_python

if TYPE_CHECKING:
    from pocketmq.spark.batch_reader import FilteringTopicReader, TopicReader
    from pocketmq.spark.kept_memory import keep_memory
    from pocketmq.spark.range_reading import read_partition
    from pocketmq.spark.sink_task import note_end, write_rows
    from pocketmq.spark.source import RocketMQSource
    from pocketmq.spark.stream_reader import RefusedStreamReader, TopicStreamReader
    from pocketmq.spark.writer import TopicStreamWriter, TopicWriter
else:

    def __getattr__(name: str) -> object:
        if name == "RocketMQSource":
            from pocketmq.spark.source import RocketMQSource

            return RocketMQSource
        if name in ("TopicReader", "FilteringTopicReader"):
            from pocketmq.spark import batch_reader

            return getattr(batch_reader, name)
        if name in ("TopicStreamReader", "RefusedStreamReader"):
            from pocketmq.spark import stream_reader

            return getattr(stream_reader, name)
        if name in ("TopicWriter", "TopicStreamWriter"):
            from pocketmq.spark import writer

            return getattr(writer, name)
        if name == "keep_memory":
            from pocketmq.spark.kept_memory import keep_memory

            return keep_memory
        if name == "read_partition":
            from pocketmq.spark.range_reading import read_partition

            return read_partition
        if name in ("write_rows", "note_end"):
            from pocketmq.spark import sink_task

            return getattr(sink_task, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


use_this_python()

__all__ = [
    "FilteringTopicReader",
    "RefusedStreamReader",
    "RocketMQSource",
    "TopicReader",
    "TopicStreamReader",
    "TopicStreamWriter",
    "TopicWriter",
    "keep_memory",
    "note_end",
    "read_partition",
    "write_rows",
]
