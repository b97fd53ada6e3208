"""What a broker still has to do when all answers are given: entries of the key index, flushing, and the like.

A broker that puts work off looks cheap while it is shot at. So, for a few loads, its CPU is counted until it rests again.
"""

from time import monotonic, sleep

from bench.broker.machine import cpu_s
from bench.broker.rows import MISSING
from bench.broker.sections import Bench, until_quiet
from bench.broker.servers import APACHE, OURS, Target, frozen
from bench.broker.sheets import Sheet
from bench.broker.shots import NotMeasured, Shape

LOOK_S = 1.0
NOISE_S = 0.03
"""CPU of one look by which a server at rest may differ from itself."""
MOST_WAIT_S = 10.0


def afterwards_sheet(bench: Bench, targets: list[Target]) -> Sheet:
    headings = [
        "load",
        "CPU us/msg until the last answer",
        "until idle",
        "Apache until the last answer",
        "until idle",
    ]
    rows, notes = [], []
    for shape in bench.scale.later_shapes:
        found: dict[str, tuple[float, float]] = {}
        for target in targets:
            try:
                bench.budget.check(MOST_WAIT_S)
                with frozen([other for other in targets if other is not target]):
                    found[target.name] = costs(bench, target, shape)
            except NotMeasured as reason:
                notes.append(f"{shape}, {target.name}: {reason}")
        said = (f"{name} {first:.2f} us, {later:.2f} us until idle" for name, (first, later) in found.items())
        bench.say(f"afterwards, {shape}: {', '.join(said)}")
        rows.append([str(shape), *(cell for name in (OURS, APACHE) for cell in _cells(found.get(name)))])
    return Sheet("CPU time after the last answer", headings, rows, notes)


def costs(bench: Bench, target: Target, shape: Shape) -> tuple[float, float]:
    """Microseconds of CPU per message: while it was shot at, and with all that came after. What it uses at rest is left out."""
    until_quiet(target)
    at_rest_s = _used_s(target)
    before, began = cpu_s(target.pids), monotonic()
    shot = bench.generator.fire(target, shape, bench.scale.pace)
    until_answered_s = cpu_s(target.pids) - before - at_rest_s * (monotonic() - began)
    deadline = monotonic() + MOST_WAIT_S
    while _used_s(target) > at_rest_s + NOISE_S and monotonic() < deadline:
        pass
    in_all_s = cpu_s(target.pids) - before - at_rest_s * (monotonic() - began)
    messages = max(shot.acked, 1)
    return until_answered_s * 1e6 / messages, in_all_s * 1e6 / messages


def _used_s(target: Target) -> float:
    before = cpu_s(target.pids)
    sleep(LOOK_S)
    return (cpu_s(target.pids) - before) / LOOK_S


def _cells(found: tuple[float, float] | None) -> list[str]:
    return [MISSING] * 2 if found is None else [f"{cost:.2f}" for cost in found]
