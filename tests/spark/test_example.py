"""The examples of the connector do what they promise. They run in the session of the tests, as starting another takes long."""

import json
import runpy
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from tests.spark.broker_kit import Broker, fill, new_topic
from tests.spark.driver_kills import rows_in
from tests.test_examples import promised_output

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[2] / "examples"
EXAMPLE = EXAMPLES / "spark_read_write.py"
NOTEBOOK = EXAMPLES / "spark_orders.ipynb"


def test_the_example_prints_what_it_promises(spark: "SparkSession", capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLE))

    assert capsys.readouterr().out.strip() == promised_output(EXAMPLE.read_text("utf-8"))


def test_the_cells_of_the_notebook_do_what_they_say(
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
