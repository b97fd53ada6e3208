"""Runs a function in its own process, so that its memory can be measured and its store need not be closed.

If a store is open when the function returns, the process ends without closing it: for the store that is a crash.
"""

import gc
import logging
import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


def apart(function: Callable[..., T], *arguments: Any) -> T:
    """What `function` gives in a fresh interpreter, which has ended when this returns."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), quiet) as pool:
        return pool.submit(function, *arguments).result()


def quiet() -> None:
    """Stores that crash on purpose need not say so."""
    logging.getLogger("pocketmq").setLevel(logging.CRITICAL)


class Memory(NamedTuple):
    """What this process has in memory: its own bytes, and pages of files, which the system may take back at any time."""

    own: int
    of_files: int


def memory() -> Memory:
    gc.collect()
    found = {}
    for line in Path("/proc/self/status").read_text("ascii").splitlines():
        name, _, value = line.partition(":")
        if name in ("RssAnon", "RssFile"):
            found[name] = int(value.split()[0]) * 1024
    return Memory(found["RssAnon"], found["RssFile"])


def out_of_cache(folder: Path) -> None:
    """Ask the system to forget the files below `folder`, so that they are read from the disk as after a power loss."""
    for path in folder.rglob("*"):
        if path.is_file():
            handle = os.open(path, os.O_RDONLY)
            try:
                os.fdatasync(handle)
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(handle)
