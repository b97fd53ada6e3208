"""What a process does with memory that it has freed: it keeps some, for the next buffers of the same size.

    made ── freed ── made again        glibc maps what is larger than some hundred kilobytes anew each time, and gives back what is
                                       free at the end of its heap: the system clears every page again, at the first touch

For a program that makes the same buffers again and again, that costs as much as what it does with them. Other systems are left alone,
and so is who has set the variables of glibc himself.
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
    """How much stays with a process."""

    largest_bytes: int
    """Of one buffer; larger ones are given back at once."""
    total_bytes: int
    """Of all that is free."""


SERVER: Final = KeptMemory(4 * 1024 * 1024, 8 * 1024 * 1024)
"""Large batches and answers to large pulls are made of buffers of a megabyte or two."""


def keep_freed(kept: KeptMemory, environ: Mapping[str, str]) -> bool:
    """For the whole process, so only who owns it may ask for it; whether it is so now."""
    return told_to_keep(kept, environ, _mallopt())


def told_to_keep(kept: KeptMemory, environ: Mapping[str, str], mallopt: MallocOption | None) -> bool:
    if mallopt is None or any(name in environ for name in _VARIABLES):
        return False
    return mallopt(_MMAP_THRESHOLD, kept.largest_bytes) == 1 and mallopt(_TRIM_THRESHOLD, kept.total_bytes) == 1


def give_back_freed() -> bool:
    """Give all that is free to the system, also what lies between things in use; whether that is possible here.

    It takes some milliseconds for each 100 MB: for after a burst, not for everyday.
    """
    trim = _of_libc("malloc_trim")
    if trim is not None:
        trim(0)
    return trim is not None


def _mallopt() -> MallocOption | None:
    found: MallocOption | None = _of_libc("mallopt")
    return found


def _of_libc(name: str) -> Any:
    """A function that only glibc has; None elsewhere."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform.startswith("linux") else None
