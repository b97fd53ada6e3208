"""The connector on a real Spark: rows a second from a local broker and to it, beside Parquet and Spark's Kafka connector.

python -m bench.spark.end_to_end                    about ten minutes; needs Java 17 or newer
python -m bench.spark.end_to_end --quick            few rows, one round: two minutes, and the fixed cost of a job weighs more
python -m bench.spark.end_to_end --alone            without Kafka
python -m bench.spark.end_to_end batch sink         cases whose name holds one of these words; `triggers` and `starts` are two, too
python -m bench.spark.end_to_end --usual-broker     a pull gets 32 messages, as brokers are set unless told otherwise
python -m bench.spark.end_to_end --usual-spark      Spark's own settings, without those that docs/spark.md advises
python -m bench.spark.end_to_end --write-docs       and put the tables into docs/performance.md
"""

import argparse
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import date
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Final, NamedTuple

from pyspark.sql import SparkSession
from rich.console import Console

from bench.broker import machine, page
from bench.broker.sheets import Sheet, as_table
from bench.broker.shots import NotMeasured
from bench.client.stage import our_broker
from bench.method import machine as cores
from bench.spark.cases import KAFKA, OURS, Case, Ways
from bench.spark.costs import Shot, middle, taken
from bench.spark.report import Results, sheet
from bench.spark.stage import CORES, LARGE_ANSWERS, Kafka, java_pid, kafka, laid_out, session
from bench.spark.starts import starts
from bench.spark.triggers import triggers

WIDTH: Final = 180
ROWS: Final = 1_200_000
QUICK_ROWS: Final = 60_000
ROUNDS: Final = 3
BODIES: Final = (100, 1024)
LARGER_SHARE: Final = 0.4
"""Rows of 1 KB, of each row of 100 bytes."""
MOST_S: Final = 200.0
"""For the rows of one size: after that no round is begun."""
TRIGGERS: Final = "triggers"
STARTS: Final = "starts"


class Scene(NamedTuple):
    """What is measured on, and how much."""

    spark: SparkSession
    name_server: str
    broker_pid: int
    beside: Kafka | None
    folder: Path
    rounds: int
    words: Sequence[str]

    def wants(self, name: str) -> bool:
        return not self.words or any(word in name for word in self.words)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m bench.spark.end_to_end", description="The connector on a real Spark.")
    parser.add_argument("words", nargs="*", help="measure the cases whose name holds one of these words")
    parser.add_argument("--rows", type=int, help=f"of 100 bytes, {ROWS:,} unless told; of 1 KB there are fewer")
    parser.add_argument("--rounds", type=int, help=f"in which the cases take turns, {ROUNDS} unless told")
    parser.add_argument("--quick", action="store_true", help="few rows and one round: does it run?")
    parser.add_argument("--alone", action="store_true", help="without Kafka")
    parser.add_argument("--usual-broker", action="store_true", help="a broker that answers with 32 messages at most")
    parser.add_argument("--usual-spark", action="store_true", help="Spark's own settings")
    parser.add_argument("--write-docs", action="store_true", help="put the tables into docs/performance.md")
    options = parser.parse_args(arguments)
    rows = options.rows if options.rows is not None else QUICK_ROWS if options.quick else ROWS
    rounds = options.rounds if options.rounds is not None else 1 if options.quick else ROUNDS
    if rows < 1 or rounds < 1:
        parser.error("at least one row and one round are needed")

    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    console, began, load_before = Console(width=WIDTH), monotonic(), machine.load()
    with ExitStack() as leave:
        folder = Path(leave.enter_context(TemporaryDirectory(prefix="pocketmq-bench-", ignore_cleanup_errors=True)))
        notes: list[str] = []
        beside = None if options.alone else _kafka(folder, leave, notes)
        settings = None if options.usual_broker else LARGE_ANSWERS
        broker = leave.enter_context(our_broker(folder / "broker", settings))
        jars = None if beside is None else beside.jars
        spark = leave.enter_context(session(jars, usual=options.usual_spark))
        scene = Scene(spark, *broker, beside, folder, rounds, options.words)
        sheets = []
        for one in measured(scene, rows, notes, console):
            sheets.append(one)
            console.print(as_table(one))
    facts = _facts(options, rounds, load_before, monotonic() - began)
    console.print(" · ".join(facts))
    if options.write_docs:
        page.write([f"{date.today():%Y-%m-%d}", *facts], sheets, page.SPARK)


