"""docs/guides/pipelines.md says what is there: every flag of the pipelines, every name of the room."""

import re
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from pocketmq import pipelines
from pocketmq.pipelines import JOBS
from pocketmq.pipelines.core.contracts import Rule
from pocketmq.pipelines.core.job_file import settings_of
from pocketmq.pipelines.core.running import ProgressMetrics

DOCUMENT = (Path(__file__).parents[2] / "docs" / "guides" / "pipelines.md").read_text("utf-8")


@pytest.mark.parametrize("name", JOBS)
def test_every_pipeline_and_flag_is_told(name: str) -> None:
    told = set(re.findall(r"`--([a-z-]+)", DOCUMENT))

    assert re.search(rf"^### {name}$", DOCUMENT, re.MULTILINE)
    assert {setting.flag for setting in settings_of(JOBS[name].settings) if setting.is_flag} - told == set()


def test_every_helper_and_rule_is_told() -> None:
    helpers = ("read_json", "parse_json", "dead_letters", "write_dead_letters", "deduplicate", "Contract", "LateRows")
    more = ("run_until_caught_up", "ProgressTable", "ProgressMetrics", "spark_session")

    told = {name for name in (*helpers, *more) if f"{name}(" in DOCUMENT or f"{name}.of(" in DOCUMENT}
    assert {*helpers, *more} - told == set()
    assert [name for name in (*helpers, *more) if not hasattr(pipelines, name)] == []
    assert [key for key in Rule.__struct_encode_fields__ if f"`{key}`" not in DOCUMENT and key != "column"] == []
    assert ProgressMetrics.__name__ in DOCUMENT
