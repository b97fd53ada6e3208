"""The connector on a real Spark: rows a second from a local broker and to it, beside Spark reading the same rows from Parquet.

python -m bench.spark.end_to_end                    some minutes; needs Java 17 or newer
python -m bench.spark.end_to_end --rows 100000      quicker, and the fixed cost of a job weighs more
python -m bench.spark.end_to_end --usual-broker     a pull gets 32 messages, as brokers are set unless told otherwise
"""

import argparse
import os
import random
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

from bench.method import machine
from pocketmq import Admin, Message, Producer, Server

ROWS: Final = 500_000
ROUNDS: Final = 3
QUEUES: Final = 4
CORES: Final = 2
BODIES: Final = (100, 1024)
VALUE: Final = "value binary"
LARGE_ANSWERS: Final[dict[str, int]] = {
    "maxTransferCountOnMessageInMemory": 4096,
    "maxTransferBytesOnMessageInMemory": 1024 * 1024,
    "maxTransferCountOnMessageInDisk": 4096,
    "maxTransferBytesOnMessageInDisk": 1024 * 1024,
}
"""Settings of a broker that is read by Spark, as docs/spark.md advises."""
KEPT_MEMORY: Final = {"MALLOC_TRIM_THRESHOLD_": "268435456", "MALLOC_MMAP_THRESHOLD_": "33554432"}
"""Buffers of megabytes stay with the process, instead of being faulted in page by page each time; both or none."""
_CHUNK: Final = 2_000


class Case(NamedTuple):
    """What is measured: a name, and a run of it that goes through all rows."""

    name: str
    run: Callable[[], None]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m bench.spark.end_to_end", description="The connector on a real Spark.")
    parser.add_argument("--rows", type=int, default=ROWS, help="rows of 100 bytes; of 1 KB there are a third")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds in which the cases take turns")
    parser.add_argument("--usual-broker", action="store_true", help="a broker that answers with 32 messages at most")
    options = parser.parse_args(arguments)
    if options.rows < 1 or options.rounds < 1:
        parser.error("at least one row and one round are needed")

    table = Table(title=f"Spark local[{CORES}], broker on the same machine · {machine()}")
    table.caption = f"median of {options.rounds} rounds, cases interleaved, after one round that is not counted"
    for heading in ("case", "rows", "s", "krow/s", "MB/s", "of Parquet"):
        table.add_column(heading, justify="left" if heading == "case" else "right", no_wrap=True)
    settings = {} if options.usual_broker else LARGE_ANSWERS
    with TemporaryDirectory() as folder, Server(data=Path(folder, "broker"), settings=settings) as server:
        spark = session()
        for body_bytes in BODIES:
            rows = options.rows if body_bytes == BODIES[0] else max(1, options.rows // 3)
            measured(table, cases(spark, server, Path(folder), body_bytes, rows), body_bytes, rows, options.rounds)
        spark.stop()
    Console(width=118).print(table)


def session() -> SparkSession:
    os.environ.update(KEPT_MEMORY, PYSPARK_PYTHON=sys.executable)
    builder = SparkSession.builder.master(f"local[{CORES}]").appName("pocketmq bench")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.memory": "2g",
        "spark.python.unix.domain.socket.enabled": "true",
    }
    for name, text in settings.items():
        builder = builder.config(name, text)
    return builder.getOrCreate()


def cases(spark: SparkSession, server: Server, folder: Path, body_bytes: int, rows: int) -> list[Case]:
    """All ways through the same rows; the Parquet file is made of what was read."""
    topic, target = f"bench-{body_bytes}", f"sink-{body_bytes}"
    with Admin(server.name_server) as admin:
        for name in (topic, target):
            admin.topics.create(name, queues=QUEUES)
    fill(server, topic, body_bytes, rows)
    address = {"rocketmq.namesrv.addr": server.name_server}

    def batch(schema: str | None) -> DataFrame:
        reader = spark.read.format("rocketmq").options(**address, subscribe=topic)
        return (reader if schema is None else reader.schema(schema)).load()

    parquet = str(folder / topic)
    batch(None).write.parquet(parquet)

    def stream() -> None:
        frame = spark.readStream.format("rocketmq").options(**address, subscribe=topic, startingOffsets="earliest")
        with TemporaryDirectory(dir=folder) as checkpoint:
            writer = frame.schema(VALUE).load().writeStream.format("noop").trigger(availableNow=True)
            writer.option("checkpointLocation", checkpoint).start().awaitTermination()

    def sink() -> None:
        spark.read.parquet(parquet).select("value").write.format("rocketmq").options(**address, topic=target).mode(
            "append"
        ).save()

    return [
        Case("Parquet, all columns", lambda: to_noop(spark.read.parquet(parquet))),
        Case("batch, all columns", lambda: to_noop(batch(None))),
        Case("batch, value only", lambda: to_noop(batch(VALUE))),
        Case("stream, value only", stream),
        Case("sink, value only", sink),
    ]


def to_noop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def fill(server: Server, topic: str, body_bytes: int, rows: int) -> None:
    dice = random.Random(7)
    with Producer(server.name_server, group="bench") as producer:
        for start in range(0, rows, _CHUNK):
            producer.send_many(
                Message(topic, dice.randbytes(body_bytes), tags=f"Tag{number % 5}", keys=f"order{number}")
                for number in range(start, min(rows, start + _CHUNK))
            )


def measured(table: Table, subjects: Sequence[Case], body_bytes: int, rows: int, rounds: int) -> None:
    taken: dict[str, list[float]] = {one.name: [] for one in subjects}
    for number in range(rounds + 1):
        for one in subjects:
            start = perf_counter()
            one.run()
            if number:
                taken[one.name].append(perf_counter() - start)
    medians = {name: statistics.median(times) for name, times in taken.items()}
    peer_s = medians[subjects[0].name]
    for name, median_s in medians.items():
        table.add_row(
            f"{name}, {body_bytes} B",
            f"{rows:,}",
            f"{median_s:.2f}",
            f"{rows / median_s / 1000:.0f}",
            f"{rows * body_bytes / median_s / 1e6:.0f}",
            f"{peer_s / median_s:.2f}×",
            end_section=name == subjects[-1].name,
        )


if __name__ == "__main__":
    main()
