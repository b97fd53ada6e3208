"""The connector on a real Spark: rows a second from a local broker and to it, beside Parquet and Spark's Kafka connector.

python -m bench.spark.end_to_end                    about an hour; needs Java 17 or newer
python -m bench.spark.end_to_end archive            the pipeline alone, beside Parquet and Kafka: about twenty minutes
python -m bench.spark.end_to_end --quick            few rows, one round: does it run? The fixed cost of a job decides
python -m bench.spark.end_to_end --alone            without Kafka
python -m bench.spark.end_to_end batch sink         cases with one of these words in their name, also `triggers`, `starts`, `firsts`
python -m bench.spark.end_to_end --usual-broker     a pull gets 32 messages, the default of brokers
python -m bench.spark.end_to_end --usual-spark      Spark's own settings, without those that docs/guides/spark-read.md advises
python -m bench.spark.end_to_end --write-docs       and write the tables to docs/generated/spark.md
"""

import argparse
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from datetime import date
from multiprocessing.connection import Connection
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
from bench.spark.own_process import heard, in_own_process, own_process
from bench.spark.report import Measured, Results, sheet
from bench.spark.stage import CORES, LARGE_ANSWERS, Kafka, Rows, java_pid, kafka, laid_out, session
from bench.spark.starts import first_results, starts
from bench.spark.triggers import triggers

WIDTH: Final = 180
ROWS: Final = 1_200_000
QUICK_ROWS: Final = 60_000
LONG_TIMES: Final = 2.5
"""So many times the rows that are written as Parquet are read into nowhere."""
ROUNDS: Final = 5
ARCHIVE_ROUNDS: Final = 5
"""At least, as archives are long enough to be few."""
BODIES: Final = (100, 1024)
LARGER_SHARE: Final = 0.4
"""Rows of 1 KB that are written somewhere, of each row of 100 bytes. Into nowhere as many are read of either."""
WARM_S: Final = 60.0
"""So long the cases of a comparison take turns before they count: Java compiles meanwhile."""
STEADY_S: Final = 30.0
"""Quick cases take more turns than they must, until they have been measured for so long."""
TRIGGERS: Final = "triggers"
STARTS: Final = "starts"
FIRSTS: Final = "firsts"

Shots = Mapping[tuple[str, str], Sequence[Shot]]
"""By who and what."""


class Scene(NamedTuple):
    """What is measured on, and how much. It travels to the processes that have a Spark."""

    name_server: str
    broker_pid: int
    beside: Kafka | None
    folder: Path
    is_usual: bool
    is_quick: bool
    rounds: int
    words: Sequence[str]

    @property
    def warm_s(self) -> float:
        return 0 if self.is_quick else WARM_S

    def wants(self, name: str) -> bool:
        return not self.words or any(word in name for word in self.words)

    def ways(self, rows: Rows) -> Ways:
        return Ways(self.name_server, self.beside, rows, self.folder)

    def spark(self) -> AbstractContextManager[SparkSession]:
        return session(None if self.beside is None else self.beside.jars, usual=self.is_usual)

    def servers(self) -> dict[str, int]:
        return {OURS: self.broker_pid} | ({KAFKA: self.beside.pid} if self.beside is not None else {})


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m bench.spark.end_to_end", description="The connector on a real Spark.")
    parser.add_argument("words", nargs="*", help="measure the cases whose name holds one of these words")
    parser.add_argument("--rows", type=int, help=f"rows of 100 bytes, by default {ROWS:,}; there are fewer of 1 KB")
    parser.add_argument("--rounds", type=int, help=f"rounds in which cases take turns, by default at least {ROUNDS}")
    parser.add_argument("--quick", action="store_true", help="few rows and one round: does it run?")
    parser.add_argument("--alone", action="store_true", help="without Kafka")
    parser.add_argument("--usual-broker", action="store_true", help="a broker that answers with 32 messages at most")
    parser.add_argument("--usual-spark", action="store_true", help="Spark's own settings")
    parser.add_argument("--write-docs", action="store_true", help="write the tables to docs/generated/spark.md")
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
        scene = Scene(*broker, beside, folder, options.usual_spark, options.quick, rounds, options.words)
        sheets = []
        for one in measured(scene, rows, notes, console):
            sheets.append(one)
            console.print(as_table(one))
    facts = _facts(options, rounds, load_before, monotonic() - began)
    console.print(" · ".join(facts))
    if options.write_docs:
        page.write([f"{date.today():%Y-%m-%d}", *facts], sheets, page.SPARK)


def measured(scene: Scene, total: int, notes: Sequence[str], console: Console) -> Iterator[Sheet]:
    """The tables: one for each size of rows, one of triggers, one of starts, one of first results."""
    for body_bytes in BODIES:
        count = total if body_bytes == BODIES[0] else max(1, int(total * LARGER_SHARE))
        long = int(total * LONG_TIMES)
        console.print(f"[dim]{count + long:,} rows of {body_bytes} bytes are laid out[/]")
        rows = in_own_process(lay_out, scene, body_bytes, count, long)
        cases = [case for case in scene.ways(rows).all() if scene.wants(f"{case.who}: {case.what}")]
        if cases:
            shots: dict[tuple[str, str], Sequence[Shot]] = {}
            for comparison in dict.fromkeys(case.comparison for case in cases):
                shots |= compared(scene, rows, [case for case in cases if case.comparison == comparison], console)
            yield sheet(_results(cases, shots), body_bytes, [*notes, *_said(rows, shots, scene.warm_s)])
        if body_bytes == BODIES[0] and scene.wants(TRIGGERS):
            yield in_own_process(measure_triggers, scene, rows)
        if body_bytes == BODIES[0] and scene.wants(STARTS):
            yield in_own_process(measure_starts, scene, rows)
        if body_bytes == BODIES[0] and scene.wants(FIRSTS):
            yield measure_firsts(scene, rows)


