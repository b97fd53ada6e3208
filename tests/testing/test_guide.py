"""The examples of docs/guides/testing.md work unchanged."""

import re
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "testing.md"
EXAMPLE = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def examples() -> list[tuple[int, str]]:
    """Each Python block with the first line of its code."""
    text = GUIDE.read_text("utf-8")
    return [(text.count("\n", 0, found.start(1)) + 1, found[1]) for found in EXAMPLE.finditer(text)]


def test_the_examples_of_the_guide_exist() -> None:
    assert len(examples()) >= 9


@pytest.mark.parametrize(("line", "code"), examples(), ids=[f"line {line}" for line, _ in examples()])
def test_the_example_of_the_guide_runs(line: int, code: str) -> None:
    placed = "\n" * (line - 1) + code

    exec(compile(placed, GUIDE, "exec"), {"__name__": "guide"})
