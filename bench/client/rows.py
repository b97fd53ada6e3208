"""What is measured, what we want to reach, and which load of other clients is nearest to it.

send        a producer process and a broker
consume     a broker that is full, and a consumer process that empties it
end to end  producer, broker and consumer processes at the same time
"""

from collections.abc import Sequence
from typing import NamedTuple

SIZES = (100, 1024)


class Row(NamedTuple):
    """One load. `mode` is a word of `shot`, `number` its threads, window or batch; aims are for bodies of 100 bytes."""

    title: str
    mode: str
    number: int
    rate_aim: float | None = None
    cost_aim_us: float | None = None
    """CPU of the client for a message."""
    python_peer: str | None = None
    """The row of `pybench.py` that does the same."""
    java_peer: str | None = None
    """The row of `javabench` that does the same."""


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
    """The rows whose mode, or mode and number, is one of `names`; all when there are none."""
    return [row for row in ROWS if not names or row.mode in names or f"{row.mode}{row.number}" in names]


def is_end_to_end(row: Row) -> bool:
    return row.mode.startswith("e2e")


def is_consuming(row: Row) -> bool:
    return row.mode.startswith("consume")
