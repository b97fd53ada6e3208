"""Which Python Spark starts for data sources and tasks.

Spark runs `python3` of the PATH unless `PYSPARK_PYTHON` names another one. In a virtual environment that is used without being activated
(`venv/bin/python job.py`), that is the Python of the system, which does not have PocketMQ: Spark then says DATA_SOURCE_NOT_FOUND. So
the variable is set as soon as a program imports the connector, where it is not set and `python3` is another Python. Java gets its
environment when it starts: the import must come before the session is made, and a later one is reported.

What has to be installed where topics are read: looked for by who plans, without importing it, so that no task has to find out.

Errors in the processes that Spark starts: the sentence first, instead of a page of stack.

Spark copies the traceback of a Python data source into the message of its own error, unless `SPARK_HIDE_TRACEBACK` is set in the
process that failed. An error that PocketMQ raises on purpose says what is wrong and what to do, so its traceback is hidden. Such a
process ends with its first error: the variable hides no traceback of anything else.

Memory that stays with a worker of Spark from task to task: freed buffers, and what was imported.

A worker makes the same buffers again and again: see `pocketmq.memory`.

Spark lets Python search all of a worker's memory for garbage after every task, and after each question to one that plans. Most of it are
modules, which are no garbage: with those of Spark and Arrow that takes twenty or thirty milliseconds, ten times as long as a small task or
a plan. So what is there with the first one is set aside.
"""

import gc
import logging
import os
import sys
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from pocketmq.errors import MissingLibrary, PocketMQError
from pocketmq.files import find_program
from pocketmq.memory import KeptMemory, keep_freed

log = logging.getLogger("pocketmq.spark")

VARIABLES: Final = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
USUAL: Final = "python3"


def use_this_python(environ: MutableMapping[str, str] = os.environ, executable: str = sys.executable) -> None:
    """Let Spark run this Python, unless the user has chosen one, or Spark would find this one by itself."""
    if not executable or any(environ.get(name) for name in VARIABLES):
        return
    found = find_program(USUAL, environ.get("PATH"))
    if found is not None and found.parent == Path(executable).parent:
        return
    if _is_java_started():
        log.warning(
            "Spark was started before pocketmq.spark was imported, and runs %s instead of this Python: import pocketmq.spark before the "
            "session is made, or set PYSPARK_PYTHON=%s",
            found or USUAL,
            executable,
        )
        return
    environ.update(dict.fromkeys(VARIABLES, executable))


def _is_java_started() -> bool:
    """Whether this program has a session already: looked up without importing Spark."""
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    return getattr(context, "_gateway", None) is not None


NEEDED: Final = ("numpy", "pyarrow")


def missing(library: str | None) -> MissingLibrary:
    return MissingLibrary(
        f"the Spark connector needs the library {library}: pip install 'pocketmq[spark]' on driver and executors"
    )


@cache
def require_libraries() -> None:
    """MissingLibrary where one is not installed."""
    for library in NEEDED:
        if find_spec(library) is None:
            raise missing(library)


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


WORKER: Final = KeptMemory(16 * 1024 * 1024, 64 * 1024 * 1024)
"""Larger buffers are rare."""


@cache
def keep_memory() -> bool:
    """Once for each process that Spark started for its tasks, and for no other; whether buffers are kept."""
    if not _is_a_worker():
        return False
    gc.collect()  # what is garbage by now would stay for ever
    gc.freeze()
    return keep_freed(WORKER, os.environ)


def _is_a_worker() -> bool:
    """Whether this is a process that Spark runs Python in, and not a program that uses the connector by itself."""
    name = getattr(getattr(sys.modules["__main__"], "__spec__", None), "name", None)
    return name is not None and name.startswith("pyspark.")
