"""A complete small demo in the session of the tests; and the same once more, as after a crash."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pocketmq.demo.day import DemoSettings, Report, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS = 1_500


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def report(spark: "SparkSession", folder: Path) -> Report:
    shown: list[Report] = []

    report = run(DemoSettings(folder, ORDERS, seed=1, open_s=1.0), shown.append)

    assert shown == [report]
    return report


def test_every_message_of_a_day_is_accounted_for(report: Report) -> None:
    assert [check for check in report.checks if not check.holds] == []
    assert report.checks[0].found == ORDERS
    assert sum(report.reasons.values()) == report.checks[2].expected > 0


def test_lake_plot_and_report_exist(report: Report, spark: "SparkSession") -> None:
    orders = spark.read.parquet(str(report.lake / "orders"))
    hours = spark.read.parquet(str(report.lake / "revenue"))

    assert orders.count() == report.checks[1].expected
    assert hours.count() == len(report.windows) > 24
    assert report.plot.read_bytes().startswith(b"<svg ")
    assert json.loads((report.folder / "report.json").read_bytes())["holds"] is True


def test_a_resumed_demo_sends_and_writes_nothing_twice(report: Report) -> None:
    again = run(DemoSettings(report.folder, orders=999, seed=999, resume=True, open_s=1.0), lambda report: None)

    assert [check for check in again.checks if not check.holds] == []
    assert sorted(again.windows) == sorted(report.windows)
    assert again.checks[0].found == ORDERS
