"""Executors without PocketMQ or numpy: one error, with the command that fixes it."""

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

import pyspark
from pyspark import cloudpickle
from tests.spark.broker_kit import Broker, fill, new_topic, options
from tests.spark_fixtures import use_java

from pocketmq.spark import RocketMQSource
from pyspark_rocketmq import DefaultSource

LIBRARIES = Path(pyspark.__path__[0]).parent
WITHOUT_POCKETMQ = ("pyspark", "pyarrow", "pyarrow.libs", "numpy", "numpy.libs")
WITHOUT_NUMPY = ("pyspark", "pyarrow", "pyarrow.libs", "msgspec", "click", "rich")

JOB = """
import sys
import pocketmq.spark
from pyspark.sql import SparkSession

name_server, source, target = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false").config("spark.log.level", "OFF")
    .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    .getOrCreate()
)
address = {"rocketmq.namesrv.addr": name_server}


def attempt(what, run):
    try:
        run()
    except Exception as error:
        print("====", what, error, flush=True)


reading = lambda kind: kind.format("rocketmq").options(**address, subscribe=source)
rows = spark.range(3).selectExpr("CAST(id AS string) AS value")
attempt("read", lambda: reading(spark.read).load().collect())
attempt("write", lambda: rows.write.format("rocketmq").options(**address, topic=target).mode("append").save())
"""


def bare_python(folder: Path, libraries: tuple[str, ...], *, with_pocketmq: bool) -> Path:
    """A `python` that has only these libraries where Spark runs tasks, and elsewhere is this one."""
    site = folder / "site"
    site.mkdir()
    for name in libraries:
        if (LIBRARIES / name).exists():
            (site / name).symlink_to(LIBRARIES / name)
    py4j = next((LIBRARIES / "pyspark" / "python" / "lib").glob("py4j-*.zip"))
    path = [str(site), str(py4j), *([str(Path(__file__).parents[2] / "src")] if with_pocketmq else [])]
    program = folder / "python"
    bare = f'PYTHONPATH="{os.pathsep.join(path)}" exec {sys.executable} -S -s "$@"'
    program.write_text(
        f'#!/bin/sh\ncase " $* " in *" pyspark.worker "*|*" -c "*) {bare};; esac\nexec {sys.executable} "$@"\n', "utf-8"
    )
    program.chmod(0o755)
    return program


def run(program: Path, *arguments: str) -> str:
    environ = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    environ["PYSPARK_PYTHON"] = environ["PYSPARK_DRIVER_PYTHON"] = str(program)
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=180, env=environ, check=False)
    return done.stdout + done.stderr


@pytest.mark.parametrize("kind", [DefaultSource, RocketMQSource])
def test_a_python_without_pocketmq_raises_one_error_with_the_command(tmp_path: Path, kind: Any) -> None:
    from pyspark.sql.types import BinaryType, StructField, StructType

    value = StructType([StructField("value", BinaryType())])
    reading = kind({"rocketmq.namesrv.addr": "any:9876", "subscribe": "orders"})
    writing = kind({"rocketmq.namesrv.addr": "any:9876", "topic": "orders"})
    sent = [
        reading,
        reading.reader(value),
        reading.streamReader(value),
        writing.writer(value, False),
        writing.streamWriter(value, False),
    ]
    python = bare_python(tmp_path, WITHOUT_POCKETMQ, with_pocketmq=False)
    for number, one in enumerate(sent):
        file = tmp_path / f"{number}.pickle"
        file.write_bytes(cloudpickle.dumps(one))  # type: ignore[no-untyped-call]

        said = run(python, "-c", f"import pickle; pickle.load(open({str(file)!r}, 'rb'))")

        last = said.strip().splitlines()[-1]
        assert last.startswith("ModuleNotFoundError: an executor lacks PocketMQ. Run this on ")
        assert last.endswith(f"{sys.executable} -m pip install 'pocketmq[spark]'")
        again = pickle.loads(pickle.dumps(one))
        assert (type(again), sorted(again.__dict__)) == (type(one), sorted(one.__dict__))


def test_a_worker_without_numpy_names_the_library_and_the_command(tmp_path: Path) -> None:
    python = bare_python(tmp_path, WITHOUT_NUMPY, with_pocketmq=True)
    code = """
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import BinaryType, StructField, StructType
from pocketmq.spark import RocketMQSource

source = RocketMQSource({"rocketmq.namesrv.addr": "any:9876", "subscribe": "orders"})
source.reader(StructType([StructField("value", BinaryType())])).read(InputPartition("any"))
"""

    last = run(python, "-c", code).strip().splitlines()[-1]

    assert f"MissingLibrary: the Spark connector needs the library numpy; run {sys.executable} -m pip install " in last
    assert f"The Python that lacks it: {sys.executable} on " in last


def test_executors_without_pocketmq_fail_a_job_with_one_sentence(broker: Broker, tmp_path: Path) -> None:
    use_java()
    source, target = new_topic(broker), new_topic(broker)
    fill(broker, source, ["a"])
    python = bare_python(tmp_path, WITHOUT_POCKETMQ, with_pocketmq=False)
    job = tmp_path / "job.py"
    job.write_text(JOB, "utf-8")

    said = run(python, str(job), options(broker)["rocketmq.namesrv.addr"], source, target)

    attempts = said.split("==== ")[1:]
    assert [one.split()[0] for one in attempts] == ["read", "write"], said
    for one in attempts:
        assert "ModuleNotFoundError: an executor lacks PocketMQ. Run this on " in one
        assert "-m pip install 'pocketmq[spark]'" in one
        assert 'File "' not in one
