"""What a query costs before it has read much: streams of few rows, and the first results of a program.

For every streaming query with a source in Python, Spark starts a process that plans it. A program that reads for the first time waits
for four more: two find and create the source, one plans the read, one runs tasks. Each of them imports Spark.
"""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pyspark

from bench.broker.sheets import Sheet, verdict
from bench.spark.cases import KAFKA, OURS, Case
from bench.spark.costs import Shot, middle, taken

ROUNDS: Final = 5
FIRST_AIM_S: Final = 0.3
"""So much later than Kafka's first results ours may be."""
RUNNER: Final = "pyspark.sql.streaming.python_streaming_source_runner"
"""What Spark runs in that process."""
_IMPORT_S: Final = 60.0


def starts(cases: Sequence[Case], servers: dict[str, int], java_pid: int, rounds: int = ROUNDS) -> Sheet:
    """Seconds of CPU for one query; cases take turns, after a round that is not counted."""
    shots: dict[tuple[str, str], list[Shot]] = {(case.who, case.what): [] for case in cases}
    for number in range(rounds + 1):
        for case in cases:
            shot = taken(case.run, servers.get(case.who), java_pid)
            if number:
                shots[case.who, case.what].append(shot)
    lines = []
    for case in cases:
        shot = middle(shots[case.who, case.what])
        cpu = (shot.server_s, shot.python_s, shot.java_s, shot.cpu_s)
        lines.append([f"{case.who}: {case.what}", *(f"{seconds:z.2f}" for seconds in cpu)])
    lines.append(["Spark alone: the process of a source in Python", "", f"{own_imports_s():.2f}", "", ""])
    headings = ["start of a query", "server", "Python", "Java", "seconds of CPU"]
    notes = [
        f"a whole AvailableNow run over {cases[0].rows:,} rows, user and system time; medians of {rounds} runs each",
    ]
    return Sheet("starts", headings, lines, notes)


def first_results(shots: Mapping[tuple[str, str], Sequence[Shot]]) -> Sheet:
    """Shots of programs whose session was just created, by who and what."""
    lines = []
    middles = {key: middle(some) for key, some in shots.items()}
    for (who, what), shot in middles.items():
        kafka = middles.get((KAFKA, what))
        aim = ""
        if who == OURS and kafka is not None:
            later = shot.seconds - kafka.seconds
            aim = f"{later:+.2f} s to Kafka, ≤ {FIRST_AIM_S:+g}: {verdict(later <= FIRST_AIM_S)}"
        numbers = (shot.seconds, shot.server_s, shot.python_s, shot.java_s, shot.cpu_s)
        lines.append([f"{who}: {what}", *(f"{seconds:z.2f}" for seconds in numbers), aim])
    headings = ["after the session is up", "seconds", "server", "Python", "Java", "seconds of CPU", "aims"]
    count = min(map(len, shots.values()))
    return Sheet("first results", headings, lines, [f"medians of {count} programs each, which take turns"])


def own_imports_s() -> float:
    """CPU of a process that does what Spark's process of a Python source does before it knows of any, with Spark's path."""
    home = Path(pyspark.__file__).parent
    zips = sorted((home / "python" / "lib").glob("*.zip"), reverse=True)
    path = os.pathsep.join(map(str, [*zips, *(home / "jars").glob("spark-core_*.jar")]))
    before = os.times()
    subprocess.run(
        [sys.executable, "-c", f"import {RUNNER}, importlib, os; importlib.invalidate_caches(); os._exit(0)"],
        env={**os.environ, "PYTHONPATH": path},
        check=True,
        timeout=_IMPORT_S,
    )
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system
