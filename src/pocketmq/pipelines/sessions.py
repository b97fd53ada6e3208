"""A Spark session that suits topics: on this machine unless told otherwise, quiet, in UTC, with the settings that were measured to help."""

import os
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pocketmq.errors import MissingLibrary, PocketMQError
from pocketmq.files import heard_errors
from pocketmq.pipelines.failures import told
from pocketmq.pipelines.libraries import SparkSession
from pocketmq.pipelines.masters import check_master
from pocketmq.spark.java import find_java

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
        with heard_errors(said.append):
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
