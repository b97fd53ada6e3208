"""The results in docs/explanation/performance.md: what stands between two marks is written anew, the rest is left as it is."""

from collections.abc import Sequence
from pathlib import Path

from bench.broker.servers import ROOT
from bench.broker.sheets import Sheet, as_markdown

PAGE = ROOT / "docs" / "explanation" / "performance.md"
BROKER = "bench.broker"
CLIENT = "bench.client"
SPARK = "bench.spark.end_to_end"


def marks(program: str) -> tuple[str, str]:
    """Where the results of a program begin and end."""
    return f"<!-- python -m {program} --write-docs: begin -->", f"<!-- python -m {program} --write-docs: end -->"


def written(page: str, facts: Sequence[str], sheets: Sequence[Sheet], program: str = BROKER) -> str:
    """The page with these results in it."""
    begin, end = marks(program)
    before, begun, rest = page.partition(begin)
    _, ended, after = rest.partition(end)
    if not begun or not ended:
        raise ValueError(f"the page has no place for results: {begin} … {end}")
    results = "\n\n".join([" · ".join(facts), *map(as_markdown, sheets)])
    return f"{before}{begin}\n\n{results}\n\n{end}{after}"


def write(facts: Sequence[str], sheets: Sequence[Sheet], program: str = BROKER, page: Path = PAGE) -> None:
    page.write_text(written(page.read_text("utf-8"), facts, sheets, program), "utf-8")
