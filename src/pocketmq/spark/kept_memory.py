"""Memory that stays with a worker of Spark from task to task: freed buffers, and what was imported.

glibc maps what is larger than some hundred kilobytes anew each time and gives back what is free at its end. For a worker that makes the
same buffers again and again that costs as much as what it does with them. Other systems are left alone, and so is who has set the
variables of glibc himself.

Spark lets Python search all of a worker's memory for garbage after every task. Most of it are modules, which are no garbage: with those of
Spark and Arrow that takes thirty milliseconds, ten times as long as a small task. So what is there with the first task is set aside.
"""

import ctypes
import gc
import os
import sys
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

KEPT_BYTES: Final = 64 * 1024 * 1024
"""At most so much that is free stays with a process."""
LARGEST_KEPT_BYTES: Final = 16 * 1024 * 1024
"""Of one buffer; larger ones are rare, and given back at once."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h."""
_VARIABLES: Final = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


@cache
def keep_memory() -> bool:
    """Once for each process that Spark started for its tasks, and for no other; whether buffers are kept."""
    if not _is_a_worker():
        return False
    gc.collect()  # what is garbage by now would stay for ever
    gc.freeze()
    return told_to_keep(os.environ, _mallopt())


def told_to_keep(environ: Mapping[str, str], mallopt: Callable[[int, int], int] | None) -> bool:
    if mallopt is None or any(name in environ for name in _VARIABLES):
        return False
    return mallopt(_MMAP_THRESHOLD, LARGEST_KEPT_BYTES) == 1 and mallopt(_TRIM_THRESHOLD, KEPT_BYTES) == 1


def _is_a_worker() -> bool:
    """Whether this is a process that Spark runs Python in, and not a program that uses the connector by itself."""
    name = getattr(getattr(sys.modules["__main__"], "__spec__", None), "name", None)
    return name is not None and name.startswith("pyspark.")


def _mallopt() -> Callable[[int, int], int] | None:
    if not sys.platform.startswith("linux"):
        return None
    found: Any = getattr(ctypes.CDLL(None), "mallopt", None)  # other libraries of C do not have it
    return None if found is None else found
