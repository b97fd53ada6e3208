"""What the ready pipelines report to OpenLineage."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark.sql")

from pocketmq.pipelines import JOBS, lineage_reported
from pocketmq.pipelines.core.running import data_of
from pocketmq.spark.lineage import Data

TOPICS = ["orders", "refunds"]


@pytest.mark.parametrize(
    ("pipeline", "given", "inputs", "outputs"),
    [
        ("archive", {"topics": TOPICS, "lake": "/data/lake"}, TOPICS, ["/data/lake"]),
        ("archive", {"topics": TOPICS, "table": "shop.orders"}, TOPICS, [Data("spark_catalog", "shop.orders")]),
        ("backfill", {"topics": TOPICS, "to": "again"}, TOPICS, ["again"]),
        ("replay", {"lake": "/data/lake", "to": "again"}, ["/data/lake"], ["again"]),
        ("replay", {"dlq": "billing", "to": "again"}, ["%DLQ%billing"], ["again"]),
        (
            "mirror",
            {"topics": TOPICS, "target": "b:1;c:2"},
            TOPICS,
            ["rocketmq://b:1/orders", "rocketmq://b:1/refunds"],
        ),
        ("quality", {"topics": TOPICS, "good": "fine", "dead_letters": "bad"}, TOPICS, ["fine", "bad"]),
        ("trace", {"lake": "/data/traces", "topics": TOPICS}, TOPICS, ["/data/traces"]),
        ("lag-report", {}, [], []),
    ],
)
def test_a_pipeline_reads_and_writes_what_its_settings_name(
    pipeline: str, given: dict[str, Any], inputs: list[Any], outputs: list[Any]
) -> None:
    settings = type("Settings", (), given)()
    known = set(JOBS[pipeline].settings.__struct_fields__)

    assert set(given) <= known
    assert data_of(pipeline, settings) == (inputs, outputs)


def test_every_pipeline_is_known() -> None:
    assert set(JOBS) == {"archive", "backfill", "cdc", "replay", "mirror", "quality", "trace", "lag-report"}


def test_a_run_is_reported_if_openlineage_is_configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "events.json"
    settings = type("Settings", (), {"namesrv": "10.0.0.1:9876", "topics": ["orders"], "lake": "/data/lake"})()

    with lineage_reported("archive", settings):
        pass
    assert not path.exists()
    transport = {"type": "file", "log_file_path": str(path), "append": True}
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT", json.dumps(transport))
    with lineage_reported("archive", settings):
        pass

    start, complete = map(json.loads, path.read_text().splitlines())
    assert (start["eventType"], complete["eventType"]) == ("START", "COMPLETE")
    assert complete["job"]["name"] == "pocketmq.archive"
    assert [(each["namespace"], each["name"]) for each in complete["inputs"]] == [
        ("rocketmq://10.0.0.1:9876", "orders")
    ]
    assert [(each["namespace"], each["name"]) for each in complete["outputs"]] == [("file", "/data/lake")]
