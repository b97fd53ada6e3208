"""A Spark session that suits topics: on this machine unless told otherwise, quiet, in UTC, with the settings that were measured to help.

Where Spark is to run: checked before it starts, because Spark itself takes more than a minute to give up on a wrong address.

--master local[…]            on this machine
         spark://host:port   one of its addresses must accept a connection
         yarn, k8s://…       found by their own configuration
--remote sc://host[:port]    must accept a connection
"""

import os
import re
import socket
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

from pocketmq.errors import InvalidSetting, MissingLibrary, NetworkError, PocketMQError
from pocketmq.files import captured_errors
from pocketmq.pipelines.core.libraries import SparkSession, told
from pocketmq.spark.java import find_java

CONNECT_S: Final = 3.0
CONNECT_PORT: Final = 15002
"""Of a Spark Connect server, if its address names none."""
_LOCAL: Final = re.compile(r"local(\[(\*|[1-9]\d*)(,[1-9]\d*)?\])?|local-cluster\[\d+,\d+,\d+\]")
_ELSEWHERE: Final = re.compile(r"yarn|k8s://.+")
_HOST: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s:/,;]+)(?::(?P<port>[0-9]{1,5}))?")

Connect = Callable[[str, int], None]


def connect(host: str, port: int) -> None:
    """OSError when nothing accepts a connection there."""
    with closing(socket.create_connection((host, port), CONNECT_S)):
        pass


def check_master(master: str | None, remote: str | None = None, connect: Connect = connect) -> None:
    """InvalidSetting for an address that cannot be, NetworkError for one that nothing answers at."""
    if remote is not None and master is not None:
        raise InvalidSetting("--master and --remote exclude one another: a Connect server has its master already")
    if remote is not None:
        where, _, _ = remote.removeprefix("sc://").partition("/")
        if not remote.startswith("sc://") or not (place := _place(where, CONNECT_PORT)):
            raise InvalidSetting(f"--remote {remote} is no address of a Spark Connect server: write sc://host:15002")
        _reach(f"--remote {remote}", [place], connect)
    elif master is not None and master.startswith("spark://"):
        places = [_place(text) for text in master.removeprefix("spark://").split(",")]
        if not all(places):
            raise InvalidSetting(f"--master {master} is no address of a Spark master: write spark://host:7077")
        _reach(f"--master {master}", [place for place in places if place], connect)
    elif master is not None and not (_LOCAL.fullmatch(master) or _ELSEWHERE.fullmatch(master)):
        raise InvalidSetting(
            f"--master {master} is no master of Spark: write local[*], local[4], spark://host:7077, yarn or k8s://https://host:443"
        )


def _place(text: str, usual_port: int | None = None) -> tuple[str, int] | None:
    match = _HOST.fullmatch(text)
    if match is None:
        return None
    port = int(match["port"]) if match["port"] else usual_port
    return (match["host"].strip("[]"), port) if port is not None and 0 < port < 65536 else None


def _reach(what: str, places: list[tuple[str, int]], connect: Connect) -> None:
    """One of several masters is enough: the others may stand by."""
    failures = []
    for host, port in places:
        try:
            connect(host, port)
        except OSError as error:
            failures.append(f"{host}:{port}: {error.strerror or error}")
        else:
            return
    raise NetworkError(
        f"{what}: Spark does not answer there ({'; '.join(failures)}). Is it started, and is the address right?"
    )


LOG_LEVEL: Final = "spark.log.level"
LAST_WORDS: Final = 40
"""Lines that are told of what Java said when Spark does not start."""
USUAL: Final[Mapping[str, str]] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.python.unix.domain.socket.enabled": "true",  # some 40 ms of each micro-batch
    "spark.ui.showConsoleProgress": "false",
    LOG_LEVEL: "OFF",  # what goes wrong is told by pipelines themselves, in a sentence
}
ON_THIS_MACHINE: Final[Mapping[str, str]] = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.defaultJavaOptions": f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}",
}


def spark_session(
    name: str,
    master: str | None = None,
    remote: str | None = None,
    settings: Mapping[str, str] | None = None,
    *,
    is_quiet: bool = False,
) -> SparkSession:
    """A session, or the one that this process has already. `settings` win over the usual ones.

    A quiet one says nothing on the error stream, neither Java nor workers, unless it does not start or `spark.log.level` is given.
    """
    if (active := SparkSession.getActiveSession()) is not None:
        return active
    check_master(master, remote)
    if remote is not None:
        return _made(SparkSession.builder.remote(remote).appName(name), remote, settings or {})
    os.environ["JAVA_HOME"] = str(find_java())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    where = master or "local[*]"
    if where.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # else it warns about the name of the machine
    chosen = {**USUAL, **(_of_this_machine() if where.startswith("local") else {}), **(settings or {})}
    if not is_quiet or chosen[LOG_LEVEL] != USUAL[LOG_LEVEL]:
        return _made(SparkSession.builder.master(where).appName(name), where, chosen)
    said: deque[str] = deque(maxlen=LAST_WORDS)
    try:
        with captured_errors(said.append):
            return _made(SparkSession.builder.master(where).appName(name), where, chosen)
    except PocketMQError as error:
        raise PocketMQError("\n".join([str(error), *said])) from error


@contextmanager
def session(
    name: str,
    master: str | None = None,
    remote: str | None = None,
    settings: Mapping[str, str] | None = None,
    *,
    is_quiet: bool = False,
) -> Iterator[SparkSession]:
    """The same for a while: one that was made for this is stopped at the end, one that was there is left alone."""
    is_ours = SparkSession.getActiveSession() is None
    spark = spark_session(name, master, remote, settings, is_quiet=is_quiet)
    try:
        yield spark
    finally:
        if is_ours:
            spark.stop()


def _of_this_machine() -> dict[str, str]:
    # Two hundred partitions, Spark's own number, are as many tasks for every shuffle of a micro-batch.
    return {**ON_THIS_MACHINE, "spark.sql.shuffle.partitions": str(os.cpu_count() or 1)}


def _made(builder: Any, where: str, settings: Mapping[str, str]) -> SparkSession:
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()  # type: ignore[no-any-return]
    except ImportError as error:
        raise MissingLibrary(f"{error}: pip install 'pyspark[connect]'") from None
    except PocketMQError:
        raise
    except Exception as error:  # of the JVM's launcher, of the network, of Java: each has its own kind
        raise PocketMQError(f"Spark does not start on {where}: {told(error)}") from error
