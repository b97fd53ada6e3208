"""The example of the connector prints what it promises. It runs in the session of the tests, as starting another takes long."""

import runpy
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.test_examples import promised_output

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLE = Path(__file__).parents[2] / "examples" / "spark_read_write.py"


def test_the_example_prints_what_it_promises(spark: "SparkSession", capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLE))

    assert capsys.readouterr().out.strip() == promised_output(EXAMPLE.read_text("utf-8"))
