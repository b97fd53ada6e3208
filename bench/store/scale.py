"""How large everything is: quick enough for a coffee, or as large as a store gets."""

from typing import NamedTuple

MIB = 1024 * 1024
GIB = 1024 * MIB


class Scale(NamedTuple):
    """Sizes of one run. Each section removes its files, so the largest one says what the disk must have."""

    name: str
    disk_bytes: int
    read_messages: int
    """In each of the logs that are read."""
    index_entries: int
    """Two per message: its unique key and its key."""
    look_ups: int
    start_bytes: int
    """Of the log that is opened."""
    starts: int
    """How often a clean start and a rebuild are measured."""
    topics: int
    """With four queues each, for what an idle queue costs."""
    log_marks: tuple[int, ...]
    """Sizes of the log at which the cost of an append is compared with that in a new store."""
    queue_counts: tuple[int, ...]
    """Numbers of queues at which it is compared with that of one queue."""


QUICK = Scale(
    name="quick",
    disk_bytes=3 * GIB,
    read_messages=100_000,
    index_entries=1_000_000,
    look_ups=50,
    start_bytes=512 * MIB,
    starts=2,
    topics=1_000,
    log_marks=(512 * MIB, 2 * GIB),
    queue_counts=(100, 10_000),
)

FULL = Scale(
    name="full",
    disk_bytes=24 * GIB,
    read_messages=1_000_000,
    index_entries=10_000_000,
    look_ups=200,
    start_bytes=4 * GIB,
    starts=1,
    topics=10_000,
    log_marks=(1 * GIB, 5 * GIB, 10 * GIB, 20 * GIB),
    queue_counts=(100, 1_000, 10_000),
)
