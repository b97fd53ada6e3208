"""Where else Spark runs: over Spark Connect, on a serverless platform, in a Declarative Pipeline, in a notebook. Each writes to a
topic and reads it again.

python -m tests.spark.places                       all of them, half a minute each
python -m tests.spark.places connect notebook      some

They need libraries that nothing else here needs: pip install 'pyspark[connect,pipelines]' nbclient ipykernel.
"""

import argparse
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Final, NamedTuple

from rich.console import Console
from tests.spark.broker_kit import Broker, fill, new_topic
from tests.spark.driver_kills import rows_in

from pocketmq import Server
from pocketmq.spark.java import find_java

ROOT: Final = Path(__file__).parents[2]
NOTEBOOK: Final = ROOT / "examples" / "spark_orders.ipynb"
PATIENCE_S: Final = 400.0
SENT: Final = [f"row {number}" for number in range(50)]

PIPELINE: Final = """\
name: orders
storage: file://{folder}/storage
libraries:
  - glob:
      include: transformations/**
"""
TRANSFORMATIONS: Final = """\
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()
address = {{"rocketmq.namesrv.addr": "{name_server}"}}


@dp.table
def orders():
    return spark.readStream.format("rocketmq").options(**address, subscribe="{source}", startingOffsets="earliest").load()


dp.create_sink("invoices", "rocketmq", {{**address, "topic": "{target}"}})


@dp.append_flow(target="invoices")
def invoices():
    return spark.readStream.table("orders").selectExpr("value", "queueOffset % 2 AS part").selectExpr("value")
"""
CONNECT: Final = """\
import sys
from pyspark.sql import SparkSession

name_server, source, target, checkpoint = sys.argv[1:]
spark = SparkSession.builder.remote("local[2]").getOrCreate()
assert "connect" in type(spark).__module__
address = {"rocketmq.namesrv.addr": name_server}
rows = spark.read.format("rocketmq").schema("value binary").options(**address, subscribe=source).load()
assert rows.count() == 50
stream = spark.readStream.format("rocketmq").options(**address, subscribe=source, startingOffsets="earliest").load()
query = (
    stream.select("value")
    .writeStream.format("rocketmq")
    .options(**address, topic=target, checkpointLocation=checkpoint)
    .trigger(availableNow=True)
    .start()
)
assert query.awaitTermination(300)
rows.write.format("rocketmq").options(**address, topic=target, writeId="once more").mode("append").save()
spark.stop()
"""
SERVER: Final = """\
import socket
import sys
from pathlib import Path

import pocketmq.spark
from pyspark.sql import SparkSession

with socket.create_server(("127.0.0.1", 0)) as free:
    port = free.getsockname()[1]
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.plugins", "org.apache.spark.sql.connect.SparkConnectPlugin")
    .config("spark.connect.grpc.binding.address", "127.0.0.1")
    .config("spark.connect.grpc.binding.port", port)
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.ui.enabled", "false")
    .getOrCreate()
)
unfinished = Path(sys.argv[1] + ".tmp")
unfinished.write_text(str(port))
unfinished.rename(sys.argv[1])
sys.stdin.read()
"""
SERVERLESS: Final = """\
import sys

for name in ("pocketmq", "pyspark_rocketmq"):
    sys.modules[name] = None  # the client has only PySpark
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, expr

port, name_server, source, target, checkpoint = sys.argv[1:]
spark = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
assert spark.conf.get("spark.jars", "") == "" and spark.conf.get("spark.jars.packages", "") == ""
address = {"rocketmq.namesrv.addr": name_server}
rows = spark.read.format("rocketmq").options(**address, subscribe=source).load()
assert rows.where("topic IS NOT NULL").count() == 50
stream = spark.readStream.format("rocketmq").options(**address, subscribe=source, startingOffsets="earliest").load()
query = (
    stream.select("value", expr("map('from', topic)").alias("properties"))
    .writeStream.format("rocketmq")
    .options(**address, topic=target, checkpointLocation=checkpoint)
    .trigger(availableNow=True)
    .start()
)
assert query.awaitTermination(300)
assert sum(progress.numInputRows for progress in query.recentProgress) == 50
assert "RocketMQ[" in query.lastProgress.json
rows.select(col("value")).write.format("rocketmq").options(**address, topic=target).mode("append").save()
spark.stop()
"""


class Place(NamedTuple):
    """Where Spark runs, the libraries that it needs, and how often it writes each row."""

    libraries: Sequence[str]
    run: Callable[[Broker, str, str, Path], None]
    times: int


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m tests.spark.places", description="Where else Spark runs.")
    parser.add_argument("places", nargs="*", metavar="place", help=f"of {', '.join(PLACES)}; all if not given")
    chosen = parser.parse_args(arguments).places or list(PLACES)
    if unknown := [name for name in chosen if name not in PLACES]:
        parser.error(f"there is no {unknown[0]}; there are: {', '.join(PLACES)}")
    say = Console(highlight=False).print
    failed = 0
    with Server() as server:
        for name in chosen:
            said = tried(PLACES[name], Broker.of(server))
            failed += said.startswith("failed")
            say(f"{name:10} {said}")
    return 1 if failed else 0


