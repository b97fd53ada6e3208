from pathlib import Path

from pocketmq.store.tools.findings import SEVERITY, Finding, Kind, Severity

DOCUMENT = Path(__file__).parents[3] / "docs" / "explanation" / "durability.md"


def test_every_kind_has_a_severity() -> None:
    assert set(SEVERITY) == set(Kind)


def test_every_kind_is_explained_with_its_severity() -> None:
    rows = [line for line in DOCUMENT.read_text("utf-8").splitlines() if line.startswith("| `")]
    explained = {tuple(cell.strip(" `") for cell in row.split("|")[1:3]) for row in rows}

    assert {(kind.value, severity.name.lower()) for kind, severity in SEVERITY.items()} <= explained


def test_a_finding_has_the_severity_of_its_kind() -> None:
    assert Finding(Kind.LOG_RECORD, "commitlog/0", "bad").severity is Severity.DAMAGE
