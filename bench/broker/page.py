"""The results in docs/performance.md: what stands between two marks is written anew, the rest is left as it is."""

from collections.abc import Sequence
from pathlib import Path

from bench.broker.servers import ROOT
from bench.broker.sheets import Sheet, as_markdown

PAGE = ROOT / "docs" / "performance.md"
BEGIN = "<!-- python -m bench.broker --write-docs: begin -->"
END = "<!-- python -m bench.broker --write-docs: end -->"


def written(page: str, facts: Sequence[str], sheets: Sequence[Sheet]) -> str:
    """The page with these results in it."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no place for results: {BEGIN} … {END}")
    results = "\n\n".join([" · ".join(facts), *map(as_markdown, sheets)])
    return f"{before}{BEGIN}\n\n{results}\n\n{END}{after}"


def write(facts: Sequence[str], sheets: Sequence[Sheet], page: Path = PAGE) -> None:
    page.write_text(written(page.read_text("utf-8"), facts, sheets), "utf-8")
