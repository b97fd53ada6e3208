"""Ready pipelines at scale.

python -m bench.pipelines                                     1 million messages of 200 bytes: some minutes; needs Java 17
python -m bench.pipelines archive --messages 10_000_000       one of them, with more; 10 million take 8 GB of disk

The brokers run in their own processes on the same machine. Spark is `local[cores]`, by default with a heap of 1 GiB. CPU and
memory are reported for each part: brokers, Python workers of Spark, its Java, and the driver's Python.
"""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, Final, NamedTuple

from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from bench.method import machine
from bench.pipelines.brokers import broker
from bench.pipelines.contents import BODY_BYTES, EVENT_SCHEMA, EVENTS, ORDERS, QUEUES, TRACES, fill
from bench.pipelines.parts import Part, cpu_by_part, peaks_by_part
from pocketmq import Admin
from pocketmq.pipelines import JOBS, Progress, Run, Summary, spark_session

READS: Final = {
    "archive": ORDERS,
    "backfill": ORDERS,
    "replay": ORDERS,
    "mirror": ORDERS,
    "quality": EVENTS,
    "trace": TRACES,
}
"""What is measured, and the topic that it reads. `lag-report` asks brokers alone, and messages cost it nothing."""
_MB: Final = 1e6


class Scene(NamedTuple):
    """What pipelines run on."""

    spark: SparkSession
    source: str
    target: str
    folder: Path
    engine: str


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m bench.pipelines", description="Ready pipelines at scale.")
    parser.add_argument("pipelines", nargs="*", metavar="PIPELINE", help=f"of {', '.join(READS)}; all by default")
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--no-properties", action="store_true", help="archive without the map of properties")
    parser.add_argument("--engine", choices=["spark", "direct"], default="spark", help="of archive")
    parser.add_argument("--heap", default="1g", help="the memory of Spark's driver")
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--folder", type=Path, help="where all files go, in a temporary folder")
    given = parser.parse_args(arguments)
    chosen = given.pipelines or list(READS)
    if unknown := [name for name in chosen if name not in READS]:
        parser.error(f"there is no pipeline {unknown[0]} here: {', '.join(READS)}")
    table = _table(given.messages)
    with TemporaryDirectory(dir=given.folder) as folder, ExitStack() as leave:
        source = leave.enter_context(broker(Path(folder, "a")))
        target = leave.enter_context(broker(Path(folder, "b")))
        for topic in sorted({READS[name] for name in chosen}):
            fill(source, topic, given.messages, _say)
        settings = {"spark.driver.memory": given.heap}
        spark = leave.enter_context(_session(f"local[{given.cores}]", settings))
        scene = Scene(spark, source, target, Path(folder), given.engine)
        if "replay" in chosen and "archive" not in chosen:
            run_one("archive", scene, properties=True)
        for name in chosen:
            measure(table, name, scene, properties=not given.no_properties)
    Console(width=150).print(table)


def measure(table: Table, name: str, scene: Scene, *, properties: bool) -> None:
    before, began = cpu_by_part(os.getpid()), perf_counter()
    summary = run_one(name, scene, properties=properties)
    seconds = perf_counter() - began
    used = {part: cpu_s - before[part] for part, cpu_s in cpu_by_part(os.getpid()).items()}
    peaks = peaks_by_part(os.getpid())
    table.add_row(
        name,
        f"{summary.messages:,}",
        f"{seconds:.1f}",
        f"{summary.messages / seconds:,.0f}",
        *(f"{cpu_s / summary.messages * 1e6:.1f}" for cpu_s in (sum(used.values()), *(used[part] for part in Part))),
        *(f"{peaks[part] / _MB:,.0f}" for part in Part),
    )


def run_one(name: str, scene: Scene, *, properties: bool) -> Summary:
    job = JOBS[name]
    settings = job.settings(namesrv=scene.source, **_settings(name, scene, properties))
    summary = job.run(scene.spark, settings, Run(report=_tell))
    assert summary.messages, "it had something to do"
    return summary


def _tell(progress: Progress) -> None:
    """The first batches pay for Java getting warm: later ones tell what a longer run would reach."""
    _say(
        f"{progress.query}: batch {progress.batch} took {progress.took_ms / 1000:.1f} s, {progress.messages:,} messages so far"
    )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _settings(name: str, scene: Scene, properties: bool) -> dict[str, Any]:
    lake, notes = str(scene.folder / "lake"), str(scene.folder / f"notes-{name}")
    if name in ("backfill", "replay"):
        with Admin(scene.source) as admin:
            admin.topics.create(f"{name}ed", queues=QUEUES)
    chosen: dict[str, dict[str, Any]] = {
        "archive": {"topics": [ORDERS], "lake": lake, "properties": properties, "engine": scene.engine},
        "backfill": {"topics": [ORDERS], "to": "backfilled", "checkpoint": notes},
        "replay": {"lake": lake, "to": "replayed", "checkpoint": notes},
        "mirror": {"topics": [ORDERS], "target": scene.target, "checkpoint": notes},
        "quality": {
            "topics": [EVENTS],
            "schema": EVENT_SCHEMA,
            "expect": ("amount >= 0",),
            "dead_letters": "dead",
            "checkpoint": notes,
        },
        "trace": {"topics": [TRACES], "lake": str(scene.folder / "traces")},
    }
    return chosen[name]


@contextmanager
def _session(master: str, settings: dict[str, str]) -> Iterator[SparkSession]:
    spark = spark_session("pocketmq bench", master, settings=settings)
    try:
        yield spark
    finally:
        spark.stop()


def _table(messages: int) -> Table:
    table = Table(title=f"ready pipelines, {messages:,} messages of {BODY_BYTES} bytes · {machine()}")
    table.caption = (
        "seconds without the start of Spark; CPU in us for each message; largest memory of one process in MB"
    )
    for heading in ("pipeline", "messages", "s", "a second", "CPU", *Part, *(f"{part} MB" for part in Part)):
        table.add_column(heading, justify="left" if heading == "pipeline" else "right", no_wrap=True)
    return table


if __name__ == "__main__":
    main()
