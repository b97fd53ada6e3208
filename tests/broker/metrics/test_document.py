"""The page about metrics, and the dashboard: every name is one that is told."""

import json
import re
from pathlib import Path

from tests.broker.metrics.asked import families_of

from pocketmq import Server
from pocketmq.metrics.families import Kind

ROOT = Path(__file__).parents[3]
DOCUMENT = (ROOT / "docs" / "guides" / "metrics.md").read_text()
DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "pocketmq.json").read_text())
ONLY_WITH_ACCOUNTS = {"rocketmq_denied_requests_total"}


def test_every_metric_is_in_the_document_and_no_other() -> None:
    with Server(metrics_port=0) as server:
        told = families_of(server)

    written = set(re.findall(r"`((?:rocketmq|process)_[a-z_]+)`", DOCUMENT))

    assert told.keys() - written == set()
    assert written - told.keys() == ONLY_WITH_ACCOUNTS


def test_the_dashboard_asks_for_metrics_that_are_there() -> None:
    with Server(metrics_port=0) as server:
        told = families_of(server)
    known = {name for name, kind in told.items() if kind != Kind.HISTOGRAM.value}
    known |= {f"{name}_bucket" for name, kind in told.items() if kind == Kind.HISTOGRAM.value}

    asked = [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]

    assert len(asked) > 25
    assert {name for text in asked for name in re.findall(r"(?:rocketmq|process)_[a-z_]+", text)} - known == set()


def test_no_two_panels_of_the_dashboard_lie_on_each_other() -> None:
    taken = [
        (panel["gridPos"]["x"] + x, panel["gridPos"]["y"] + y)
        for panel in DASHBOARD["panels"]
        for x in range(panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["h"])
    ]

    assert len(taken) == len(set(taken))