def tried(place: Place, broker: Broker) -> str:
    """The result as text."""
    if missing := [name for name in place.libraries if find_spec(name) is None]:
        return f"skipped: pip install 'pyspark[connect,pipelines]' nbclient ipykernel (no {', '.join(missing)})"
    source, target = new_topic(broker), new_topic(broker)
    fill(broker, source, SENT)
    with TemporaryDirectory() as folder:
        try:
            place.run(broker, source, target, Path(folder))
        except subprocess.CalledProcessError as error:
            return f"failed with {error.returncode}:\n{error.output[-4000:]}"
    found, wanted = rows_in(broker, target), Counter(SENT * place.times)
    return f"{len(SENT)} rows, each as often as sent" if found == wanted else f"failed: {found.total()} rows are there"


def connect(broker: Broker, source: str, target: str, folder: Path) -> None:
    program = folder / "program.py"
    program.write_text(CONNECT, "utf-8")
    run([sys.executable, str(program), broker.name_server, source, target, str(folder / "checkpoint")], folder)


def serverless(broker: Broker, source: str, target: str, folder: Path) -> None:
    """As on platforms that offer only Spark Connect: no JAR, no files and no PocketMQ at the client, only AvailableNow. The platform
    has PocketMQ in its environment, and a folder for checkpoints.
    """
    server, program, port = folder / "server.py", folder / "program.py", folder / "port"
    server.write_text(SERVER, "utf-8")
    program.write_text(SERVERLESS, "utf-8")
    environ = {**os.environ, "JAVA_HOME": str(find_java()), "PYSPARK_PYTHON": sys.executable}
    with (
        (folder / "server.log").open("wb") as log,
        subprocess.Popen(
            [sys.executable, str(server), str(port)],
            cwd=folder,
            env=environ,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
        ) as platform,
    ):
        assert platform.stdin is not None
        deadline = monotonic() + PATIENCE_S
        while not port.exists():
            if platform.poll() is not None or monotonic() > deadline:
                raise subprocess.CalledProcessError(1, "server", (folder / "server.log").read_text("utf-8", "replace"))
            sleep(0.1)
        try:
            arguments = [port.read_text("utf-8"), broker.name_server, source, target, str(folder / "checkpoint")]
            run([sys.executable, str(program), *arguments], folder)
        finally:
            platform.stdin.close()


def pipeline(broker: Broker, source: str, target: str, folder: Path) -> None:
    (folder / "transformations").mkdir()
    (folder / "spark-pipeline.yml").write_text(PIPELINE.format(folder=folder), "utf-8")
    said = TRANSFORMATIONS.format(name_server=broker.name_server, source=source, target=target)
    (folder / "transformations" / "orders.py").write_text(said, "utf-8")
    run([str(Path(sys.executable).with_name("spark-pipelines")), "run"], folder)


def notebook(broker: Broker, source: str, target: str, folder: Path) -> None:
    """The example, with the topics of this test by the environment."""
    code = f"import nbclient, nbformat; nbclient.NotebookClient(nbformat.read({str(NOTEBOOK)!r}, 4), timeout=300).execute()"
    told = {"NAMESRV_ADDR": broker.name_server, "ORDERS_TOPIC": source, "INVOICES_TOPIC": target}
    run([sys.executable, "-c", code], folder, **told)


def run(command: Sequence[str], folder: Path, **environ: str) -> None:
    """CalledProcessError, with the output of the program, if it fails or takes too long."""
    log = folder / "log"
    with (
        log.open("wb") as lines,
        subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, "JAVA_HOME": str(find_java()), "PYSPARK_PYTHON": sys.executable, **environ},
            stdout=lines,
            stderr=lines,
            start_new_session=True,
        ) as process,
    ):
        try:
            failed = process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            failed = -signal.SIGKILL
        finally:
            with suppress(ProcessLookupError):  # a server that it started may still be there
                os.killpg(process.pid, signal.SIGKILL)
    if failed:
        raise subprocess.CalledProcessError(failed, command, log.read_text("utf-8", "replace"))


PLACES: Final = {
    "connect": Place(("grpc", "pandas"), connect, 2),
    "serverless": Place(("grpc", "pandas"), serverless, 2),
    "pipeline": Place(("grpc", "pandas", "yaml"), pipeline, 1),
    "notebook": Place(("nbclient", "ipykernel"), notebook, 1),
}

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no server is left behind
    sys.exit(main())
