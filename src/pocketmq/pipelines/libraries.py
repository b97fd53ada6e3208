"""The door to PySpark: an extra, so that the rest of PocketMQ does not need it. Without it, the error says what to install."""

from pathlib import Path

from pocketmq.errors import MissingLibrary

try:
    import pyspark
    from pyarrow import parquet
    from pyspark.sql import Column, DataFrame, Observation, Row, SparkSession, Window, functions, types
except ImportError as error:
    raise MissingLibrary(f"pipelines need the library {error.name}: pip install 'pocketmq[spark]'") from None

__all__ = [
    "Column",
    "DataFrame",
    "Observation",
    "Row",
    "SparkSession",
    "Window",
    "functions",
    "parquet",
    "pyspark_folder",
    "pyspark_version",
    "types",
]


def pyspark_version() -> str:
    return str(pyspark.__version__)


def pyspark_folder() -> Path:
    """Where PySpark is installed: its programs are below."""
    return Path(pyspark.__path__[0])
