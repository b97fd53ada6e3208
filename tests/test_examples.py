"""Every example runs and prints what its docstring says; the README shows one of them."""

import ast
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ON_SPARK = frozenset({"spark_bodies", "spark_read_write"})
"""Run in the session of `tests/spark`: Spark takes long to start, and talks."""
EXAMPLES = sorted(path for path in (ROOT / "examples").glob("*.py") if path.stem not in ON_SPARK)


def promised_output(source: str) -> str:
    docstring = ast.get_docstring(ast.parse(source), clean=True) or ""
    return textwrap.dedent(docstring.partition("Prints:\n")[2]).strip()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_an_example_prints_its_documented_output(example: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(example)], capture_output=True, text=True, timeout=60, cwd=ROOT
    )

    assert done.stderr == ""
    assert done.returncode == 0
    assert done.stdout.strip() == promised_output(example.read_text("utf-8"))
    assert done.stdout.strip()


def test_the_examples_exist() -> None:
    assert {"send_and_consume", "async_service", "pytest_fixture"} <= {example.stem for example in EXAMPLES}


def test_the_readme_contains_an_example_unchanged() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    example = (ROOT / "examples" / "send_and_consume.py").read_text("utf-8")
    shown = readme.partition("```python\n")[2].partition("```")[0]

    assert shown.strip()
    assert example.endswith(shown)
