"""The only module of the pipelines that imports PySpark, an extra. Without it, the error says what to install.

It also reduces an error of Spark to one text: the error of a task arrives inside a Java stack of hundreds of lines.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pocketmq.errors import MissingLibrary, PipelineFailed, install_command

try:
    import pyspark
    from pyarrow import parquet
    from pyspark.errors import PySparkException
    from pyspark.sql import Column, DataFrame, Observation, Row, SparkSession, Window, functions, types
except ImportError as error:
    raise MissingLibrary(f"pipelines need the library {error.name}; run {install_command('spark')}") from None

__all__ = [
    "SPARK_ERRORS",
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


try:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
except ImportError:  # the package pyspark-client has no Java bridge
    SPARK_ERRORS: tuple[type[Exception], ...] = (PySparkException,)
else:
    SPARK_ERRORS = (PySparkException, Py4JError)


def pyspark_version() -> str:
    return str(pyspark.__version__)


def pyspark_folder() -> Path:
    """The folder of PySpark, which contains its programs."""
    return Path(pyspark.__path__[0])


_OURS: Final = re.compile(r"^(?:Caused by: )?(?:.*?: )?pocketmq\.errors\.(\w+): (.+)$", re.MULTILINE)
_LACKING: Final = re.compile(r"No module named '((?:pocketmq|pyspark_rocketmq|numpy|pyarrow|msgspec)[\w.]*)'")
_OF_PYTHON: Final = re.compile(r"^([\w.]*(?:Error|Exception)): (.+)$", re.MULTILINE)
_CONDITION: Final = re.compile(r"\[([A-Z][A-Z0-9_.]+)\] ((?:(?!\[[A-Z][A-Z0-9_.]+\] ).)+)")
_OF_JAVA: Final = re.compile(r"(?:Caused by: |: )((?:java|org)\.[\w.$]+(?:Exception|Error)): (.+)")
_STREAM: Final = re.compile(r"\[STREAM_FAILED\] Query \[.*?\] terminated with exception: ")
_OF_PYSPARK: Final = re.compile(
    r"^pyspark\.errors\.(?:\w+\.)*((?!StreamingQueryException)\w+(?:Error|Exception)): (.+)$", re.MULTILINE
)
_OUTER: Final = ("STREAM_FAILED", "FOREACH_BATCH_USER_FUNCTION_ERROR")
"""Conditions that only say where another error happened."""
SHOWN_CHARS: Final = 600


@contextmanager
def pipeline_failures() -> Iterator[None]:
    """Raises PipelineFailed, with a short text, instead of an error of Spark or of its Java bridge."""
    try:
        yield
    except SPARK_ERRORS as error:
        raise PipelineFailed(error_text(error)) from error


def error_text(error: BaseException) -> str:
    """The text of the first error that explains the failure: ours, then Python's, then Spark's, then Java's."""
    text = _STREAM.sub("", str(error))
    if found := _OURS.findall(text):
        return _short(found[-1][1])
    if found := _LACKING.findall(text):
        return (
            f"an executor does not have the module {found[-1]}: run pip install 'pocketmq[spark]' in the Python of all executors, or "
            "send it there by --spark spark.archives=…"
        )
    if "No space left on device" in text:
        return "the disk is full: No space left on device. Free some space, and run it again: it continues where it stopped"
    if found := [pair for pair in _OF_PYTHON.findall(text) if not pair[0].startswith(("org.", "java.", "pyspark."))]:
        return _short(f"{found[-1][0]}: {found[-1][1]}")
    if found := [pair for pair in _CONDITION.findall(text) if pair[0] not in _OUTER]:
        return f"{_short(found[-1][1])} [{found[-1][0]}]"
    if found := _OF_PYSPARK.findall(text):
        return _short(f"{found[-1][0]}: {found[-1][1]}")
    if found := _OF_JAVA.findall(text):
        return _short(f"{found[-1][0].rpartition('.')[2]}: {found[-1][1]}")
    return _short(text.strip().partition("\n")[0] or type(error).__name__)


def _short(text: str) -> str:
    text = text.split(" SQLSTATE:")[0].strip()
    return text if len(text) <= SHOWN_CHARS else text[:SHOWN_CHARS] + "…"
