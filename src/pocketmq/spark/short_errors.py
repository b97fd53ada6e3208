"""Errors in the processes that Spark starts: the sentence first, instead of a page of stack.

Spark copies the traceback of a Python data source into the message of its own error, unless `SPARK_HIDE_TRACEBACK` is set in the
process that failed. An error that PocketMQ raises on purpose says what is wrong and what to do, so its traceback is hidden. Such a
process ends with its first error: the variable hides no traceback of anything else.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pocketmq.errors import PocketMQError

HIDE_TRACEBACK: Final = "SPARK_HIDE_TRACEBACK"
STREAM_RUNNER: Final = "pyspark.sql.streaming.python_streaming_source_runner"
"""What Spark runs in the process of a streaming read."""


@contextmanager
def short_errors() -> Iterator[None]:
    """Around all that Spark calls; also as a decorator: `@short_errors()`."""
    try:
        yield
    except PocketMQError:
        if spark_program().startswith("pyspark."):
            os.environ.setdefault(HIDE_TRACEBACK, "1")
        raise


def spark_program() -> str:
    """The module that this process runs: `pyspark.daemon`, for example. Empty in the program of a user."""
    return getattr(getattr(sys.modules["__main__"], "__spec__", None), "name", None) or ""


def is_streaming_read() -> bool:
    """Whether this is the process that Spark started for a streaming read, and not a program that uses the reader by itself."""
    return spark_program() == STREAM_RUNNER
