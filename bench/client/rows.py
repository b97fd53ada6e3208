"""The loads, their targets, and the closest loads of other clients.

send        a producer process and a broker
consume     a consumer process that reads a filled topic
end to end  producer, broker and consumer processes at the same time
"""

from collections.abc import Sequence
from typing import NamedTuple

SIZES = (100, 1024)


class Row(NamedTuple):
    """One load. `mode` is a mode of `shot`, `number` its threads, window or batch; targets are for bodies of 100 bytes."""

    title: str
    mode: str
    number: int
    rate_aim: float | None = None
    cost_aim_us: float | None = None
    """Target for the client's CPU time per message."""
    python_peer: str | None = None
    """The same load in `pybench.py`."""
    java_peer: str | None = None
    """The same load in `javabench`."""


SENT_US = 5.0
CONSUMED_US = 3.0

ROWS = (
    Row("blocking sends, 1 thread", "threads", 1, 10_000, None, "w1", "sync1"),
    Row("blocking sends, 8 threads", "threads", 8, None, None, None, "sync8"),
    Row("awaited sends, 64 tasks", "tasks", 64, None, None, "w64", None),
    Row("awaited sends, 512 tasks", "tasks", 512, None, None, "w512", None),
    Row("pipelined sends, 64 in flight", "window", 64, None, None, "w64", "async64"),
    Row("pipelined sends, 512 in flight", "window", 512, 120_000, SENT_US, "w512", "async512"),
    Row("batched sends, send_many", "many", 320, 200_000, None, None, "batch1"),
    Row("batched sends, linger_ms=1", "linger", 4096, None, None, None, None),
    Row("consumed, loop listener", "consume_loop", 1, 300_000, CONSUMED_US, "consume32", "consume1"),
    Row("consumed, pool listener", "consume_pool", 1, None, None, "consume32", "consume1"),
    Row("end to end", "e2e", 512, 75_000, None, "e2e", "e2e"),
    Row("end to end, batched", "e2e_many", 320, 150_000, None, None, "e2e32"),
)


def chosen(names: Sequence[str]) -> list[Row]:
    """The rows with a mode, or mode and number, in `names`; all rows for an empty list."""
    return [row for row in ROWS if not names or row.mode in names or f"{row.mode}{row.number}" in names]


def is_end_to_end(row: Row) -> bool:
    return row.mode.startswith("e2e")


def is_consuming(row: Row) -> bool:
    return row.mode.startswith("consume")
