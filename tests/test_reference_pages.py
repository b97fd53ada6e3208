"""docs/reference matches the code."""

import re
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from tests.reference_pages import COMMAND, FOLDER, LABELS, exposed, generated_pages, written

ADDED = {"cluster", "node_type", "node_id", "le"}


@pytest.mark.parametrize("page", generated_pages(), ids=lambda page: page.name)
def test_a_generated_page_matches_the_code(page: Path) -> None:
    assert page.read_text("utf-8") == written(page), f"{page.name} is stale: run `{COMMAND}`"


def test_every_reference_page_except_three_is_generated() -> None:
    by_hand = {page.name for page in FOLDER.glob("*.md")} - {page.name for page in generated_pages()}

    assert by_hand == {"differences.md", "sql92.md", "nameserver.md"}


def test_the_labels_of_metrics_are_those_of_a_server() -> None:
    metrics, page = exposed()
    values = re.findall(r"^(\w+?)(?:_bucket|_sum|_count)?\{([^}]*)\}", page, re.MULTILINE)
    shown = {name: [label for label in re.findall(r'(\w+)="', labels) if label not in ADDED] for name, labels in values}

    wrong = {
        name: labels
        for name, labels in shown.items()
        if set(labels) != set(LABELS.get(name, "").split(", ")) - {*ADDED, ""}
    }
    assert wrong == {}
    assert {name for name in LABELS if name not in {metric.name for metric in metrics}} == {
        "rocketmq_denied_requests_total"
    }


def test_every_row_has_a_meaning() -> None:
    rows = [
        line for page in generated_pages() for line in page.read_text("utf-8").splitlines() if line.startswith("| `")
    ]

    assert len(rows) > 500
    assert [row for row in rows if row.endswith("| |")] == []
