"""What a run costs: seconds by the clock, and CPU of the server, of Python (workers and driver) and of Java, as Linux counts it.

Broker, workers and Java share the cores of one machine: what one of them saves, the others have.
"""

import os
import statistics
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Final, NamedTuple

from bench.broker.machine import cpu_s, disturbed, moment
from bench.pipelines.processes import Cost, costs_below

MOST_LOOKS: Final = 20


class Shot(NamedTuple):
    """One run. `others` is the share of the machine that other programs had meanwhile."""

    seconds: float
    server_s: float
    python_s: float
    java_s: float
    others: float

    @property
    def cpu_s(self) -> float:
        return self.server_s + self.python_s + self.java_s


def taken(run: Callable[[], float | None], server_pid: int | None, java_pid: int) -> Shot:
    """`run` may tell how many seconds count, where that is not all that it took."""
    server_pids = [] if server_pid is None else [server_pid]
    machine_before, server_before, spark_before = moment(), cpu_s(server_pids), _spark(java_pid)
    own_before, start = _own_s(), perf_counter()
    told = run()
    seconds = perf_counter() - start
    server_s = cpu_s(server_pids) - server_before
    python_s, java_s = (now - before for now, before in zip(_spark(java_pid), spark_before, strict=True))
    python_s += _own_s() - own_before
    others = disturbed(machine_before, moment(), server_s + python_s + java_s)
    return Shot(seconds if told is None else told, server_s, python_s, java_s, others)


def middle(shots: Sequence[Shot]) -> Shot:
    """The median of each number by itself."""
    return Shot(*(statistics.median(column) for column in zip(*shots, strict=True)))


def _spark(java_pid: int) -> tuple[float, float]:
    """Seconds of Python and of Java so far. All Python of Spark is started by Java; what ended is counted by its parent."""
    family = _settled(java_pid)
    java_s = sum(one.cpu_s for one in family if one.pid == java_pid)
    return sum(one.cpu_s + one.ended_s for one in family) - java_s, java_s


def _settled(java_pid: int) -> list[Cost]:
    """The processes of Spark, looked at until none ended in between: such a one is counted neither for itself nor by its parent."""
    seen = costs_below(java_pid)
    for _ in range(MOST_LOOKS):
        before, seen = seen, costs_below(java_pid)
        if [one.pid for one in before] == [one.pid for one in seen]:
            break
    return seen


def _own_s() -> float:
    times = os.times()
    return times.user + times.system
