"""How much freed memory a process keeps for new buffers.

glibc maps a block of more than some hundred kilobytes for each allocation, and returns free memory at the end of its heap to the
system, which clears each page again at its first use. For a program that allocates large buffers all the time, that costs as much as its
work on them. `keep_freed` raises both limits. It does nothing on other C libraries, or if glibc's environment variables are set.
"""

import ctypes
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h."""
_VARIABLES: Final = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


MallocOption = Callable[[int, int], int]


class KeptMemory(NamedTuple):
    """How much memory a process keeps."""

    largest_bytes: int
    """The largest buffer to keep; larger ones are returned at once."""
    total_bytes: int
    """The total of free memory to keep."""


SERVER: Final = KeptMemory(4 * 1024 * 1024, 8 * 1024 * 1024)
"""Large batches and pull responses need buffers of one or two megabytes."""


def keep_freed(kept: KeptMemory, environ: Mapping[str, str]) -> bool:
    """Set the limits for the whole process. Returns whether they are in effect. Only for programs, not libraries."""
    return set_limits(kept, environ, _mallopt())


def set_limits(kept: KeptMemory, environ: Mapping[str, str], mallopt: MallocOption | None) -> bool:
    if mallopt is None or any(name in environ for name in _VARIABLES):
        return False
    return mallopt(_MMAP_THRESHOLD, kept.largest_bytes) == 1 and mallopt(_TRIM_THRESHOLD, kept.total_bytes) == 1


def return_free_memory() -> bool:
    """Return all free memory to the system, also between blocks in use. Returns whether that is possible.

    It takes some milliseconds per 100 MB, so it is for the time after a burst.
    """
    trim = _of_libc("malloc_trim")
    if trim is not None:
        trim(0)
    return trim is not None


def _mallopt() -> MallocOption | None:
    found: MallocOption | None = _of_libc("mallopt")
    return found


def _of_libc(name: str) -> Any:
    """A function of glibc, or None."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform.startswith("linux") else None
