"""Creates and runs a project for Declarative Pipelines, with Spark's own program `spark-pipelines`.

    pocketmq pipeline run ──► spark-pipelines run ──► events: `2026-03-01 12:00:00: Flow orders is RUNNING.`
                                  └─ all other output is shown only after a failure

A new project has the files of `template/`, with its name and folder filled in. To try it, `sample/orders.jsonl` has a message for the topic
`orders` on each line.
"""

import os
import re
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow.parquet

from pocketmq.client import Producer
from pocketmq.errors import InvalidSetting, MissingLibrary
from pocketmq.files import Files, files_below, write_atomically
from pocketmq.model import Message
from pocketmq.pipelines.core.libraries import pyspark_folder
from pocketmq.pipelines.core.plan import ensure_topics
from pocketmq.pipelines.project.spark_program import SparkProgram
from pocketmq.spark.java import find_java

SPEC: Final = "spark-pipeline.yml"
DATA: Final = ".data"
TABLES: Final = Path("spark-warehouse")
"""Spark's folder for tables, below its working folder."""
KEPT_LINES: Final = 400
"""Lines of other output that are kept for a failed run."""
SHOWN_ROWS: Final = 5
_EVENT: Final = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d\S*: (.+)")
_NEEDED: Final = ("grpc", "grpc_status", "google.rpc", "pandas", "yaml")


class Done(NamedTuple):
    """The end of a run: its exit status, and the last lines besides its events."""

    code: int
    besides: list[str]


class TableRows(NamedTuple):
    """The number of rows in a table, and the first of them."""

    total: int
    rows: list[dict[str, Any]]


def check_project(folder: Path, files: Files) -> None:
    """InvalidSetting if a folder is not a project; MissingLibrary if Spark cannot run one."""
    if files.status(folder / SPEC) is None:
        raise InvalidSetting(
            f"{folder} has no {SPEC}; `pocketmq pipeline new NAME` creates a project, and --project names its folder"
        )
    if install := install_command():
        raise MissingLibrary(f"Declarative Pipelines need more libraries; run {install}")


def install_command() -> str | None:
    """The command that installs what Declarative Pipelines need; None if it is installed."""
    is_complete = all(map(_is_installed, _NEEDED))
    return None if is_complete else f"{sys.executable} -m pip install 'pyspark[pipelines]' 'pandas<3'"


def run_project(
    folder: Path, arguments: Sequence[str], *, name_server: str, show: Callable[[str], None], everything: bool = False
) -> Done:
    """Run a project to its end, and show its events, or all output. KeyboardInterrupt if a signal ended it."""
    script = pyspark_folder() / "bin" / "spark-pipelines"
    command = ["bash", str(script), "run", *_catalogue(folder), "--spec", str(folder / SPEC), *arguments]
    besides: deque[str] = deque(maxlen=KEPT_LINES)
    with SparkProgram(command, folder, _environment(name_server)) as program:
        for line in program.lines():
            event = _EVENT.match(line)
            if event and not everything:
                show(event[1].rstrip())
            elif everything:
                show(line)
            else:
                besides.append(line)
    return Done(program.code, list(besides))


def table_rows(folder: Path, files: Files) -> dict[str, TableRows]:
    """The tables of a project, by name, with a few rows of each."""
    found = {}
    for name in files.list(folder / TABLES):
        paths = [path for path in files_below(files, folder / TABLES / name) if path.suffix == ".parquet"]
        total, rows = 0, list[dict[str, Any]]()
        for path in paths:
            with pyarrow.parquet.ParquetFile(path) as file:
                total += file.metadata.num_rows
                if len(rows) < SHOWN_ROWS:
                    rows += _first_rows(file)
        if paths:
            found[name] = TableRows(total, rows[:SHOWN_ROWS])
    return found


def _first_rows(file: pyarrow.parquet.ParquetFile) -> list[dict[str, Any]]:
    first = next(file.iter_batches(batch_size=SHOWN_ROWS, use_threads=False), None)
    return [] if first is None else [_plain(row) for row in first.to_pylist()]


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """Values that can be shown: times and other types as text."""
    return {name: value if isinstance(value, str | int | float | None) else str(value) for name, value in row.items()}


def _catalogue(folder: Path) -> list[str]:
    """A persistent catalogue. Without one, the next run would find tables on disk that it does not know, and fail."""
    catalogue = f'-Dderby.system.home="{folder / DATA}/catalog"'
    return ["--conf", "spark.sql.catalogImplementation=hive", "--conf", f"spark.driver.defaultJavaOptions={catalogue}"]


def _environment(name_server: str) -> dict[str, str]:
    ours: Mapping[str, str] = {
        "NAMESRV_ADDR": name_server,
        "JAVA_HOME": str(find_java()),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_HOME": str(pyspark_folder()),
    }
    return {**os.environ, **ours}


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:  # the parent package is missing
        return False


TEMPLATE: Final = Path(__file__).with_name("template")
TEMPLATE_SUFFIX: Final = ".template"
"""The suffix keeps linters and Python from treating the files of the template as code."""
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")


def make_project(name: str, parent: Path, files: Files) -> list[Path]:
    """Create the folder `name` with a project; returns its files. InvalidSetting if the folder exists."""
    if not _NAME.fullmatch(name):
        raise InvalidSetting(f"invalid project name {name!r}; use letters, digits, - and _, starting with a letter")
    folder = parent / name
    if files.status(folder) is not None:
        raise InvalidSetting(f"{folder} exists; choose another name, or remove it")
    made = []
    for source in files_below(files, TEMPLATE):
        if source.suffix != TEMPLATE_SUFFIX:
            continue
        target = folder / source.relative_to(TEMPLATE).with_suffix("")
        text = files.read(source).decode().replace("{name}", name).replace("{folder}", str(folder))
        files.make_dir(target.parent)
        write_atomically(files, target, text.encode())
        made.append(target)
    return made


FOLDER: Final = "sample"
SUFFIX: Final = ".jsonl"
QUEUES: Final = 4
MAX_BYTES: Final = 64 * 1024 * 1024


def read_sample(project: Path, files: Files) -> dict[str, list[bytes]]:
    """Message bodies by topic; a topic without messages is only created."""
    found = {}
    for name in files.list(project / FOLDER):
        path = project / FOLDER / name
        if not name.endswith(SUFFIX):
            continue
        status = files.status(path)
        if status is not None and status.size > MAX_BYTES:
            raise InvalidSetting(f"{path} has {status.size:,} bytes; a sample may have {MAX_BYTES:,}")
        found[name.removesuffix(SUFFIX)] = [line for line in files.read(path).splitlines() if line.strip()]
    return found


def send_sample(name_server: str, sample: Mapping[str, list[bytes]]) -> dict[str, int]:
    """Create missing topics and send their messages; returns their numbers by topic. Existing topics stay unchanged."""
    made = ensure_topics({"rocketmq.namesrv.addr": name_server}, sample, queues=QUEUES)
    with Producer(name_server, group="pocketmq-sample") as producer:
        for topic in made:
            for body in sample[topic]:
                producer.send(Message(topic, body))
    return {topic: len(sample[topic]) for topic in made}
