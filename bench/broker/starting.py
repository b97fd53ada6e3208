"""Section: from the start of the first process to the first acknowledged message, and what a server costs that does nothing."""

import statistics
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from time import monotonic, sleep
from typing import NamedTuple

from bench.broker.calls import Line
from bench.broker.machine import cpu_s, memory
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
    """One start. Idle figures are of the broker and its name server together."""

    first_ack_s: float
    cpu_s: float
    idle_mib: float
    idle_own_mib: float
    idle_cpu: float


def start_sheets(bench: Bench) -> Iterator[Sheet]:
    headings = ["start", "first message, s", "CPU until then, s", "idle, MiB", "of its own", "idle CPU", "aims"]
    rows, notes = [], []
    if bench.why_no_apache:
        notes.append(f"without the Apache broker: {bench.why_no_apache}")
    for name, start, wishes in _servers(bench):
        try:
            found = [_begin(bench, start, wishes, number) for number in range(bench.scale.starts)]
        except NotMeasured as reason:
            notes.append(f"{name}: {reason}")
        else:
            rows.append(_cells(name, found))
            bench.say(f"{name}: {rows[-1][1]} s to the first message, {rows[-1][3]} MiB idle")
    notes.append(f"starts in an empty folder, programs in the page cache; medians of {bench.scale.starts}")
    yield Sheet("start and rest", headings, rows, notes)


def _servers(bench: Bench) -> list[tuple[str, Start, Wishes]]:
    ours: list[tuple[str, Start, Wishes]] = [(OURS, pocketmq, Wishes())]
    if bench.why_no_apache:
        return ours
    return ours + [(f"{APACHE}, heap of {heap}", apache, Wishes(heap=heap)) for heap in bench.scale.heaps]


def _begin(bench: Bench, start: Start, wishes: Wishes, number: int) -> Beginning:
    bench.budget.check()
    folder = bench.folder / f"start{number}-{len(list(bench.folder.iterdir()))}"
    started = monotonic()
    with start(folder, wishes) as target:
        until_acknowledged(target.port)
        first_ack_s, cpu_until_then = monotonic() - started, cpu_s(target.all_pids)
        sleep(CALM_DOWN_S)
        before = cpu_s(target.all_pids)
        sleep(bench.scale.idle_s)
        idle = memory(target.all_pids)
        idle_cpu = (cpu_s(target.all_pids) - before) / bench.scale.idle_s
        return Beginning(first_ack_s, cpu_until_then, idle.all_mib, idle.own_mib, idle_cpu)


def until_acknowledged(port: int) -> None:
    """Send until somebody says that he has it."""
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


def _cells(name: str, found: list[Beginning]) -> list[str]:
    first, cpu, all_mib, own_mib, idle_cpu = (statistics.median(numbers) for numbers in zip(*found, strict=True))
    aims = ""
    if name == OURS:
        aims = f"≤ {AIM_S:g} s: {verdict(first <= AIM_S)}, ≤ {AIM_MIB:g} MiB: {verdict(all_mib <= AIM_MIB)}"
    return [name, f"{first:.2f}", f"{cpu:.2f}", f"{all_mib:.0f}", f"{own_mib:.0f}", f"{idle_cpu:.1%}", aims]
