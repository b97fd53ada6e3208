"""A Spark session for topics: on this machine by default, quiet, in UTC, with measured settings.

The address of a Spark master is checked first, because Spark takes more than a minute to report a wrong one:

    --master local[…]            on this machine
             spark://host:port   one of its addresses must accept a connection
             yarn, k8s://…       found by their own configuration
    --remote sc://host[:port]    must accept a connection

Delta and Iceberg are libraries of their own: `with_library` adds the one for this version of Spark, which Spark gets from Maven Central.
"""

import os
import re
import socket
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from pocketmq.errors import InvalidSetting, MissingLibrary, NetworkError, PocketMQError
from pocketmq.files import captured_errors
from pocketmq.pipelines.core.libraries import SparkSession, error_text
from pocketmq.spark.java import find_java

CONNECT_S: Final = 3.0
CONNECT_PORT: Final = 15002
"""The default port of a Spark Connect server."""
_LOCAL: Final = re.compile(r"local(\[(\*|[1-9]\d*)(,[1-9]\d*)?\])?|local-cluster\[\d+,\d+,\d+\]")
_ELSEWHERE: Final = re.compile(r"yarn|k8s://.+")
_HOST: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s:/,;]+)(?::(?P<port>[0-9]{1,5}))?")

Connect = Callable[[str, int], None]


def connect(host: str, port: int) -> None:
    """OSError if nothing accepts a connection."""
    with closing(socket.create_connection((host, port), CONNECT_S)):
        pass


def check_master(master: str | None, remote: str | None = None, connect: Connect = connect) -> None:
    """InvalidSetting for an invalid address, NetworkError for one that does not accept a connection."""
    if remote is not None and master is not None:
        raise InvalidSetting("--master and --remote exclude one another: a Connect server has its own master")
    if remote is not None:
        where, _, _ = remote.removeprefix("sc://").partition("/")
        if not remote.startswith("sc://") or not (address := _address(where, CONNECT_PORT)):
            raise InvalidSetting(
                f"--remote {remote} is not the address of a Spark Connect server such as sc://host:15002"
            )
        _check_reachable(f"--remote {remote}", [address], connect)
    elif master is not None and master.startswith("spark://"):
        addresses = [_address(text) for text in master.removeprefix("spark://").split(",")]
        if not all(addresses):
            raise InvalidSetting(f"--master {master} is not the address of a Spark master such as spark://host:7077")
        _check_reachable(f"--master {master}", [address for address in addresses if address], connect)
    elif master is not None and not (_LOCAL.fullmatch(master) or _ELSEWHERE.fullmatch(master)):
        raise InvalidSetting(
            f"--master {master} is not a Spark master: use local[*], local[4], spark://host:7077, yarn or k8s://https://host:443"
        )


def _address(text: str, default_port: int | None = None) -> tuple[str, int] | None:
    match = _HOST.fullmatch(text)
    if match is None:
        return None
    port = int(match["port"]) if match["port"] else default_port
    return (match["host"].strip("[]"), port) if port is not None and 0 < port < 65536 else None


def _check_reachable(what: str, addresses: list[tuple[str, int]], connect: Connect) -> None:
    """NetworkError unless one of several masters responds; the others may be on standby."""
    failures = []
    for host, port in addresses:
        try:
            connect(host, port)
        except OSError as error:
            failures.append(f"{host}:{port}: {error.strerror or error}")
        else:
            return
    raise NetworkError(
        f"{what}: Spark does not respond ({'; '.join(failures)}). Check the address, and that Spark is running"
    )


