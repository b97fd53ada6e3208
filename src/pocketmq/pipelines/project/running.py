"""Runs a project by Spark's own program, `spark-pipelines`. Of what it says, the lines about the pipeline are passed on.

pocketmq pipeline run ──► spark-pipelines run ──► events: `2026-03-01 12:00:00: Flow orders is RUNNING.`
                              └─ everything else it and Java print is shown only when it fails

A new project: the files of `template/`, with the name and the folder filled in.

Messages to try a project with: `sample/orders.jsonl` has a message of the topic `orders` on each line.
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
from pocketmq.model.message import Message
from pocketmq.pipelines.core.libraries import pyspark_folder
from pocketmq.pipelines.core.plan import ensure_topics
from pocketmq.pipelines.project.spark_program import SparkProgram
from pocketmq.spark.java import find_java

SPEC: Final = "spark-pipeline.yml"
DATA: Final = ".data"
TABLES: Final = Path("spark-warehouse")
"""Where Spark keeps tables, below the folder that it runs in."""
KEPT_LINES: Final = 400
"""Of what a failed run said besides."""
SHOWN_ROWS: Final = 5
_EVENT: Final = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d\S*: (.+)")
_NEEDED: Final = ("grpc", "grpc_status", "google.rpc", "pandas", "yaml")


class Done(NamedTuple):
    """How a run ended: its exit status, and the last lines that were said besides its events."""

    code: int
    besides: list[str]


class TableRows(NamedTuple):
    """How many rows a table has, and the first of them."""

    total: int
    rows: list[dict[str, Any]]


def check_project(folder: Path, files: Files) -> None:
    """InvalidSetting when a folder holds no project; MissingLibrary when Spark cannot run one."""
    if files.status(folder / SPEC) is None:
        raise InvalidSetting(
            f"there is no {SPEC} in {folder}: `pocketmq pipeline new NAME` makes a project; or give --project"
        )
    if install := what_to_install():
        raise MissingLibrary(f"Declarative Pipelines need more libraries than are here: {install}")


def what_to_install() -> str | None:
    """The command that brings what Declarative Pipelines need; None where all of it is there."""
    is_whole = all(map(_is_there, _NEEDED))
    return None if is_whole else f"{sys.executable} -m pip install 'pyspark[pipelines]' 'pandas<3'"


def run_project(
    folder: Path, arguments: Sequence[str], *, name_server: str, tell: Callable[[str], None], everything: bool = False
) -> Done:
    """Run it to its end, and tell what happens: its events, or all that is said. KeyboardInterrupt when a signal ended it."""
    script = pyspark_folder() / "bin" / "spark-pipelines"
    command = ["bash", str(script), "run", *_catalogue(folder), "--spec", str(folder / SPEC), *arguments]
    besides: deque[str] = deque(maxlen=KEPT_LINES)
    with SparkProgram(command, folder, _environment(name_server)) as program:
        for line in program.lines():
            event = _EVENT.match(line)
            if event and not everything:
                tell(event[1].rstrip())
            elif everything:
                tell(line)
            else:
                besides.append(line)
    return Done(program.code, list(besides))


def table_rows(folder: Path, files: Files) -> dict[str, TableRows]:
    """The tables of a project, by name. However large they are, only some rows are read."""
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
    """What can be shown: times and the like as text."""
    return {name: value if isinstance(value, str | int | float | None) else str(value) for name, value in row.items()}


def _catalogue(folder: Path) -> list[str]:
    """A catalogue that outlives the run: without one, the next run finds tables on the disk that nobody knows, and fails."""
    home = f'-Dderby.system.home="{folder / DATA}/catalog"'
    return ["--conf", "spark.sql.catalogImplementation=hive", "--conf", f"spark.driver.defaultJavaOptions={home}"]


def _environment(name_server: str) -> dict[str, str]:
    ours: Mapping[str, str] = {
        "NAMESRV_ADDR": name_server,
        "JAVA_HOME": str(find_java()),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_HOME": str(pyspark_folder()),
    }
    return {**os.environ, **ours}


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:  # of a part whose whole is not there
        return False


TEMPLATE: Final = Path(__file__).with_name("template")
TEMPLATE_SUFFIX: Final = ".template"
"""So that nobody takes the files of the template for code of ours."""
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")


def make_project(name: str, parent: Path, files: Files) -> list[Path]:
    """Make the folder `name` with a project in it; its files. InvalidSetting when there is something of that name."""
    if not _NAME.fullmatch(name):
        raise InvalidSetting(f"{name!r} is no name for a project: letters, digits, - and _, and a letter first")
    folder = parent / name
    if files.status(folder) is not None:
        raise InvalidSetting(f"{folder} is there already: choose another name, or remove it")
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
    """Bodies by topic; a topic without any is only made."""
    found = {}
    for name in files.list(project / FOLDER):
        path = project / FOLDER / name
        if not name.endswith(SUFFIX):
            continue
        status = files.status(path)
        if status is not None and status.size > MAX_BYTES:
            raise InvalidSetting(f"{path} has {status.size:,} bytes; a sample has at most {MAX_BYTES:,}")
        found[name.removesuffix(SUFFIX)] = [line for line in files.read(path).splitlines() if line.strip()]
    return found


def send_sample(name_server: str, sample: Mapping[str, list[bytes]]) -> dict[str, int]:
    """Make the topics that are not there, and send their messages: how many, by topic. Topics that are there stay as they are."""
    made = ensure_topics({"rocketmq.namesrv.addr": name_server}, sample, queues=QUEUES)
    with Producer(name_server, group="pocketmq-sample") as producer:
        for topic in made:
            for body in sample[topic]:
                producer.send(Message(topic, body))
    return {topic: len(sample[topic]) for topic in made}
