"""Two versions of PocketMQ, shot at in turn: what did a change cost?

python -m bench.versions REVISION               hot rows of broker and client, this tree beside a commit: six minutes
python -m bench.versions REVISION --rounds 9    more rounds, where the machine swings
python -m bench.versions REVISION consume e2e   some rows, by a part of their name

    round 1   old new      each has a broker of its own; the broker that is not shot at is stopped (SIGSTOP)
    round 2   new old      a row's ratio is the median over rounds of new / old, so that both shots of a pair met the same machine
"""

import argparse
import io
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from bench.broker.generators import Generator, Pace, best_generator, fill_topic
from bench.broker.servers import ROOT, Target, Wishes, frozen, pocketmq
from bench.broker.shots import Shape
from bench.client.rows import chosen
from bench.client.stage import Pace as ClientPace
from bench.client.stage import Stage, our_broker

BROKER_ROWS = (
    Shape("send", 1, 1, 100),
    Shape("send", 1, 64, 100),
    Shape("send", 16, 64, 100),
    Shape("batch", 1, 8, 100, 32),
    Shape("pull", 1, 1, 100, 32),
    Shape("pull", 4, 4, 100, 32),
)
CLIENT_ROWS = chosen(["threads1", "window512", "consume_loop", "consume_pool", "e2e512"])
BROKER_PACE = Pace(1.5, 0.4)
CLIENT_PACE = ClientPace(seconds=1.5, warm_s=0.4, messages=200_000, shots=1)
FILL_BATCHES = 200_000 // 32
SIZE = 100


class Seen(NamedTuple):
    """One shot: messages a second, and microseconds of CPU that the measured side spent on a message."""

    rate: float
    cpu_us: float


class Row(NamedTuple):
    """Something to measure with each version; `fire` takes its number, 0 for the old one."""

    title: str
    fire: Callable[[int], Seen]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        "python -m bench.versions", description="Two versions of PocketMQ, shot at in turn."
    )
    parser.add_argument("revision", help="the old version: a commit of this repository")
    parser.add_argument("names", nargs="*", help="parts of the names of rows, instead of all rows")
    parser.add_argument("--rounds", type=int, default=5, help="shots at each version, 5 unless given")
    options = parser.parse_args(arguments)
    console = Console(width=130)
    with tempfile.TemporaryDirectory(prefix="pocketmq-versions-") as name, ExitStack() as stack:
        folder = Path(name)
        trees = [extract(options.revision, folder / "old"), ROOT]
        rows = [*broker_rows(stack, trees, folder), *client_rows(stack, trees, folder)]
        wanted = [row for row in rows if not options.names or any(part in row.title for part in options.names)]
        table = Table(
            "row", "rate old", "rate new", "new / old", "spread", "CPU us old", "CPU us new", "new / old", "spread"
        )
        for row in wanted:
            pairs = list(shots(row, options.rounds))
            table.add_row(row.title, *columns(pairs))
            console.print(row.title, *columns(pairs), sep="  ")
    console.print(table)


def extract(revision: str, to: Path) -> Path:
    """The files of a commit, with the hot path compiled."""
    packed = subprocess.run(
        ["git", "archive", "--format=tar", revision], cwd=ROOT, capture_output=True, check=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(to, filter="data")
    subprocess.run([sys.executable, "hatch_build.py"], cwd=to, check=True, stdout=subprocess.DEVNULL)
    return to


def broker_rows(stack: ExitStack, trees: Sequence[Path], folder: Path) -> Iterator[Row]:
    generator, _ = best_generator(folder)
    targets = [
        stack.enter_context(pocketmq(folder / f"broker{number}", Wishes(), tree)) for number, tree in enumerate(trees)
    ]
    for target in targets:
        fill = Shape("batch", 1, 8, SIZE, 32)
        generator.fill(target, fill, FILL_BATCHES, "--topic", fill_topic(SIZE), "--queues", "1")
    for shape in BROKER_ROWS:
        yield Row(f"broker: {shape}", lambda number, shape=shape: shoot(generator, targets, number, shape))  # type: ignore[misc]


def shoot(generator: Generator, targets: Sequence[Target], number: int, shape: Shape) -> Seen:
    with frozen([target for target in targets if target is not targets[number]]):
        shot = generator.fire(targets[number], shape, BROKER_PACE)
    if shot.wrong:
        raise SystemExit(f"{shape}: {shot.wrong} requests went wrong: {shot.first_error}")
    return Seen(shot.rate, shot.server_us)


def client_rows(stack: ExitStack, trees: Sequence[Path], folder: Path) -> Iterator[Row]:
    stages = []
    for number, tree in enumerate(trees):
        name_server, pid = stack.enter_context(our_broker(folder / f"client{number}", tree=tree))
        stages.append(Stage(name_server, pid, CLIENT_PACE, tree))
    for row in CLIENT_ROWS:

        def fire(number: int, row=row) -> Seen:  # type: ignore[no-untyped-def]
            measured = stages[number].fire(row, SIZE).measured
            return Seen(measured.messages / measured.seconds, measured.client_us)

        yield Row(f"client: {row.title}", fire)


def shots(row: Row, rounds: int) -> Iterator[tuple[Seen, Seen]]:
    for number in range(rounds):
        order = (0, 1) if number % 2 == 0 else (1, 0)
        seen = {which: row.fire(which) for which in order}
        yield seen[0], seen[1]


def columns(pairs: Sequence[tuple[Seen, Seen]]) -> list[str]:
    words = []
    for name, form in (("rate", "{:,.0f}"), ("cpu_us", "{:.2f}")):
        old, new = [[getattr(pair[which], name) for pair in pairs] for which in (0, 1)]
        ratios = sorted(after / before for before, after in zip(old, new, strict=True) if before)
        words += [form.format(statistics.median(old)), form.format(statistics.median(new))]
        words += [f"{statistics.median(ratios):.3f}", f"{ratios[0]:.2f} to {ratios[-1]:.2f}"] if ratios else ["", ""]
    return words


if __name__ == "__main__":
    main()
