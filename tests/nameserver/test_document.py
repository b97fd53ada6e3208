"""docs/reference/nameserver.md says what is there: its example runs, and no key and no code is missing."""

import re
import subprocess
import sys
from pathlib import Path

from pocketmq.nameserver.server import ACCESS
from pocketmq.nameserver.settings import KEYS, NameServerSettings, write_keys

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "reference" / "nameserver.md").read_text("utf-8")
SETTINGS = DOCUMENT.partition("## Settings")[2].partition("## Safety")[0]


def test_the_example_runs() -> None:
    example = DOCUMENT.partition("```python\n")[2].partition("```")[0]

    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", example], capture_output=True, text=True, timeout=60, check=True
    )

    assert re.fullmatch(r"127\.0\.0\.1:\d+\n", done.stdout)


def test_every_setting_is_there_with_its_default() -> None:
    defaults = {name: text for name, text in write_keys(NameServerSettings()).items() if name in KEYS}
    rows = [[cell.strip() for cell in line.split("|")[1:3]] for line in SETTINGS.splitlines() if line.startswith("| `")]
    told = {
        name.strip("` "): default.strip()
        for names, texts in rows
        for name, default in zip(names.split(","), (texts.split(",") * 2)[: names.count(",") + 1], strict=True)
    }

    assert set(told) == set(KEYS)
    assert {name: told[name] for name in defaults} == defaults


def test_what_may_change_while_running_stands_first() -> None:
    first, _, second = SETTINGS.partition("only at the start")

    assert {name for name in KEYS if f"`{name}`" in first} == {name for name, key in KEYS.items() if key.at_run_time}
    assert {name for name in KEYS if f"`{name}`" in second} == {
        name for name, key in KEYS.items() if not key.at_run_time
    }


def test_every_code_is_there() -> None:
    table = DOCUMENT.partition("## Requests")[2].partition("## Settings")[0]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("|")]
    codes = {int(code) for cell in cells for code in re.findall(r"\d+", cell)}

    assert codes == {int(code) for code in ACCESS}
