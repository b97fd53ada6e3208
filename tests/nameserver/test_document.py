"""docs/reference/nameserver.md is correct: its example runs, and no request code is missing."""

import re
import subprocess
import sys
from pathlib import Path

from pocketmq.nameserver.server import ACCESS

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "reference" / "nameserver.md").read_text("utf-8")


def test_the_example_runs() -> None:
    example = DOCUMENT.partition("```python\n")[2].partition("```")[0]

    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", example], capture_output=True, text=True, timeout=60, check=True
    )

    assert re.fullmatch(r"127\.0\.0\.1:\d+\n", done.stdout)


def test_every_code_is_documented() -> None:
    table = DOCUMENT.partition("## Requests")[2]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("|")]
    codes = {int(code) for cell in cells for code in re.findall(r"\d+", cell)}

    assert codes == {int(code) for code in ACCESS}
