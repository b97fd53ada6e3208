"""The Python processes that Spark starts: their interpreter, libraries, errors and memory.

Interpreter: Spark runs `python3` of the PATH unless `PYSPARK_PYTHON` names another Python. In a virtual environment that is used
without being activated (`venv/bin/python job.py`), `python3` is the system's Python, which lacks PocketMQ, and Spark reports
DATA_SOURCE_NOT_FOUND. So importing the connector sets the variable if it is unset and `python3` is another Python. Java reads
its environment when it starts: import the connector before you create the session. A later import logs a warning, and so does
a variable that names another Python of this machine.

Errors: Spark copies the traceback of a Python data source into its own error unless `SPARK_HIDE_TRACEBACK` is set in the failed
process. A PocketMQError explains itself, so its traceback is hidden. Such a process ends with its first error: the variable
hides no other traceback.

Memory: a worker allocates the same buffers for every task, so freed ones are kept; see `pocketmq.memory`. Spark also runs a
full garbage collection after every task and every planning request. Imported modules are most of what it scans, which takes
20 to 30 ms, ten times as long as a small task. So all objects that exist at the first task are frozen.
"""

import gc
import logging
import os
import socket
import sys
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from pocketmq.errors import MissingLibrary, PocketMQError, install_command
from pocketmq.files import find_program
from pocketmq.memory import KeptMemory, keep_freed

log = logging.getLogger("pocketmq.spark")

WORKERS: Final = "PYSPARK_PYTHON"
VARIABLES: Final = (WORKERS, "PYSPARK_DRIVER_PYTHON")
DEFAULT_PYTHON: Final = "python3"


def use_this_python(environ: MutableMapping[str, str] = os.environ, executable: str = sys.executable) -> None:
    """Make Spark run this Python, unless the user chose one or Spark finds this one anyway."""
    if not executable or any(environ.get(name) for name in VARIABLES):
        _warn_of_another(environ.get(WORKERS, ""), environ, executable)
        return
    found = find_program(DEFAULT_PYTHON, environ.get("PATH"))
    if found is not None and found.parent == Path(executable).parent:
        return
    if _is_java_started():
        log.warning(
            "Spark was started before pocketmq.spark was imported, so it runs %s instead of this Python; import pocketmq.spark "
            "before you create the session, or set PYSPARK_PYTHON=%s",
            found or DEFAULT_PYTHON,
            executable,
        )
        return
    environ.update(dict.fromkeys(VARIABLES, executable))


def _warn_of_another(chosen: str, environ: MutableMapping[str, str], executable: str) -> None:
    """Log the choice of the user if it is another Python of this machine. A path of other machines is not found here."""
    found = find_program(chosen, environ.get("PATH")) if chosen else None
    if found is not None and executable and found.absolute().parent != Path(executable).parent:
        log.warning(
            "%s is %s, and this program runs in %s. If that Python lacks PocketMQ, Spark reports DATA_SOURCE_NOT_FOUND; then set %s=%s",
            WORKERS,
            found,
            executable,
            WORKERS,
            executable,
        )


def _is_java_started() -> bool:
    """Whether this program has a session already; does not import Spark."""
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    return getattr(context, "_gateway", None) is not None


HIDE_TRACEBACK: Final = "SPARK_HIDE_TRACEBACK"
NEEDED: Final = ("numpy", "pyarrow")


def missing(library: str | None) -> MissingLibrary:
    return MissingLibrary(
        f"the Spark connector needs the library {library}; run {install_command('spark')}, for the driver and the executors. "
        f"The Python that lacks it: {sys.executable} on {socket.gethostname()}"
    )


@cache
def require_libraries() -> None:
    """MissingLibrary if a library is missing. The driver checks this, without importing them, before any task fails."""
    for library in NEEDED:
        if find_spec(library) is None:
            raise missing(library)


STREAM_RUNNER: Final = "pyspark.sql.streaming.python_streaming_source_runner"
"""The module that Spark runs for a streaming read."""


@contextmanager
def short_errors() -> Iterator[None]:
    """For everything that Spark calls, as a decorator (`@short_errors()`) or a context."""
    try:
        yield
    except PocketMQError:
        if spark_program().startswith("pyspark."):
            os.environ.setdefault(HIDE_TRACEBACK, "1")
        raise


def spark_program() -> str:
    """The module that this process runs, for example `pyspark.daemon`; empty in a user's program."""
    return getattr(getattr(sys.modules["__main__"], "__spec__", None), "name", None) or ""


def is_streaming_read() -> bool:
    """Whether Spark started this process for a streaming read, as opposed to a program that uses the reader itself."""
    return spark_program() == STREAM_RUNNER


PUSHDOWN_PLANNER: Final = "pyspark.sql.worker.data_source_pushdown_filters"
"""The module that Spark runs to plan a batch read with filters, if `spark.sql.python.filterPushdown.enabled` is true."""


def takes_filters() -> bool:
    """Whether Spark offers the filters of a query to readers of this process. Any other process that plans a read fails if
    its reader accepts filters. `pyspark.daemon` imports the module that it runs.
    """
    return spark_program() == PUSHDOWN_PLANNER or PUSHDOWN_PLANNER in sys.modules


WORKER: Final = KeptMemory(16 * 1024 * 1024, 64 * 1024 * 1024)
"""Limits for kept buffers; larger buffers are rare."""


@cache
def keep_memory() -> bool:
    """In a process that Spark started, freeze all objects and keep freed buffers. Returns whether buffers are kept."""
    if not spark_program().startswith("pyspark."):
        return False
    gc.collect()  # existing garbage would never be freed
    gc.freeze()
    return keep_freed(WORKER, os.environ)
