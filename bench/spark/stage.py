"""What the connector is measured on: a broker of ours, Kafka where its files are, Spark, and the same rows in all of them.

    rows ──► our topic ── Spark ──┬──► Parquet        all columns, what a read of the topic gave
                                  ├──► a quarter of them in Parquet, for the sinks
                                  └──► Kafka          value, keys, and the properties as headers
    more ──► a longer topic ──────┼──► Parquet        for reads into nowhere: they are over so soon that their start would decide.
                                  └──► Kafka
    few  ──► a short topic ───────┴──► Kafka          for the start of a query by itself

Everything stands in a temporary folder and listens on loopback.
"""

import compileall
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession

import pocketmq
from bench.broker.servers import PEERS, started_by_peers
from bench.broker.shots import NotMeasured
from pocketmq import Admin, Message, Producer
from pocketmq.spark.java import find_java

QUEUES: Final = 4
CORES: Final = 2
LARGE_ANSWERS: Final[dict[str, object]] = {
    "maxTransferCountOnMessageInMemory": 16_384,
    "maxTransferBytesOnMessageInMemory": 8 * 1024 * 1024,
    "maxTransferCountOnMessageInDisk": 16_384,
    "maxTransferBytesOnMessageInDisk": 8 * 1024 * 1024,
}
"""Settings of a broker that is read by Spark, as docs/guides/spark-read.md advises."""
ARROW_FLAGS: Final = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
"""Java trusts the batches of Python and does not look at every value twice; see docs/guides/spark-read.md."""
COLLECTOR: Final = "-XX:+UseParallelGC"
"""The garbage collector of Java that takes the least CPU; see docs/guides/spark-read.md."""
SINK_SHARE: Final = 4
"""Of so many rows one is written by the sinks, which are slower than reads."""
END_S: Final = 30.0
"""For Java to end."""
FEW: Final = 1_000
"""Rows of the query whose start is measured."""
_CHUNK: Final = 2_000
_JARS_S: Final = 300.0


class Kafka(NamedTuple):
    """A Kafka that runs: its address, its process, and what Spark needs to talk to it."""

    address: str
    pid: int
    jars: str


