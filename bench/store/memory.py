"""Measures the memory of unused queues, and the cost of a tick that writes many of them.

A process opens an empty store, then one with many queues of one message each; the difference is the cost of the queues.
"""

from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from bench.store.apart import apart, memory
from bench.store.hosted import HostedStore
from bench.store.messages import drafts, in_turns
from bench.store.rows import Pace, Row
from bench.store.scale import Scale
from bench.store.starting import AIM_START_S

QUEUES_PER_TOPIC = 4
AIM_BYTES = 3 * 1024
TURN = 64
THOROUGH_S = 11.0


class Written(NamedTuple):
    """What it took to bring the entries of many queues to the disk."""

    tick_s: float
    close_s: float


class Idle(NamedTuple):
    start_s: float
    bytes_per_queue: float
    own_bytes: int


def queue_rows(folder: Path, scale: Scale, _pace: Pace) -> Iterator[Row]:
    store = folder / "store"
    count = scale.topics * QUEUES_PER_TOPIC
    written = apart(write_queues, store, scale.topics)
    idle = apart(open_idle, store, folder / "empty", count)
    subject = f"{count:,} queues"
    per_queue, whole = idle.bytes_per_queue / 1024, idle.own_bytes / 2**20
    note = f"{whole:.0f} MiB in all for a process that does nothing else"
    yield Row(f"memory of one of {subject}", "idle queue", per_queue, None, "KiB", aim=AIM_BYTES / 1024, note=note)
    yield Row(f"clean start, {subject}", "store", idle.start_s, None, "s", aim=AIM_START_S)
    note = "the loop stands still meanwhile"
    yield Row(f"write of {subject}", "one tick", written.tick_s, None, "s", note=note)
    yield Row(f"clean stop, {subject}", "store", written.close_s, None, "s")


# in processes of their own


def write_queues(folder: Path, topics: int) -> Written:
    """Make the queues with one message each, have a tick write them, and close."""
    hosted = HostedStore(folder, index_enabled=False)
    queues = [queue for number in range(topics) for queue in hosted.queues(QUEUES_PER_TOPIC, f"Topic{number:05d}")]
    hosted.append(in_turns(queues, drafts(len(queues), 100), TURN))
    hosted.clock.monotonic_ahead_s += THOROUGH_S
    started = perf_counter()
    hosted.store.tick()
    ticked = perf_counter()
    hosted.store.close()
    return Written(ticked - started, perf_counter() - ticked)


def open_idle(folder: Path, empty_folder: Path, count: int) -> Idle:
    with HostedStore(empty_folder, index_enabled=False):
        before = memory()
        started = perf_counter()
        with HostedStore(folder, index_enabled=False):
            start_s = perf_counter() - started
            after = memory()
    return Idle(start_s, (after.own - before.own) / count, after.own)
