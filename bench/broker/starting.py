"""Section: from the start of the first process to the first acknowledged message, and what a server costs that does nothing."""

import statistics
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from tempfile import mkdtemp
from time import monotonic, sleep
from typing import NamedTuple

from bench.broker.calls import Line
from bench.broker.machine import Memory, cpu_s, memory
from bench.broker.sections import Bench
from bench.broker.servers import APACHE, OURS, Target, Wishes, apache, pocketmq
from bench.broker.sheets import Sheet, verdict
from bench.broker.shots import NotMeasured
from pocketmq.codes import RequestCode, ResponseCode

AIM_S = 1.0
AIM_MIB = 60.0
PATIENCE_S = 60.0
TRY_S = 0.01
CALM_DOWN_S = 3.0
"""Between the first message and the measuring of idleness."""

Start = Callable[[Path, Wishes], AbstractContextManager[Target]]


class Beginning(NamedTuple):
    """Starts of one kind: seconds and CPU seconds of each; and at rest, after the last, broker and name server together."""

    first_ack_s: list[float]
    cpu_s: list[float]
    idle: Memory
    idle_cpu: float


def start_sheets(bench: Bench) -> Iterator[Sheet]:
    headings = ["start", "first message, s", "CPU until then, s", "idle, MiB", "of its own", "idle CPU", "goals"]
    rows, notes = [], []
    if bench.why_no_apache:
        notes.append(f"without the Apache broker: {bench.why_no_apache}")
    for name, start, wishes, starts in _servers(bench):
        try:
            found = _begin(bench, start, wishes, starts)
        except NotMeasured as reason:
            notes.append(f"{name}: {reason}")
        else:
            rows.append(_cells(name, found))
            bench.say(f"{name}: {rows[-1][1]} s to the first message, {rows[-1][3]} MiB idle")
    notes.append("medians of several starts in an empty folder, with the programs in the page cache")
    yield Sheet("start and idle", headings, rows, notes)


def _servers(bench: Bench) -> list[tuple[str, Start, Wishes, int]]:
    """Each with how often it is started: Java takes its time."""
    ours: list[tuple[str, Start, Wishes, int]] = [(OURS, pocketmq, Wishes(), bench.scale.starts)]
    if bench.why_no_apache:
        return ours
    few = max(1, bench.scale.starts - 1)
    return ours + [(f"{APACHE}, heap of {heap}", apache, Wishes(heap=heap), few) for heap in bench.scale.heaps]


def _begin(bench: Bench, start: Start, wishes: Wishes, starts: int) -> Beginning:
    times, cpu = [], []
    for number in range(starts):
        bench.budget.check()
        folder = Path(mkdtemp(dir=bench.folder))
        started = monotonic()
        with start(folder / "server", wishes) as target:
            until_acknowledged(target.port)
            times.append(monotonic() - started)
            cpu.append(cpu_s(target.all_pids))
            if number == starts - 1:
                sleep(CALM_DOWN_S)
                before = cpu_s(target.all_pids)
                sleep(bench.scale.idle_s)
                idle_cpu = (cpu_s(target.all_pids) - before) / bench.scale.idle_s
                return Beginning(times, cpu, memory(target.all_pids), idle_cpu)
    raise NotMeasured("it was not started")


def until_acknowledged(port: int) -> None:
    """Send until a send is acknowledged."""
    ext = {"a": "first", "b": "first", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "0", "h": "0"}
    ext |= {"i": "WAIT\x01true\x02", "j": "0", "k": "false", "m": "false"}
    deadline = monotonic() + PATIENCE_S
    while monotonic() < deadline:
        try:
            with Line(port) as line:
                if line.answer(RequestCode.SEND_MESSAGE_V2, ext, b"x" * 100).code == ResponseCode.SUCCESS:
                    return
        except OSError:
            pass
        sleep(TRY_S)
    raise NotMeasured(f"no message was acknowledged within {PATIENCE_S:.0f} s")


def _cells(name: str, found: Beginning) -> list[str]:
    first, cpu = statistics.median(found.first_ack_s), statistics.median(found.cpu_s)
    aims = ""
    if name == OURS:
        aims = f"≤ {AIM_S:g} s: {verdict(first <= AIM_S)}, ≤ {AIM_MIB:g} MiB: {verdict(found.idle.all_mib <= AIM_MIB)}"
    sizes = [f"{size:.0f}" for size in found.idle]
    return [name, f"{first:.2f}", f"{cpu:.2f}", *sizes, f"{found.idle_cpu:.1%}", aims]
