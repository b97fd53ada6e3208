"""Memory that stays with a worker of Spark from task to task: freed buffers, and what was imported.

A worker makes the same buffers again and again: see `pocketmq.memory`.

Spark lets Python search all of a worker's memory for garbage after every task, and after each question to one that plans. Most of it are
modules, which are no garbage: with those of Spark and Arrow that takes twenty or thirty milliseconds, ten times as long as a small task or
a plan. So what is there with the first one is set aside.
"""

import gc
import os
import sys
from functools import cache
from typing import Final

from pocketmq.memory import KeptMemory, keep_freed

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
