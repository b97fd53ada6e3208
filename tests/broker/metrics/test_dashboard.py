"""The Grafana dashboard: every metric that it queries exists."""

import json
import re
from pathlib import Path

from tests.broker.metrics.asked import families_of

from pocketmq import Server
from pocketmq.metrics.families import Kind

ROOT = Path(__file__).parents[3]
DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "pocketmq.json").read_text())


def test_the_dashboard_queries_existing_metrics() -> None:
    with Server(metrics_port=0) as server:
        told = families_of(server)
    known = {name for name, kind in told.items() if kind != Kind.HISTOGRAM.value}
    known |= {f"{name}_bucket" for name, kind in told.items() if kind == Kind.HISTOGRAM.value}

    asked = [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]

    assert len(asked) > 25
    assert {name for text in asked for name in re.findall(r"(?:rocketmq|process)_[a-z_]+", text)} - known == set()


def test_panels_of_the_dashboard_do_not_overlap() -> None:
    taken = [
        (panel["gridPos"]["x"] + x, panel["gridPos"]["y"] + y)
        for panel in DASHBOARD["panels"]
        for x in range(panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["h"])
    ]

    assert len(taken) == len(set(taken))
