"""The Spark connector: topics as DataFrames, and DataFrames as topics.

Spark imports this package in every Python process that it starts. The public names load on first use, so that planning
needs neither numpy nor pyarrow, and reading needs no producer.

Modules in reading order:

    source             `format("rocketmq")`: the DataSource class; `read_topic`: a DataFrame of some columns
    arrow_read         `pocketmq.read_arrow`: Arrow batches without Spark
    lineage            `Lineage`: events for OpenLineage about queries, batches and pipelines
    schema             the columns of a topic
    filters/           conditions on columns and properties
    options/           options of reads and writes
    read/              batch and streaming reads
    decode/            records to Arrow batches
    write/             batch and streaming writes
    arrow              Spark types as Arrow types
    broker_facts       queries to brokers: interfaces and their answers
    shared_clients     one client per cluster and process, kept between tasks
    pyspark_versions   what each PySpark offers, and stand-ins for what it lacks
    executors          objects on their way to executors, which may lack PocketMQ
    python_processes   the Python that Spark starts: interpreter, libraries, errors, memory
    java               finds the Java that Spark needs
"""

from typing import TYPE_CHECKING

from pocketmq.spark.python_processes import keep_memory, use_this_python

if TYPE_CHECKING:
    from pocketmq.spark.lineage import Lineage
    from pocketmq.spark.source import RocketMQSource, read_topic
else:

    def __getattr__(name: str) -> object:
        if name in ("RocketMQSource", "read_topic"):
            from pocketmq.spark import source

            public: object = getattr(source, name)
            return public
        if name == "Lineage":
            from pocketmq.spark.lineage import Lineage

            return Lineage
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


use_this_python()

__all__ = ["Lineage", "RocketMQSource", "keep_memory", "read_topic"]
