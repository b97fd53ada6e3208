"""Which Python Spark starts for data sources and tasks.

Spark runs `python3` of the PATH unless `PYSPARK_PYTHON` names another one. In a virtual environment that is used without being activated
(`venv/bin/python job.py`), that is the Python of the system, which does not have PocketMQ: Spark then says DATA_SOURCE_NOT_FOUND. So
the variable is set as soon as a program imports the connector, where it is not set and `python3` is another Python. Java gets its
environment when it starts: the import must come before the session is made, and a later one is reported.
"""

import logging
import os
import sys
from collections.abc import MutableMapping
from pathlib import Path
from typing import Final

from pocketmq.files import find_program

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