class Rows(NamedTuple):
    """The same rows in all sources."""

    total: int
    long_total: int
    body_bytes: int
    topic: str
    parquet: str
    sink_parquet: str

    @property
    def sink_total(self) -> int:
        return max(1, self.total // SINK_SHARE)

    @property
    def long_topic(self) -> str:
        return f"{self.topic}-long"

    @property
    def long_parquet(self) -> str:
        return f"{self.parquet}-long"

    @property
    def few_topic(self) -> str:
        return f"{self.topic}-few"

    @property
    def sink_topic(self) -> str:
        return f"{self.topic}-sink"


@contextmanager
def kafka(folder: Path) -> Iterator[Kafka]:
    """NotMeasured says why there is none."""
    jars = connector_jars()
    with started_by_peers("kafka", folder) as target:
        yield Kafka(f"127.0.0.1:{target.port}", target.pids[0], jars)


def connector_jars() -> str:
    """The files of Spark's Kafka connector, in the form of Spark's option. NotMeasured if they cannot be downloaded."""
    if not (PEERS / "servers.py").exists():
        raise NotMeasured("Kafka: there is nothing beside the repository that starts it")
    if shutil.which("java") is None:
        raise NotMeasured("Kafka: Java is not installed")
    ask = "import servers; servers.jars('kafka'); print('', servers.jars('spark-kafka'), sep='\\n')"
    try:
        done = subprocess.run(
            [sys.executable, "-c", ask], cwd=PEERS, capture_output=True, text=True, check=False, timeout=_JARS_S
        )
    except subprocess.TimeoutExpired:
        raise NotMeasured("Kafka: its files could not be fetched in time") from None
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["no word of why"]
        raise NotMeasured(f"Kafka: its files could not be fetched: {said[-1][:200]}")
    return done.stdout.strip().splitlines()[-1].strip().replace(os.pathsep, ",")


@contextmanager
def session(jars: str | None, *, usual: bool) -> Iterator[SparkSession]:
    """A session with the settings that docs/guides/spark-read.md advises, or with Spark's own. Its Java is gone when it ends.

    Installing a package compiles it. Where this one is run from its sources that is done here, or each process that Spark starts would.
    """
    compileall.compile_dir(Path(pocketmq.__file__).parent, quiet=1)
    os.environ.update(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1", JAVA_HOME=str(find_java()))
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.memory": "3g",
        "spark.sql.shuffle.partitions": str(CORES),
    }
    if not usual:
        settings["spark.python.unix.domain.socket.enabled"] = "true"
        settings["spark.driver.extraJavaOptions"] = f"{ARROW_FLAGS} {COLLECTOR}"
    if jars is not None:
        settings["spark.jars"] = jars
    builder = SparkSession.builder.master(f"local[{CORES}]").appName("pocketmq bench")
    for name, text in settings.items():
        builder = builder.config(name, text)
    spark = builder.getOrCreate()
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    try:
        yield spark
    finally:
        spark.stop()
        gateway.proc.stdin.close()  # Spark's Java ends with what it reads from
        gateway.proc.wait(END_S)


def java_pid(spark: SparkSession) -> int:
    java = spark.sparkContext._jvm
    assert java is not None
    return int(java.java.lang.ProcessHandle.current().pid())


def laid_out(
    spark: SparkSession,
    name_server: str,
    beside: Kafka | None,
    folder: Path,
    body_bytes: int,
    total: int,
    long_total: int,
) -> Rows:
    """Rows of this size in the topics, in Parquet, and in Kafka if there is one; on the disk, so that nothing is written when they are read."""
    topic = f"bench-{body_bytes}"
    rows = Rows(total, long_total, body_bytes, topic, str(folder / topic), str(folder / f"{topic}-sink"))
    with Admin(name_server) as admin:
        admin.topics.create(rows.sink_topic, queues=QUEUES)
    for name, count in ((topic, total), (rows.long_topic, rows.long_total), (rows.few_topic, FEW)):
        fill(name_server, name, body_bytes, count)
        frame = spark.read.format("rocketmq").options(**address_of(name_server), subscribe=name).load()
        if name == topic:
            frame.write.parquet(rows.parquet)
            frame = spark.read.parquet(rows.parquet)
            frame.select("value").limit(rows.sink_total).repartition(CORES).write.parquet(rows.sink_parquet)
        elif name == rows.long_topic:
            frame.write.parquet(rows.long_parquet)
        if beside is not None:
            _copied_to_kafka(frame, beside, name)
    os.sync()
    return rows


def _copied_to_kafka(frame: DataFrame, beside: Kafka, topic: str) -> None:
    headers = "transform(map_entries(properties), e -> struct(e.key, cast(e.value as binary) as value)) as headers"
    written = frame.selectExpr("value", "keys as key", headers).write.format("kafka")
    written.options(**{"kafka.bootstrap.servers": beside.address, "topic": topic}).save()


def fill(name_server: str, topic: str, body_bytes: int, total: int) -> None:
    """Bodies that cannot be compressed, with keys and tags."""
    with Admin(name_server) as admin:
        admin.topics.create(topic, queues=QUEUES)
        queues = sorted(one.queue for one in admin.topics.describe(topic).queues)
    dice = random.Random(7)
    with Producer(name_server, group="bench") as producer:
        for turn, start in enumerate(range(0, total, _CHUNK)):
            chunk = [
                Message(topic, dice.randbytes(body_bytes), tags=f"Tag{at % 5}", keys=f"order{at}")
                for at in range(start, min(total, start + _CHUNK))
            ]
            producer.send_many(chunk, queue=queues[turn % len(queues)])


def address_of(name_server: str) -> Mapping[str, str]:
    """The option of a read or a write that says where the brokers are."""
    return {"rocketmq.namesrv.addr": name_server}