def measured(scene: Scene, rows: int, notes: Sequence[str], console: Console) -> Iterator[Sheet]:
    """The tables: one for each size of rows, one of triggers, one of starts."""
    for body_bytes in BODIES:
        count = rows if body_bytes == BODIES[0] else max(1, int(rows * LARGER_SHARE))
        console.print(f"[dim]{count:,} rows of {body_bytes} bytes are laid out[/]")
        laid = laid_out(scene.spark, scene.name_server, scene.beside, scene.folder, body_bytes, count)
        ways = Ways(scene.spark, scene.name_server, scene.beside, laid, scene.folder)
        cases = [case for case in ways.all() if scene.wants(f"{case.who}: {case.what}")]
        if cases:
            results, said = in_turns(cases, scene, console)
            yield sheet(results, body_bytes, [*notes, *said])
        if body_bytes == BODIES[0] and scene.wants(TRIGGERS):
            try:
                yield triggers(scene.spark, scene.name_server, scene.beside, laid, scene.folder, min(2, scene.rounds))
            except NotMeasured as reason:
                yield Sheet(TRIGGERS, ["source"], [], [str(reason)])
        if body_bytes == BODIES[0] and scene.wants(STARTS):
            yield starts([*ways.starts(only=True)], _servers(scene), java_pid(scene.spark), 2 + scene.rounds)


def in_turns(cases: Sequence[Case], scene: Scene, console: Console) -> tuple[Results, list[str]]:
    """Rounds in which cases take turns, after one that is not counted; the medians, and what is to be said of them."""
    java = java_pid(scene.spark)
    servers = _servers(scene)
    shots: dict[tuple[str, str], list[Shot]] = {(case.who, case.what): [] for case in cases}
    until, rounds = monotonic() + MOST_S, 0
    for number in range(scene.rounds + 1):
        if rounds and monotonic() > until:
            break
        rounds = number
        for case in cases:
            shot = taken(case.run, servers.get(case.who), java)
            rate, cpu_us = case.rows / shot.seconds / 1e3, shot.cpu_s * 1e6 / case.rows
            console.print(f"[dim]{case.who}: {case.what}: {rate:,.0f} krow/s, {cpu_us:.2f} us of CPU a row[/]")
            if number:
                shots[case.who, case.what].append(shot)
    others = median(shot.others for some in shots.values() for shot in some)
    said = f"medians of {rounds} rounds in which cases took turns, after one that is not counted"
    results = {(case.who, case.what): (case, middle(shots[case.who, case.what])) for case in cases}
    return results, [f"{said}; other programs had {others:.0%} of the machine"]


def _servers(scene: Scene) -> dict[str, int]:
    return {OURS: scene.broker_pid} | ({KAFKA: scene.beside.pid} if scene.beside is not None else {})


def _kafka(folder: Path, leave: ExitStack, notes: list[str]) -> Kafka | None:
    try:
        return leave.enter_context(kafka(folder / "kafka"))
    except NotMeasured as reason:
        notes.append(str(reason))
        return None


def _facts(options: argparse.Namespace, rounds: int, load_before: float, took_s: float) -> list[str]:
    return [
        f"{cores()}, {machine.description()}",
        f"Spark local[{CORES}] with {'its own settings' if options.usual_spark else 'the settings of docs/spark.md'}",
        f"broker with {'its own settings' if options.usual_broker else 'large answers'}, on the same machine",
        f"{rounds} rounds, load {load_before:.1f} before, {machine.load():.1f} after {took_s:.0f} s",
    ]


if __name__ == "__main__":
    main()
