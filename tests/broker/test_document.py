"""docs/explanation/flow-control.md: the settings that its table of differences names are there, with the defaults that it tells."""

import re
from pathlib import Path

from pocketmq.broker.setting_keys import KEYS, write_keys
from pocketmq.broker.settings import BrokerSettings

DOCUMENT = (Path(__file__).parents[2] / "docs" / "explanation" / "flow-control.md").read_text("utf-8")
TABLE = DOCUMENT.partition("## Differences from Apache RocketMQ")[2].partition("\n## ")[0]
ROWS = [[cell.strip() for cell in line.split("|")[1:-1]] for line in TABLE.splitlines() if line.startswith("|")][2:]


def test_every_row_says_what_both_do() -> None:
    assert len(ROWS) > 20
    assert [row for row in ROWS if len(row) != 4 or not row[0] or not row[2]] == []
    assert len({row[0] for row in ROWS}) == len(ROWS)


def test_every_setting_of_the_differences_exists_and_has_the_default_that_is_told() -> None:
    defaults = write_keys(BrokerSettings())
    told = [pair for row in ROWS for pair in re.findall(r"`(\w+)` = ([\w.]+)", row[3])]

    assert len(told) > 10
    assert [name for name, _ in told if name not in KEYS] == []
    assert dict(told) == {name: defaults.get(name, "none") for name, _ in told}
    assert all(re.fullmatch(r"(`\w+` = [\w.]+(, )?)*", row[3]) for row in ROWS)
