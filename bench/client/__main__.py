"""Run the benchmarks of the client and print a table.

python -m bench.client                  all rows, compared with redis-py, nats-py and the Java client where installed
python -m bench.client --quick          a short run: one shot of each row, bodies of 100 bytes, no other clients
python -m bench.client window e2e       some rows: threads tasks window many linger consume_loop consume_pool e2e e2e_many
python -m bench.client --alone          no other clients
python -m bench.client --bytes 100      bodies of this size only; --shots 1 for fewer repetitions
python -m bench.client --write-docs     also write the table to docs/generated/client.md
"""

import argparse
import signal
import sys
import tempfile
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from time import monotonic

from rich.console import Console

from bench.broker import machine, page
from bench.broker.sheets import as_table
from bench.broker.shots import NotMeasured
from bench.client import peers
from bench.client.measured import middle
from bench.client.report import sheet
from bench.client.rows import ROWS, SIZES, Row, chosen
from bench.client.stage import Pace, Result, Stage, our_broker
from bench.method import machine as cores

WIDTH = 170
DEFAULT = Pace(seconds=2.0, warm_s=0.5, messages=300_000, shots=3)
QUICK = Pace(seconds=0.7, warm_s=0.2, messages=50_000, shots=1)
MOST_OURS_S = 600.0
"""No new shot starts after this time."""
MOST_PEER_S = 600.0


def main(arguments: Sequence[str] | None = None, *, pace: Pace | None = None) -> None:
    modes = list(dict.fromkeys(row.mode for row in ROWS))
    parser = argparse.ArgumentParser("python -m bench.client", description="Benchmarks of the client.")
    parser.add_argument(
        "rows", nargs="*", help=f"rows to run, default all: {', '.join(modes)}, or a single one such as window512"
    )
    parser.add_argument(
        "--quick", action="store_true", help="one short shot of each row, bodies of 100 bytes, no other clients"
    )
    parser.add_argument("--alone", action="store_true", help="no other clients")
    parser.add_argument("--shots", type=int, choices=range(1, 10), help="shots of each row; the median counts")
    parser.add_argument("--bytes", type=int, choices=SIZES, help="bodies of this size only")
    parser.add_argument("--write-docs", action="store_true", help="write the table to docs/generated/client.md")
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir()), help="folder for the brokers' files"
    )
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.rows if not chosen([name])]:
        parser.error(f"unknown row {unknown[0]}; rows are: {', '.join(modes)}")
    if not options.folder.is_dir():
        parser.error(f"{options.folder} is not a folder")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    console = Console(width=WIDTH)
    rows = chosen(options.rows)
    sizes = (options.bytes,) if options.bytes else SIZES[:1] if options.quick else SIZES
    pace = pace or (QUICK if options.quick else DEFAULT)
    if options.shots:
        pace = pace._replace(shots=options.shots)

    load_before = machine.load()
    results, notes = run(rows, sizes, pace, options.folder, console)
    beside = [] if options.quick or options.alone else [*peers.PYTHON_SYSTEMS, peers.JAVA]
    if beside:
        console.print(f"[dim]other clients: {', '.join(beside)}, at most ten minutes each[/]")
    found = peers.measure(beside, rows, sizes, pace, MOST_PEER_S)
    table = sheet(results, found, notes)
    facts = [
        f"{cores()}, {machine.description()}",
        f"load {load_before:.1f} before, {machine.load():.1f} after",
        f"{pace.shots} shots of {pace.seconds:g} s",
    ]
    console.print(as_table(table))
    console.print(" · ".join(facts))
    if options.write_docs:
        page.write([f"{date.today():%Y-%m-%d}", *facts], [table], page.CLIENT)


def run(
    rows: Sequence[Row], sizes: Sequence[int], pace: Pace, folder: Path, console: Console
) -> tuple[dict[tuple[Row, int], Result], list[str]]:
    """The results of PocketMQ's client, and the reasons for missing ones."""
    results: dict[tuple[Row, int], Result] = {}
    notes: list[str] = []
    until = monotonic() + MOST_OURS_S
    with tempfile.TemporaryDirectory(prefix="pocketmq-bench-", dir=folder) as place, our_broker(Path(place)) as where:
        stage = Stage(*where, pace)
        for size in sizes:
            for row in rows:
                if monotonic() > until:
                    notes.append(f"{row.title}, {size} bytes: skipped, the time limit was reached")
                    continue
                try:
                    results[row, size] = shoot(stage, row, size, pace.shots)
                except NotMeasured as reason:
                    notes.append(f"{row.title}, {size} bytes: {reason}")
                else:
                    found = results[row, size].measured
                    if found.errors:
                        notes.append(f"{row.title}, {size} bytes: {found.errors:,} messages failed")
                    console.print(f"[dim]{row.title}, {size} bytes:[/] {found.rate:,.0f}/s, {found.client_us:.1f} us")
    return results, notes


def shoot(stage: Stage, row: Row, size: int, shots: int) -> Result:
    """The shot with the median rate."""
    taken = [stage.fire(row, size) for _ in range(shots)]
    wanted = middle([result.measured for result in taken])
    return next(result for result in taken if result.measured is wanted)


if __name__ == "__main__":
    main()
