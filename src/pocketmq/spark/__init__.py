"""The Spark connector: topics as DataFrames, and DataFrames as topics.

`RocketMQSource` comes when it is asked for, with numpy, pyarrow and a client; Spark imports this package also where nobody reads a topic.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pocketmq.spark.source import RocketMQSource
else:

    def __getattr__(name: str) -> object:
        if name == "RocketMQSource":
            from pocketmq.spark.source import RocketMQSource

            return RocketMQSource
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["RocketMQSource"]
