"""Ready pipelines at scale.

python -m bench.pipelines                                     1 million messages of 200 bytes: some minutes; needs Java 17
python -m bench.pipelines archive --messages 10_000_000       one of them, with more; 10 million take 15 GB of disk

The brokers are processes of their own on the same machine; Spark is `local[cores]` with a heap of 1 GiB unless told otherwise.
CPU is that of Spark's driver, with its Java and its Python workers, and of the brokers.
"""

import argparse
import os
import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from bench.method import machine
from bench.pipelines.brokers import broker
from bench.pipelines.processes import Cost, costs_below
from pocketmq import Admin, Message, Producer
from pocketmq.pipelines import JOBS, Progress, Run, Summary, spark_session

NAMES: Final = ("archive", "backfill", "replay", "mirror")
QUEUES: Final = 8
BODY_BYTES: Final = 200
_CHUNK: Final = 2_000
_MB: Final = 1e6


class Scene(NamedTuple):
    """What pipelines run on."""

    spark: SparkSession
    source: str
    target: str
    folder: Path


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m bench.pipelines", description="Ready pipelines at scale.")
    parser.add_argument("pipelines", nargs="*", metavar="PIPELINE", help=f"of {', '.join(NAMES)}; all unless told")
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--no-properties", action="store_true", help="archive without the map of properties")
    parser.add_argument("--heap", default="1g", help="the memory of Spark's driver")
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--folder", type=Path, help="where all files go, in a temporary folder")
    given = parser.parse_args(arguments)
    chosen = given.pipelines or list(NAMES)
    if unknown := [name for name in chosen if name not in NAMES]:
        parser.error(f"there is no pipeline {unknown[0]} here: {', '.join(NAMES)}")
    table = _table(given.messages)
    with TemporaryDirectory(dir=given.folder) as folder, ExitStack() as leave:
        source = leave.enter_context(broker(Path(folder, "a")))
        target = leave.enter_context(broker(Path(folder, "b")))
        fill(source, "orders", given.messages)
        settings = {"spark.driver.memory": given.heap}
        spark = leave.enter_context(_session(f"local[{given.cores}]", settings))
        scene = Scene(spark, source, target, Path(folder))
        if "replay" in chosen and "archive" not in chosen:
            run_one("archive", scene, properties=True)
        for name in chosen:
            measure(table, name, scene, properties=not given.no_properties)
    Console(width=130).print(table)


def measure(table: Table, name: str, scene: Scene, *, properties: bool) -> None:
    before = _by_pid(costs_below(os.getpid()))
    summary = run_one(name, scene, properties=properties)
    after = costs_below(os.getpid())
    used = {cost.pid: cost.cpu_s - before.get(cost.pid, 0.0) for cost in after}
    java = [cost for cost in after if cost.program == "java"]
    workers = [cost for one in java for cost in costs_below(one.pid) if cost.pid != one.pid]
    seconds = summary.took_ms / 1000
    table.add_row(
        name,
        f"{summary.messages:,}",
        f"{seconds:.1f}",
        f"{summary.messages / seconds:,.0f}",
        f"{sum(used.values()) / summary.messages * 1e6:.1f}",
        f"{sum(used[cost.pid] for cost in java) / summary.messages * 1e6:.1f}",
        f"{sum(cost.peak_bytes for cost in java) / _MB:,.0f}",
        f"{sum(cost.peak_bytes for cost in after if cost.pid == os.getpid()) / _MB:,.0f}",
        f"{max((cost.peak_bytes for cost in workers), default=0) / _MB:,.0f}",
    )


def run_one(name: str, scene: Scene, *, properties: bool) -> Summary:
    job = JOBS[name]
    settings = job.settings(namesrv=scene.source, **_settings(name, scene, properties))
    summary = job.run(scene.spark, settings, Run(report=_tell))
    assert summary.messages, "it had something to do"
    return summary


def _tell(progress: Progress) -> None:
    """The first batches pay for Java getting warm: later ones tell what a longer run would reach."""
    told = f"{progress.query}: batch {progress.batch} took {progress.took_ms / 1000:.1f} s, {progress.messages:,} messages so far"
    print(told, file=sys.stderr, flush=True)


def _settings(name: str, scene: Scene, properties: bool) -> dict[str, Any]:
    lake, notes = str(scene.folder / "lake"), str(scene.folder / f"notes-{name}")
    if name in ("backfill", "replay"):
        with Admin(scene.source) as admin:
            admin.topics.create(f"{name}ed", queues=QUEUES)
    chosen: dict[str, dict[str, Any]] = {
        "archive": {"topics": ["orders"], "lake": lake, "properties": properties},
        "backfill": {"topics": ["orders"], "to": "backfilled", "checkpoint": notes},
        "replay": {"lake": lake, "to": "replayed", "checkpoint": notes},
        "mirror": {"topics": ["orders"], "target": scene.target, "checkpoint": notes},
    }
    return chosen[name]


@contextmanager
def _session(master: str, settings: dict[str, str]) -> Iterator[SparkSession]:
    spark = spark_session("pocketmq bench", master, settings=settings)
    try:
        yield spark
    finally:
        spark.stop()


def fill(name_server: str, topic: str, messages: int) -> None:
    """Bodies that cannot be compressed, with keys and tags."""
    with Admin(name_server) as admin:
        admin.topics.create(topic, queues=QUEUES)
        queues = sorted(one.queue for one in admin.topics.describe(topic).queues)
    dice = random.Random(7)
    with Producer(name_server, group="bench") as producer:
        for number, start in enumerate(range(0, messages, _CHUNK)):
            chunk = [
                Message(topic, dice.randbytes(BODY_BYTES), tags=f"Tag{at % 5}", keys=f"order{at}")
                for at in range(start, min(messages, start + _CHUNK))
            ]
            producer.send_many(chunk, queue=queues[number % len(queues)])


def _by_pid(costs: Sequence[Cost]) -> dict[int, float]:
    return {cost.pid: cost.cpu_s for cost in costs}


def _table(messages: int) -> Table:
    table = Table(title=f"ready pipelines, {messages:,} messages of {BODY_BYTES} bytes · {machine()}")
    table.caption = "seconds without the start of Spark; CPU in us for each message; largest memory in MB"
    for heading in ("pipeline", "messages", "s", "a second", "CPU, all", "of it Java", "Java", "driver", "a worker"):
        table.add_column(heading, justify="left" if heading == "pipeline" else "right", no_wrap=True)
    return table


if __name__ == "__main__":
    main()
