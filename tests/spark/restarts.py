"""Every moment at which a driver or a worker can be killed, one after the other: a stream from a topic into a topic or into files.

python -m tests.spark.restarts                       all of them, half a minute each
python -m tests.spark.restarts driver-tasks-done     those whose name holds one of these words

A killed driver is started again from its checkpoint; the task of a killed worker Spark runs again by itself. At the end the rows are
those that were sent, each as often. `tests.spark.driver_kills` kills at chance moments, too.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from rich.console import Console
from tests.spark.broker_kit import Broker, fill, new_topic
from tests.spark.driver_kills import rows_in
from tests.spark.killing_source import KillingSource, Moment, Victim
from tests.spark.stream_kit import ran

from pocketmq import Server
from pocketmq.spark.java import find_java

ROOT: Final = Path(__file__).parents[2]
ROWS: Final = 400
PER_BATCH: Final = 100
PATIENCE_S: Final = 180.0
TOO_LONG: Final = -signal.SIGALRM
"""How a driver ended that did not end by itself."""


class Case(NamedTuple):
    victim: Victim
    moment: Moment
    sink: str

    @property
    def name(self) -> str:
        return f"{self.victim}-{self.moment}-to-{self.sink}"


TO_TOPICS: Final = [
    *(Case(Victim.DRIVER, moment, "topic") for moment in Moment),
    *(Case(Victim.WORKER, moment, "topic") for moment in (Moment.ROWS_READ, Moment.ROWS_WRITTEN)),
]
TO_FILES: Final = [
    *(Case(Victim.DRIVER, moment, "files") for moment in (Moment.OFFSETS_LOGGED, Moment.ROWS_READ, Moment.BATCH_DONE)),
    Case(Victim.WORKER, Moment.ROWS_READ, "files"),
]
"""Spark's own sink of files writes each batch once, so these are about the source alone."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m tests.spark.restarts", description="Kills at every moment.")
    parser.add_argument("words", nargs="*", help="run the cases whose name holds one of these words")
    parser.add_argument("--stream", nargs=7, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.stream:
        stream(*given.stream)
        return 0
    chosen = [
        case for case in TO_TOPICS + TO_FILES if not given.words or any(word in case.name for word in given.words)
    ]
    say = Console(highlight=False).print
    failed = 0
    with Server() as server:
        for case in chosen:
            flaw = flaw_of(case, Broker.of(server))
            failed += bool(flaw)
            say(f"{case.name:38} {flaw or f'{ROWS} rows, each as often as sent'}")
    return 1 if failed else 0


def flaw_of(case: Case, broker: Broker) -> str:
    """The faults after a kill and a restart; empty if all is correct."""
    source, target = new_topic(broker), new_topic(broker)
    sent = Counter(f"row {number // 2}" for number in range(ROWS))  # each twice
    rows = sorted(sent.elements())
    for number in range(2):
        fill(broker, source, rows[number::2], number=number)
    with TemporaryDirectory() as folder:
        first = driver(case, broker, source, target, folder)
        if not Path(folder, "killed").exists():
            return f"no process was killed; the driver ended with {first}"
        if case.victim is Victim.DRIVER and first != -9:
            return f"the driver was to be killed, and ended with {first}"
        last = first if case.victim is Victim.WORKER else driver(case, broker, source, target, folder)
        if last:
            return f"the driver failed with {last}"
        found = rows_in(broker, target) if case.sink == "topic" else rows_in_files(Path(folder, "files"))
    missing, doubled = sent - found, found - sent
    return "" if not missing and not doubled else f"{missing.total()} rows are missing, {doubled.total()} are doubled"


def driver(case: Case, broker: Broker, source: str, target: str, folder: str) -> int:
    """Run the stream to its end, or until it is killed; how its process ended."""
    told = [broker.name_server, source, target, folder, case.victim, case.moment, case.sink]
    with subprocess.Popen(
        [sys.executable, "-m", "tests.spark.restarts", "--stream", *told],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "JAVA_HOME": str(find_java())},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        try:
            return process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            return TOO_LONG
        finally:
            with suppress(ProcessLookupError):  # the usual case: it has ended, with all that it started
                os.killpg(process.pid, signal.SIGKILL)


def rows_in_files(folder: Path) -> Counter[str]:
    """By the log of Spark's sink: an interrupted batch may have left files that it does not count."""
    found: Counter[str] = Counter()
    for note in (folder / "_spark_metadata").glob("[0-9]*"):
        for line in note.read_text("utf-8").splitlines()[1:]:
            name = Path(json.loads(line)["path"].removeprefix("file://"))
            found.update(value.decode() for value in pq.read_table(name).column("value").to_pylist())
    return found


def stream(name_server: str, source: str, target: str, folder: str, victim: str, moment: str, sink: str) -> None:
    """What the driver does."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2,4]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "10")
        .getOrCreate()
    )
    spark.dataSource.register(KillingSource)
    kill = {"kill.moment": moment, "kill.victim": victim, "kill.once": str(Path(folder, "killed"))}
    address = {"rocketmq.namesrv.addr": name_server}
    rows = (
        spark.readStream.format("killing")
        .schema("value binary")
        .options(**kill, **address, subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger=str(PER_BATCH))
        .load()
    )
    writer = rows.writeStream.option("checkpointLocation", str(Path(folder, "checkpoint"))).trigger(availableNow=True)
    if sink == "topic":
        writer = writer.format("killing").options(**kill, **address, topic=target, sendBatchBytes="1024")
    else:
        writer = writer.format("parquet").option("path", str(Path(folder, "files")))
    ran(writer.start, int(PATIENCE_S))
    spark.stop()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no driver is left behind
    sys.exit(main())
