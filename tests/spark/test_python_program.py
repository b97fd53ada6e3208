"""Spark runs the Python that the program runs, also in an environment that is not activated."""

import logging
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from tests.spark.broker_kit import Broker, new_topic
from tests.spark_fixtures import use_java

from pocketmq.spark import python_processes as python_program
from pocketmq.spark.python_processes import use_this_python

JOB = """
import sys
import pyspark_rocketmq
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
options = {"rocketmq.namesrv.addr": sys.argv[1], "subscribe": sys.argv[2]}
print(spark.read.format("rocketmq").options(**options).load().columns)
"""


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A PATH with a `python3` that has nothing installed; Spark has not started."""
    other = tmp_path / "python3"
    other.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n', "utf-8")
    other.chmod(0o755)
    monkeypatch.setattr(python_program, "_is_java_started", lambda: False)
    return str(tmp_path)


def test_another_python_on_the_path_is_not_used(elsewhere: str) -> None:
    environ = {"PATH": elsewhere}

    use_this_python(environ, "/venv/bin/python")

    assert environ["PYSPARK_PYTHON"] == environ["PYSPARK_DRIVER_PYTHON"] == "/venv/bin/python"


def test_the_choice_of_the_user_stays(elsewhere: str) -> None:
    environ = {"PATH": elsewhere, "PYSPARK_PYTHON": "/opt/python"}

    use_this_python(environ, "/venv/bin/python")

    assert environ == {"PATH": elsewhere, "PYSPARK_PYTHON": "/opt/python"}


def test_a_choice_of_another_python_of_this_machine_is_reported(
    elsewhere: str, caplog: pytest.LogCaptureFixture
) -> None:
    for chosen in (f"{elsewhere}/python3", "python3"):
        use_this_python({"PATH": elsewhere, "PYSPARK_PYTHON": chosen}, "/venv/bin/python")

    text = f"PYSPARK_PYTHON is {elsewhere}/python3, and this program runs in /venv/bin/python"
    assert caplog.text.count(text) == 2
    assert caplog.text.count("DATA_SOURCE_NOT_FOUND; then set PYSPARK_PYTHON=/venv/bin/python") == 2


def test_a_choice_of_this_python_or_of_one_on_other_machines_is_not_reported(
    elsewhere: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    use_this_python({"PATH": elsewhere, "PYSPARK_PYTHON": f"{elsewhere}/python3"}, f"{elsewhere}/python")
    monkeypatch.chdir(elsewhere)
    use_this_python({"PATH": elsewhere, "PYSPARK_PYTHON": "./python3"}, f"{elsewhere}/python")
    use_this_python({"PATH": elsewhere, "PYSPARK_PYTHON": "/opt/python"}, "/venv/bin/python")
    use_this_python({"PATH": elsewhere, "PYSPARK_DRIVER_PYTHON": "jupyter"}, "/venv/bin/python")

    assert caplog.text == ""


def test_nothing_is_set_if_spark_finds_this_python(elsewhere: str) -> None:
    """Executors of a cluster then run their own `python3`, as ever."""
    environ = {"PATH": elsewhere}

    use_this_python(environ, f"{elsewhere}/python3.11")

    assert environ == {"PATH": elsewhere}


def test_an_import_after_the_session_was_created_is_reported(
    elsewhere: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "pyspark", SimpleNamespace(SparkContext=SimpleNamespace(_gateway=object())))
    environ = {"PATH": elsewhere}

    with caplog.at_level(logging.WARNING):
        use_this_python(environ, "/venv/bin/python")

    assert environ == {"PATH": elsewhere}
    assert "before you create the session, or set PYSPARK_PYTHON=/venv/bin/python" in caplog.text


def test_a_job_runs_in_an_environment_that_is_not_activated(broker: Broker, elsewhere: str, tmp_path: Path) -> None:
    use_java()
    topic = new_topic(broker)
    job = tmp_path / "job.py"
    job.write_text(JOB, "utf-8")
    environ = {name: text for name, text in os.environ.items() if not name.startswith("PYSPARK_")}

    done = subprocess.run(
        [sys.executable, job, broker.name_server, topic],
        env={**environ, "PATH": f"{elsewhere}:/usr/bin:/bin", "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )

    assert "reconsumeTimes" in done.stdout, done.stderr[-3000:]
