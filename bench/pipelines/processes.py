"""What the processes of a run cost: CPU time and the largest memory of each, as Linux counts them."""

import os
from pathlib import Path
from typing import Final, NamedTuple

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_UTIME, _STIME = 11, 12
_ENDED_UTIME, _ENDED_STIME = 13, 14
_PPID: Final = 1


class Cost(NamedTuple):
    """Of one process: its program, the CPU time that it used, and its largest memory until now; and the CPU time of
    processes that it started and that have ended.
    """

    pid: int
    program: str
    cpu_s: float
    peak_bytes: int
    ended_s: float = 0.0


def costs_below(root: int) -> list[Cost]:
    """The costs of a process and of all that it started and that still live."""
    parents = {pid: int(fields[_PPID]) for pid, fields in _all_stats().items()}
    family = {root}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return [cost for pid in sorted(family) if (cost := _cost(pid)) is not None]


def _all_stats() -> dict[int, list[str]]:
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal() and (fields := _stat(int(folder.name))) is not None:
            found[int(folder.name)] = fields
    return found


def _stat(pid: int) -> list[str] | None:
    """The fields behind the name of the program, which may hold blanks."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it ended meanwhile
        return None


def _cost(pid: int) -> Cost | None:
    fields = _stat(pid)
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    if fields is None:
        return None
    told = dict(line.partition(":")[::2] for line in status.splitlines())
    peak_kb = int(told.get("VmHWM", "0 kB").split()[0])
    cpu_s = (int(fields[_UTIME]) + int(fields[_STIME])) / _TICKS_PER_S
    ended_s = (int(fields[_ENDED_UTIME]) + int(fields[_ENDED_STIME])) / _TICKS_PER_S
    return Cost(pid, told["Name"].strip(), cpu_s, peak_kb * 1024, ended_s)