def compared(scene: Scene, rows: Rows, cases: Sequence[Case], console: Console) -> Shots:
    """Rounds in which cases take turns, each in its own process, after some rounds that are not counted."""
    shots: dict[tuple[str, str], list[Shot]] = {(case.who, case.what): [] for case in cases}
    with ExitStack() as leave:
        places = {
            who: leave.enter_context(own_process(shoot, scene, rows, who))
            for who in dict.fromkeys(c.who for c in cases)
        }

        def turns() -> Iterator[tuple[Case, Shot]]:
            for case in cases:
                places[case.who].send(case.what)
                shot: Shot = heard(places[case.who])
                rate, cpu_us = case.rows / shot.seconds / 1e3, shot.cpu_s * 1e6 / case.rows
                console.print(f"[dim]{case.who}: {case.what}: {rate:,.0f} krow/s, {cpu_us:.2f} us of CPU a row[/]")
                yield case, shot

        _rounds(turns, rounds=1, seconds=scene.warm_s)
        least = max(scene.rounds, ARCHIVE_ROUNDS) if cases[0].is_archive and not scene.is_quick else scene.rounds
        for case, shot in _rounds(turns, rounds=least, seconds=0 if scene.is_quick else STEADY_S):
            shots[case.who, case.what].append(shot)
    return shots


def _results(cases: Sequence[Case], shots: Shots) -> Results:
    measured = {}
    for case in cases:
        own = shots[case.who, case.what]
        measured[case.who, case.what] = Measured(case, middle(own), min(shot.seconds for shot in own))
    return measured


def _rounds(turns: Callable[[], Iterator[tuple[Case, Shot]]], rounds: int, seconds: float) -> list[tuple[Case, Shot]]:
    """So many rounds of turns, and more until the time is over."""
    until, found, done = monotonic() + seconds, list(turns()), 1
    while done < rounds or monotonic() < until:
        found += turns()
        done += 1
    return found


def measure_firsts(scene: Scene, rows: Rows) -> Sheet:
    shots: dict[tuple[str, str], list[Shot]] = {(case.who, case.what): [] for case in scene.ways(rows).firsts()}
    for _ in range(scene.rounds):
        for who, what in shots:
            shots[who, what].append(in_own_process(shoot_first, scene, rows, who, what))
    return first_results(shots)


# In processes of their own.


def lay_out(scene: Scene, body_bytes: int, total: int, long_total: int) -> Rows:
    with scene.spark() as spark:
        return laid_out(spark, scene.name_server, scene.beside, scene.folder, body_bytes, total, long_total)


def shoot(asked: Connection, scene: Scene, rows: Rows, who: str) -> None:
    """Whatever is asked for of the cases of one."""
    cases = {case.what: case for case in scene.ways(rows).all() if case.who == who}
    with scene.spark() as spark, suppress(EOFError):
        java = java_pid(spark)
        while True:
            asked.send(taken(cases[asked.recv()].run, scene.servers().get(who), java))


def shoot_first(scene: Scene, rows: Rows, who: str, what: str) -> Shot:
    """The first work of a session."""
    [case] = [case for case in scene.ways(rows).firsts() if (case.who, case.what) == (who, what)]
    with scene.spark() as spark:
        return taken(case.run, scene.servers().get(who), java_pid(spark))


def measure_triggers(scene: Scene, rows: Rows) -> Sheet:
    with scene.spark() as spark:
        try:
            return triggers(spark, scene.name_server, scene.beside, rows, scene.folder, scene.rounds)
        except NotMeasured as reason:
            return Sheet(TRIGGERS, ["source"], [], [str(reason)])


def measure_starts(scene: Scene, rows: Rows) -> Sheet:
    with scene.spark() as spark:
        return starts([*scene.ways(rows).starts(only=True)], scene.servers(), java_pid(spark), scene.rounds)


def _said(rows: Rows, shots: Shots, warm_s: float) -> list[str]:
    """What is to be known of the numbers."""
    counts = sorted({len(some) for some in shots.values()})
    rounds = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    others = median(shot.others for some in shots.values() for shot in some)
    return [
        f"{rows.long_total:,} rows are read into noop and archived, {rows.total:,} written as Parquet, {rows.sink_total:,} into a topic",
        "PocketMQ, Parquet and Kafka each have one Java process for each kind of read into noop, and one for all writes",
        f"medians of {rounds} rounds in which cases took turns; at least one round and {warm_s:.0f} s before them do not count",
        f"other programs had {others:.0%} of the machine",
    ]


def _kafka(folder: Path, leave: ExitStack, notes: list[str]) -> Kafka | None:
    try:
        return leave.enter_context(kafka(folder / "kafka"))
    except NotMeasured as reason:
        notes.append(str(reason))
        return None


def _facts(options: argparse.Namespace, rounds: int, load_before: float, took_s: float) -> list[str]:
    return [
        f"{cores()}, {machine.description()}",
        f"Spark local[{CORES}] with {'its own settings' if options.usual_spark else 'the settings of docs/guides/spark-read.md'}",
        f"broker with {'its own settings' if options.usual_broker else 'large answers'}, on the same machine",
        f"{rounds} rounds at least, load {load_before:.1f} before, {machine.load():.1f} after {took_s:.0f} s",
    ]


if __name__ == "__main__":
    main()
