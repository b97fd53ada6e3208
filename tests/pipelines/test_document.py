"""docs/guides/pipelines.md has every pipeline, every function for your own code, and every rule."""

import re
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from pocketmq import pipelines
from pocketmq.pipelines import JOBS
from pocketmq.pipelines.core.contracts import Rule

DOCUMENT = (Path(__file__).parents[2] / "docs" / "guides" / "pipelines.md").read_text("utf-8")


@pytest.mark.parametrize("name", [name for name in JOBS if name != "archive"])
def test_every_pipeline_has_a_section(name: str) -> None:
    assert re.search(rf"^## {name}$", DOCUMENT, re.MULTILINE)
    assert f"](#{name})" in DOCUMENT


def test_every_function_and_rule_is_described() -> None:
    helpers = ("read_json", "parse_json", "dead_letters", "write_dead_letters", "deduplicate", "Contract", "LateRows")
    more = ("run_until_caught_up", "ProgressTable", "ProgressMetrics", "spark_session")

    told = {name for name in (*helpers, *more) if f"{name}(" in DOCUMENT or f"{name}.of(" in DOCUMENT}
    assert {*helpers, *more} - told == set()
    assert [name for name in (*helpers, *more) if not hasattr(pipelines, name)] == []
    assert [key for key in Rule.__struct_encode_fields__ if f"`{key}`" not in DOCUMENT and key != "column"] == []
