"""What `pocketmq store verify` and `store rebuild` need for a record, with its queue entry and its two index entries.

A start after a crash does less: it makes queue entries only, and the index follows while the broker runs.
"""

from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

from bench.store.apart import apart
from bench.store.keys import fill
from bench.store.rows import Pace, Row
from bench.store.scale import Scale
from pocketmq.clock import SystemClock
from pocketmq.files import DiskFiles
from pocketmq.store.layout import KnownSizes, find_layout
from pocketmq.store.tools.rebuild import Rebuild
from pocketmq.store.tools.verify import Verification


def tool_rows(folder: Path, scale: Scale, _pace: Pace) -> Iterator[Row]:
    count = scale.read_messages
    fill(folder / "store", count)
    for name, tool in (("store rebuild", rebuild), ("store verify", verify)):
        us = 1e6 * apart(tool, folder / "store", count) / count
        yield Row(f"{name}, queues and index", "store", us, None, "us", note=f"{1e6 / us:,.0f} records/s")


# in processes of their own


def rebuild(folder: Path, count: int) -> float:
    files = DiskFiles()
    started = perf_counter()
    whole = Rebuild(files, SystemClock(), find_layout(files, folder, KnownSizes()))
    for _ in whole.run():
        pass
    assert whole.report.queue_entries == count, "nothing is missing"
    return perf_counter() - started


def verify(folder: Path, _count: int) -> float:
    files = DiskFiles()
    started = perf_counter()
    for _ in Verification(files, find_layout(files, folder, KnownSizes())).run():
        pass
    return perf_counter() - started
