"""The process that a server runs in, under the names that Prometheus has for every program."""

import resource
from pathlib import Path
from typing import Final

from pocketmq.files import Files
from pocketmq.metrics.families import Family, counter, gauge

_MEMORY: Final = Path("/proc/self/statm")
_DESCRIPTORS: Final = Path("/proc/self/fd")


def process_families(files: Files) -> list[Family]:
    """Memory and descriptors are left out where the system does not tell them this way."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    families = [counter("process_cpu_seconds", "Seconds of a processor used", used.ru_utime + used.ru_stime)]
    try:
        pages = int(files.read(_MEMORY).split()[1])
        open_files = len(files.list(_DESCRIPTORS))
    except OSError:
        return families
    return [
        *families,
        gauge("process_resident_memory_bytes", "Memory in use", pages * resource.getpagesize()),
        gauge("process_open_fds", "Open files and connections", open_files),
    ]
