"""Runs a project by Spark's own program, `spark-pipelines`. Of what it says, the lines about the pipeline are passed on.

pocketmq pipeline run ──► spark-pipelines run ──► events: `2026-03-01 12:00:00: Flow orders is RUNNING.`
                              └─ everything else it and Java print is shown only when it fails
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

from pocketmq.errors import InvalidSetting, MissingLibrary
from pocketmq.files import Files, walk
from pocketmq.pipelines.libraries import pyspark_folder
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
        paths = [path for path in walk(files, folder / TABLES / name) if path.suffix == ".parquet"]
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
