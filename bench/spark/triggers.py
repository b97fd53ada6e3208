"""What a micro-batch costs beside its rows: a thousand of them a trigger, the clock read by Spark itself.

A trigger should take no longer than one of Spark's Kafka connector, in the same rounds.
"""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from bench.broker.sheets import Sheet, verdict
from bench.broker.shots import NotMeasured
from bench.spark.stage import CORES, Kafka, Rows, address_of

ROWS: Final = 1000
RATE: Final = "rate-micro-batch"
OURS: Final = "PocketMQ"
WITH_GROUP: Final = "PocketMQ, with groupId"
KAFKA: Final = "Kafka"
COUNTED: Final = 25
WARM: Final = 5
MOST_S: Final = 60.0
PHASES: Final = ("addBatch", "walCommit", "commitOffsets", "latestOffset", "queryPlanning", "triggerExecution")


def triggers(
    spark: SparkSession, name_server: str, beside: Kafka | None, rows: Rows, folder: Path, rounds: int
) -> Sheet:
    """Sources take turns, to noop; medians of milliseconds."""
    frames = _frames(spark, name_server, beside, rows)
    found: dict[str, list[Mapping[str, float]]] = {name: [] for name in frames}
    for _ in range(rounds):
        for name, frame in frames.items():
            found[name] += some(frame, folder)
    whole = {name: _middle(durations, "triggerExecution") for name, durations in found.items()}
    lines = []
    for name, durations in found.items():
        times = whole[name] / whole[RATE]
        aim = f"≤ Kafka: {verdict(whole[name] <= whole[KAFKA])}" if name.startswith(OURS) and KAFKA in whole else ""
        phases = [f"{_middle(durations, phase):.0f}" for phase in PHASES]
        lines.append([name, *phases, f"{times:.2f}", aim])
    headings = ["source, to noop", *PHASES[:-1], "whole trigger", f"times {RATE}", "goals"]
    notes = [
        f"milliseconds, medians of {COUNTED} triggers of {ROWS} rows in each of {rounds} rounds, after {WARM} each"
    ]
    return Sheet("triggers", headings, lines, notes)


def some(frame: DataFrame, folder: Path, wanted: int = WARM + COUNTED) -> list[Mapping[str, float]]:
    """How long the phases of triggers took that brought rows, without the first ones of the query."""
    seen: dict[int, Mapping[str, float]] = {}
    deadline = monotonic() + MOST_S
    with TemporaryDirectory(dir=folder, ignore_cleanup_errors=True) as place:
        query = frame.writeStream.format("noop").option("checkpointLocation", place).start()
        try:
            while len(seen) < wanted:
                _note(seen, query.recentProgress)
                if (failure := query.exception()) is not None:
                    raise failure
                if monotonic() > deadline:
                    raise NotMeasured(f"triggers: only {len(seen)} in {MOST_S:.0f} s")
                sleep(0.1)
        finally:
            query.stop()
    return [seen[number] for number in sorted(seen)][WARM:wanted]


def _frames(spark: SparkSession, name_server: str, beside: Kafka | None, rows: Rows) -> dict[str, DataFrame]:
    rate = spark.readStream.format(RATE).options(rowsPerBatch=str(ROWS), numPartitions=str(CORES)).load()
    limit = {"subscribe": rows.topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(ROWS)}
    ours = {**address_of(name_server), **limit}
    found = {
        RATE: rate,
        OURS: spark.readStream.format("rocketmq").options(**ours).load(),
        WITH_GROUP: spark.readStream.format("rocketmq").options(**ours, groupId="bench-triggers").load(),
    }
    if beside is not None:
        theirs = {"kafka.bootstrap.servers": beside.address, **limit}
        found[KAFKA] = spark.readStream.format("kafka").options(**theirs).load()
    return found


def _note(seen: dict[int, Mapping[str, float]], progress: Sequence[Any]) -> None:
    for one in progress:
        if one["numInputRows"]:
            seen[one["batchId"]] = dict(one["durationMs"])


def _middle(durations: Sequence[Mapping[str, float]], phase: str) -> float:
    return statistics.median(one.get(phase, 0) for one in durations)
