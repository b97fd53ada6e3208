"""Where Spark looks for `format("rocketmq")`: it imports every module called `pyspark_…` and takes its `DefaultSource`."""

from pocketmq.spark.source import RocketMQSource as DefaultSource

__all__ = ["DefaultSource"]
