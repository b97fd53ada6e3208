"""What the machine did meanwhile: CPU of processes, memory of processes, and how much of it others had."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

TICKS = os.sysconf("SC_CLK_TCK")
_IDLE = (3, 4)
"""Columns of /proc/stat: idle, and waiting for a disk."""
_COLUMNS = 8
"""user, nice, system, idle, iowait, irq, softirq, steal; those behind them are counted in user already."""


class Moment(NamedTuple):
    """Seconds of CPU so far: that were not idle, those that the host took from this virtual machine included, and all."""

    busy_s: float
    all_s: float


def moment(stat: str | None = None) -> Moment:
    text = Path("/proc/stat").read_text("ascii") if stat is None else stat
    columns = [int(word) / TICKS for word in text.split("\n", 1)[0].split()[1 : _COLUMNS + 1]]
    return Moment(sum(columns) - sum(columns[at] for at in _IDLE), sum(columns))


def disturbed(before: Moment, after: Moment, own_s: float) -> float:
    """The share of the machine that others had between two moments, when `own_s` seconds of CPU were ours."""
    return max(0.0, after.busy_s - before.busy_s - own_s) / max(after.all_s - before.all_s, 1 / TICKS)


def cpu_s(pids: Iterable[int]) -> float:
    """User and system seconds of processes, all their threads."""
    total = 0
    for pid in pids:
        words = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
        total += int(words[11]) + int(words[12])
    return total / TICKS


def fine_cpu_s(pids: Iterable[int]) -> float:
    """The same in nanoseconds instead of ticks, without threads that have ended: for work of milliseconds."""
    tasks = (task for pid in pids for task in Path(f"/proc/{pid}/task").iterdir())
    return sum(int((task / "schedstat").read_text("ascii").split()[0]) for task in tasks) / 1e9


def children_cpu_s() -> float:
    """Seconds of the processes that this one started and that have ended."""
    times = os.times()
    return times.children_user + times.children_system


class Memory(NamedTuple):
    """MiB of processes: all of it, and without pages of mapped files, which the system may take back."""

    all_mib: float
    own_mib: float


def memory(pids: Iterable[int]) -> Memory:
    found = {"VmRSS": 0, "RssAnon": 0}
    for pid in pids:
        for line in Path(f"/proc/{pid}/status").read_text("utf-8").splitlines():
            name, _, value = line.partition(":")
            if name in found:
                found[name] += int(value.split()[0])
    return Memory(found["VmRSS"] / 1024, found["RssAnon"] / 1024)


def children(pid: int) -> list[int]:
    """Processes that a process has started and that run."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()]
    except OSError:
        return []


def description() -> str:
    """The processor and the system, as far as they can be known."""
    found = [line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    return f"{found[0] if found else 'unknown processor'}, Linux {os.uname().release}"


def load() -> float:
    """Processes that wanted a core, on average over the last minute."""
    return os.getloadavg()[0]


def _lines(path: str) -> list[str]:
    return Path(path).read_text("utf-8").splitlines()
