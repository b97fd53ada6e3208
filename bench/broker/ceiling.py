"""Section: what machine and generator can do when the server does nothing but split frames."""

from collections.abc import Iterator

from bench.broker.budget import UsedUp
from bench.broker.generators import Generator, our_generator
from bench.broker.sections import Bench
from bench.broker.servers import NULL, compiled, null_server
from bench.broker.sheets import Sheet
from bench.broker.shots import NotMeasured, Result, Shape

HEADINGS = ("load", "msg/s", "p50 us", "p99", "CPU us/msg", "generator, cores")
UNCHECKED = {NULL: ("--no-create", "--no-verify")}
LAST = Shape("send", 16, 64, 100)


def null_sheets(bench: Bench) -> Iterator[Sheet]:
    title = "upper limit: a server in C that sends the same answer to every frame"
    rows, notes = [], []
    try:
        with null_server(bench.folder / "null", compiled("nullserver", bench.programs)) as target:
            for generator, shape, name in _loads(bench):
                once = bench._replace(generator=generator, scale=bench.scale._replace(shots=1))
                outcome = once.contest(target).run(shape, UNCHECKED, f"null, {name}")
                notes += outcome.notes
                rows += [_cells(name, result) for result in outcome.results.values()]
    except UsedUp as reason:
        notes.append(f"not all of it: {reason}")
    except NotMeasured as reason:
        notes.append(f"not measured: {reason}")
    yield Sheet(title, HEADINGS, rows, notes)


def _loads(bench: Bench) -> list[tuple[Generator, Shape, str]]:
    """All sends with the generator of this run, and one with ours, which is a limit itself."""
    loads = [(bench.generator, shape, str(shape)) for shape in bench.scale.shapes if shape.mode == "send"]
    ours = our_generator()
    return [*loads, (ours, LAST, f"{LAST}, by {ours.name}")]


def _cells(name: str, found: Result) -> list[str]:
    times = [f"{found.p50_us:,.0f}", f"{found.p99_us:,.0f}"]
    return [name, f"{found.rate:,.0f}", *times, f"{found.server_us:.2f}", f"{found.generator_cpu:.2f}"]
