"""Measures how long a store takes to open: after a clean stop, after a crash, and when its queues must be rebuilt.

Each start is in its own process, with the files dropped from the page cache where the system allows it. After a crash the log scan
begins with the newest log file that was created well before the last checkpoint, so it reads one or two log files, not the whole
log. For comparison, a loop checks only sizes and checksums: no scan in Python can be faster.
"""

import mmap
import shutil
import statistics
import struct
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import NamedTuple
from zlib import crc32

from bench.store.apart import apart, out_of_cache
from bench.store.hosted import HostedStore
from bench.store.messages import drafts, in_turns
from bench.store.rows import Pace, Row, seconds_row
from bench.store.scale import Scale

AIM_START_S = 2.0
AIM_RECORDS_PER_S = 400_000
TURN = 64
STEP = 8192
QUEUES = 8


class Start(NamedTuple):
    seconds: float
    records: int
    """Records that the log scan read."""


def start_rows(folder: Path, scale: Scale, _pace: Pace) -> Iterator[Row]:
    store = folder / "store"
    records = apart(write_log, store, scale.start_bytes)
    again = range(scale.starts)
    crashed = _start(store)
    clean = [_start(store) for _ in again]
    size = f"log of {scale.start_bytes >> 20:,} MiB"
    note = f"{records:,} messages of 100 B"
    yield seconds_row(f"clean start, {size}", "store", [start.seconds for start in clean], aim=AIM_START_S, note=note)
    note = f"{crashed.records:,} records scanned"
    yield seconds_row(f"crashed start, {size}", "store", [crashed.seconds], note=note)
    rebuilt = []
    for _ in again:
        shutil.rmtree(store / "consumequeue")
        start = _start(store)
        rebuilt.append(1e6 * start.seconds / max(1, start.records))
    subject = "rebuild of all queues"
    yield _walk_row(subject, "start without consumequeue/", rebuilt)._replace(aim=1e6 / AIM_RECORDS_PER_S)
    yield _walk_row(subject, "loop over sizes and CRCs", [_walk(store) for _ in again])._replace(ours=False)


def _walk_row(subject: str, candidate: str, us: list[float]) -> Row:
    median = statistics.median(us)
    least = min(us) if len(us) > 1 else None
    return Row(subject, candidate, median, least, "us", note=f"{1e6 / median:,.0f} records/s")


def _start(store: Path) -> Start:
    """Seconds of a start, and a clean stop after it."""
    out_of_cache(store)
    return apart(timed_start, store, True)


def _walk(store: Path) -> float:
    out_of_cache(store)
    return apart(plain_walk, store)


# in processes of their own


def write_log(folder: Path, size: int) -> int:
    """Fill a log up to `size` and crash; how many messages."""
    hosted = HostedStore(folder, index_enabled=False)
    queues = hosted.queues(QUEUES)
    count = 0
    while hosted.store.end < size:
        hosted.append(in_turns(queues, drafts(STEP, 100, count), TURN))
        count += STEP
    hosted.rest()
    return count


def timed_start(folder: Path, stop: bool, index: bool = False) -> Start:
    """Open a store, and close it or not."""
    started = perf_counter()
    hosted = HostedStore(folder, index_enabled=index)
    seconds = perf_counter() - started
    if stop:
        hosted.store.close()
    return Start(seconds, hosted.report.records)


def plain_walk(folder: Path) -> float:
    """Microseconds per record that a plain loop needs for sizes and checksums."""
    unpack = struct.Struct(">III72xi").unpack_from
    count = 0
    started = perf_counter()
    for path in sorted((folder / "commitlog").iterdir()):
        with path.open("rb") as file:
            log = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        at = 0
        while at + 91 < len(log):
            size, _, crc, body_bytes = unpack(log, at)
            if size < 91 or crc32(log[at + 88 : at + 88 + body_bytes]) & 0x7FFFFFFF != crc:
                break
            at += size
            count += 1
    return 1e6 * (perf_counter() - started) / max(1, count)
