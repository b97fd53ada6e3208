"""The results of a benchmark as a page of docs/generated, which `--write-docs` writes as a whole."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.broker.servers import ROOT
from bench.broker.sheets import Sheet, as_markdown

FOLDER: Final = ROOT / "docs" / "generated"
BROKER: Final = "bench.broker"
CLIENT: Final = "bench.client"
SPARK: Final = "bench.spark.end_to_end"
POP: Final = "bench.broker.pops"
NAMES: Final = {BROKER: "broker", CLIENT: "client", SPARK: "spark", POP: "pop"}


def written(facts: Sequence[str], sheets: Sequence[Sheet], program: str) -> str:
    """The page with these results."""
    head = (
        f"# Results: {NAMES[program]}\n\n"
        f"Written by `python -m {program} --write-docs`; do not edit.\n"
        "[Performance](../explanation/performance.md) explains the measurement."
    )
    return "\n\n".join([head, " · ".join(facts), *map(as_markdown, sheets)]) + "\n"


def write(facts: Sequence[str], sheets: Sequence[Sheet], program: str = BROKER, folder: Path = FOLDER) -> None:
    (folder / f"{NAMES[program]}.md").write_text(written(facts, sheets, program), "utf-8")
