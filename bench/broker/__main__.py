"""Run the benchmarks of the broker and print them as tables.

python -m bench.broker                     all of them, beside the Apache broker where Java is: twelve minutes, 14 GiB of disk
python -m bench.broker --quick             a glance: less than two minutes, 4 GiB
python -m bench.broker async growth        some sections: start, async, sync, growth, null
python -m bench.broker --write-docs        and write the tables to docs/generated/broker.md
"""

import argparse
import resource
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path

from rich.console import Console

from bench.broker import machine, page
from bench.broker.budget import GIB, Budget
from bench.broker.ceiling import null_sheets
from bench.broker.generators import best_generator
from bench.broker.growth import growth_sheets
from bench.broker.loads import async_sheets, sync_sheets
from bench.broker.scale import DEFAULT, QUICK, Scale
from bench.broker.sections import Bench, Section
from bench.broker.servers import reason_without_apache
from bench.broker.sheets import Sheet, as_table
from bench.broker.shots import NotMeasured
from bench.broker.starting import start_sheets
from bench.method import machine as cores
from bench.store.__main__ import file_system
from pocketmq import compiled
from pocketmq.net.loops import new_loop

WIDTH = 150
MOST_FILES = 16_384

SECTIONS: dict[str, Section] = {
    "start": start_sheets,
    "async": async_sheets,
    "sync": sync_sheets,
    "growth": growth_sheets,
    "null": null_sheets,
}


def main(arguments: Sequence[str] | None = None, *, default: Scale = DEFAULT) -> None:
    parser = argparse.ArgumentParser("python -m bench.broker", description="Benchmarks of the broker.")
    parser.add_argument("names", nargs="*", help=f"sections, instead of all: {', '.join(SECTIONS)}")
    parser.add_argument("--quick", action="store_true", help="fewer loads, one shot each: less than two minutes")
    parser.add_argument("--without-apache", action="store_true", help="only ours, though Java is there")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where the files are made")
    parser.add_argument("--write-docs", action="store_true", help="write the tables to docs/generated/broker.md")
    options = parser.parse_args(arguments)
    scale = QUICK if options.quick else default
    if unknown := [name for name in options.names if name not in SECTIONS]:
        parser.error(f"no section is called {unknown[0]}; there are: {', '.join(SECTIONS)}")
    if missing := missing_space(options.folder, scale):
        parser.error(missing)
    chosen = [name for name in SECTIONS if not options.names or name in options.names]

    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    allow_many_files()
    console = Console(width=WIDTH)
    load_before = machine.load()
    with tempfile.TemporaryDirectory(prefix="pocketmq-bench-", dir=options.folder) as place:
        bench, facts = set_up(Path(place), scale, console, without_apache=options.without_apache)
        sheets = [sheet for name in chosen for sheet in run(name, bench, console)]
        facts.append(f"load {load_before:.1f} before, {machine.load():.1f} after {bench.budget.passed_s:.0f} s")
    for sheet in sheets:
        console.print(as_table(sheet))
    console.print(" · ".join(facts))
    if options.write_docs:
        page.write(facts, sheets)


def set_up(place: Path, scale: Scale, console: Console, *, without_apache: bool) -> tuple[Bench, list[str]]:
    """What every section has at hand, and the facts under which all of it is measured."""
    budget = Budget(scale.spare_s, place, scale.disk_bytes)

    def say(text: str) -> None:
        console.print(f"[dim]{budget.passed_s:4.0f} s[/] {text}", highlight=False)

    generator, reason = best_generator(place)
    if reason:
        say(f"the generator is our own, which is itself a limit: {reason}")
    why_no_apache = "not wanted" if without_apache else reason_without_apache()
    bench = Bench(place, scale, generator, budget, say, why_no_apache, place)
    facts = [
        date.today().isoformat(),
        f"{cores()}, {machine.description()}, {file_system(place)}",
        f"event loop of {loop_name()}, turn {'compiled' if compiled.twin() else 'in pure Python'}",
        f"generator {generator.name}",
        f"`{scale.name}` run",
    ]
    return bench, facts


def run(name: str, bench: Bench, console: Console) -> Iterator[Sheet]:
    """One section, in a folder that is gone afterwards. What it cannot do it says."""
    bench.budget.grant(bench.scale.seconds[name])
    with console.status(name), tempfile.TemporaryDirectory(prefix=f"{name}-", dir=bench.folder) as place:
        try:
            yield from SECTIONS[name](bench._replace(folder=Path(place)))
        except NotMeasured as reason:
            yield Sheet(name, ["not measured"], [[str(reason)]])


def missing_space(folder: Path, scale: Scale) -> str:
    """Why the run would not fit on the disk; empty when it does."""
    if not folder.is_dir():
        return f"{folder} is not a folder"
    free = shutil.disk_usage(folder).free
    if free >= scale.disk_bytes:
        return ""
    return (
        f"the {scale.name} run may need {scale.disk_bytes / GIB:.1f} GiB, and the disk of {folder} has "
        f"{free / GIB:.1f} GiB free. Choose another disk with --folder"
    )


def allow_many_files() -> None:
    """A thousand connections are a thousand open files, here and in the servers that are started."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(MOST_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def loop_name() -> str:
    loop = new_loop()
    loop.close()
    return type(loop).__module__.partition(".")[0]


if __name__ == "__main__":
    main()
