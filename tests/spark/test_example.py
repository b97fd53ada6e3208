"""The examples of the connector have their documented output. They run in the session of the tests, because starting
another takes long.
"""

import json
import runpy
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

import pyspark
from tests.spark.broker_kit import Broker, fill, new_topic
from tests.spark.driver_kills import rows_in
from tests.spark_fixtures import use_java
from tests.test_examples import promised_output

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[2] / "examples"
BODIES = EXAMPLES / "spark_bodies.py"
NOTEBOOK = EXAMPLES / "spark_orders.ipynb"


@pytest.mark.parametrize("example", ["spark_read_write", "spark_bodies"])
def test_an_example_prints_its_documented_output(
    spark: "SparkSession", example: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = EXAMPLES / f"{example}.py"
    monkeypatch.setattr("sys.argv", [str(program)])

    runpy.run_path(str(program), run_name="__main__")

    assert capsys.readouterr().out.strip() == promised_output(program.read_text("utf-8"))


def library(name: str, folder: Path) -> Path:
    """A library of this version of Spark, by Maven; skips the test where Maven cannot fetch it."""
    maven = shutil.which("mvn")
    if maven is None:
        pytest.skip("Maven is not installed")
    artifact = f"{name}_2.13"
    coordinates = f"org.apache.spark:{artifact}:{pyspark.__version__}"
    command = [
        maven,
        "--batch-mode",
        "--quiet",
        "dependency:copy",
        f"-Dartifact={coordinates}",
        f"-DoutputDirectory={folder}",
    ]
    if subprocess.run(command, capture_output=True, timeout=150, check=False).returncode:
        pytest.skip(f"Maven cannot fetch {coordinates}")
    return folder / f"{artifact}-{pyspark.__version__}.jar"


@pytest.mark.parametrize("form", ["avro", "protobuf"])
def test_bodies_in_avro_and_protobuf_become_typed_columns(form: str, tmp_path: Path) -> None:
    """In a session of its own, as a library must be there when Java starts."""
    if form == "protobuf":
        pytest.importorskip("google.protobuf")
    use_java()
    jar = library(f"spark-{form}", tmp_path)

    done = subprocess.run(
        [sys.executable, str(BODIES), form, str(jar)], capture_output=True, text=True, timeout=180, check=False
    )

    assert f"orders in {form}: [(1, 'Oslo', 12.5), (2, 'Bergen', 3.0)]" in done.stdout, done.stderr


def test_the_cells_of_the_notebook_have_their_documented_output(
    spark: "SparkSession", broker: Broker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = new_topic(broker), new_topic(broker)
    fill(broker, source, ["order 1", "order 2"])
    for name, text in (("NAMESRV_ADDR", broker.name_server), ("ORDERS_TOPIC", source), ("INVOICES_TOPIC", target)):
        monkeypatch.setenv(name, text)
    names: dict[str, object] = {}

    for cell in json.loads(NOTEBOOK.read_text("utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            exec(compile(cell["source"], NOTEBOOK.name, "exec"), names)

    assert "order 1" in capsys.readouterr().out
    assert rows_in(broker, target) == Counter(["order 1", "order 2"])