LOG_LEVEL: Final = "spark.log.level"
PACKAGES: Final = "spark.jars.packages"
_NOT_DOWNLOADED: Final = ("unresolved dependency", "download failed", "UNRESOLVED DEPENDENCIES", "FAILED DOWNLOADS")
LAST_WORDS: Final = 40
"""Number of Java's last lines that an error shows if Spark does not start."""
DEFAULTS: Final[Mapping[str, str]] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.python.unix.domain.socket.enabled": "true",  # saves some 40 ms in each micro-batch
    "spark.ui.showConsoleProgress": "false",
    LOG_LEVEL: "OFF",  # pipelines report failures themselves, in one short text
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
    """A new session, or the one of this process. `settings` override the defaults.

    A quiet session keeps Java and workers from writing to stderr, unless it does not start or `spark.log.level` is set.
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
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # without it, Spark warns about the host name
    chosen = {**DEFAULTS, **(_of_this_machine() if where.startswith("local") else {}), **(settings or {})}
    if not is_quiet or chosen[LOG_LEVEL] != DEFAULTS[LOG_LEVEL]:
        return _made(SparkSession.builder.master(where).appName(name), where, chosen)
    said: deque[str] = deque(maxlen=LAST_WORDS)
    try:
        with captured_errors(said.append):
            return _made(SparkSession.builder.master(where).appName(name), where, chosen)
    except PocketMQError as error:
        if any(word in line for word in _NOT_DOWNLOADED for line in said):
            raise MissingLibrary(
                f"Spark cannot get the packages {chosen.get(PACKAGES)}: connect this machine to Maven Central once, or name their "
                f"files by --spark spark.jars=…; if they are in ~/.m2 without their jars, remove them there. {_packages_of(said)}"
            ) from error
        raise PocketMQError("\n".join([str(error), *said])) from error


def _packages_of(lines: Iterable[str]) -> str:
    """What Ivy could not get, of its last lines."""
    found = [line.strip(": \t\n") for line in lines if "#" in line and line.lstrip().startswith("::")]
    return f"Missing: {', '.join(dict.fromkeys(found))}" if found else ""


@contextmanager
def session(
    name: str,
    master: str | None = None,
    remote: str | None = None,
    settings: Mapping[str, str] | None = None,
    *,
    is_quiet: bool = False,
) -> Iterator[SparkSession]:
    """The same as a context: stops a session that it created, and leaves an existing one alone."""
    is_ours = SparkSession.getActiveSession() is None
    spark = spark_session(name, master, remote, settings, is_quiet=is_quiet)
    try:
        yield spark
    finally:
        if is_ours:
            spark.stop()


def _of_this_machine() -> dict[str, str]:
    # Spark's default of two hundred partitions means as many tasks for every shuffle of a micro-batch.
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
    except Exception as error:  # from the launcher, the network or Java: each has its own type
        raise PocketMQError(f"Spark does not start on {where}: {error_text(error)}") from error


class Library(NamedTuple):
    """The library of a format: its packages by the version of Spark, and the settings of a session."""

    word: str
    """A part of the names of its files and packages."""
    packages: Mapping[str, str]
    extension: str
    settings: Mapping[str, str] = {}
    excluded: str = ""
    """What the packages need and Spark has already, perhaps in another version."""


_OF_SPARK: Final = (
    "com.fasterxml.jackson.core",
    "com.fasterxml.jackson.datatype",
    "com.github.luben",
    "com.google.code.findbugs",
    "commons-logging",
    "commons-pool",
    "io.airlift",
    "javax.annotation",
    "org.apache.hadoop",
    "org.apache.logging.log4j",
    "org.apache.parquet",
    "org.locationtech.jts",
    "org.roaringbitmap",
    "org.scala-lang",
    "org.slf4j",
    "org.xerial.snappy",
)
"""Libraries that Delta names, and that Spark has, or that only parts of Delta need which Spark does not use."""
LIBRARIES: Final = {
    "delta": Library(
        "delta-spark",
        {version: f"io.delta:delta-spark_{version}_2.13:4.4.0" for version in ("4.0", "4.1", "4.2")},
        "io.delta.sql.DeltaSparkSessionExtension",
        {"spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog"},
        ",".join(f"{group}:*" for group in _OF_SPARK),
    ),
    "iceberg": Library(
        "iceberg-spark",
        {
            "4.0": "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0",
            "4.1": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
        },
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    ),
}
"""The newest libraries of Maven Central for each version of Spark."""
EXTENSIONS: Final = "spark.sql.extensions"
_JARS: Final = (PACKAGES, "spark.jars", "spark.driver.extraClassPath")
_FEW_PARTITIONS: Final = "spark.databricks.delta.snapshotPartitions"


def with_library(
    name: str,
    given: Mapping[str, str],
    version: str,
    installed: Iterable[str] = (),
    environ: Mapping[str, str] = os.environ,
) -> dict[str, str]:
    """Settings of Spark with those that a format needs. `given` are the user's, `installed` the names of Spark's libraries."""
    library = LIBRARIES.get(name.lower())
    if library is None:
        return dict(given)
    settings = {**library.settings, **given, EXTENSIONS: _with(given.get(EXTENSIONS, ""), library.extension)}
    if name.lower() == "delta":
        settings.setdefault(_FEW_PARTITIONS, "4")  # for its log; the default of 50 is for thousands of commits
    if _has(library, given, installed, environ):
        return settings
    minor = ".".join(version.split(".")[:2])
    if minor not in library.packages and any(key in given for key in _JARS):
        return settings  # the user knows a library
    if minor not in library.packages:
        known = ", ".join(library.packages)
        raise InvalidSetting(
            f"--format {name}: there is no library of {name.capitalize()} for Spark {version}, only for {known}; install one of these "
            f"by pip install 'pyspark=={max(library.packages)}.*', or name a library by --spark {PACKAGES}=…"
        )
    if library.excluded and PACKAGES not in given:  # else the user's packages may need them
        settings.setdefault("spark.jars.excludes", library.excluded)
    return {**settings, PACKAGES: _with(given.get(PACKAGES, ""), library.packages[minor])}


def _has(library: Library, given: Mapping[str, str], installed: Iterable[str], environ: Mapping[str, str]) -> bool:
    named = " ".join(given.get(key, "") for key in _JARS)
    is_elsewhere = any(environ.get(key) for key in ("SPARK_HOME", "SPARK_CONF_DIR"))
    return (
        library.word in named
        or "extraClassPath" in " ".join(given)
        or is_elsewhere
        or any(library.word in one for one in installed)
    )


def _with(listed: str, more: str) -> str:
    known = [one for one in listed.split(",") if one]
    return ",".join(known if more in known else [*known, more])
