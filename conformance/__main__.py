"""Run the checks and print one table for each part; write it to docs/generated/compatibility.md when all of the part was run.

python -m conformance                             all parts, with everything that they are run with
python -m conformance --part mqadmin              one part of `parts.PARTS`; may be given several times
python -m conformance small --version 5.3.3       those scenarios whose name holds one of these words, with one version
python -m conformance --keep DIR                  leave stores, logs and printed texts there, to look at them
python -m conformance --jobs 1                    one scenario after the other; else some run at the same time
"""

import argparse
import logging
import signal
import sys
import tempfile
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Final

from conformance import apache
from conformance.page import write_part
from conformance.parts import PARTS, Part
from conformance.report import Grid, Outcome, Scenario, Verdict, show
from conformance.running import Job, Timeline, run_all
from conformance.summary import write_summary

PAGE: Final = apache.ROOT / "docs" / "generated" / "compatibility.md"
JOBS: Final = 4
"""Scenarios at the same time: most of them wait most of the time."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m conformance", description="PocketMQ beside Apache RocketMQ.")
    parser.add_argument("words", nargs="*", help="run the scenarios whose name holds one of these words")
    parser.add_argument("--part", action="append", choices=PARTS, help="run this part; all if not given")
    parser.add_argument("--version", action="append", help="of Apache, or another column; all of a part if not given")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave stores, logs and printed texts in this folder")
    parser.add_argument("--jobs", type=int, default=JOBS, help=f"scenarios at the same time; {JOBS} if not given")
    options = parser.parse_args(arguments)
    parts = options.part or list(PARTS)
    chosen = {name: _chosen(PARTS[name].scenarios, options.words) for name in parts}
    if not any(chosen.values()):
        names = dict.fromkeys(one.name for name in parts for one in PARTS[name].scenarios)
        parser.error(f"no scenario is called so; there are: {', '.join(names)}")
    if options.keep and options.keep.exists() and any(options.keep.iterdir()):
        parser.error(f"{options.keep} is not empty, and what an earlier run left would be taken for this one's")

    with tempfile.TemporaryDirectory(prefix="pocketmq-conformance-") as folder:
        jobs = [
            Job(name, scenario, column, PARTS[name], (options.keep or Path(folder)) / name)
            for name, scenarios in chosen.items()
            if _has_recordings(PARTS[name])
            for column in PARTS[name].columns
            if not options.version or column in options.version
            for scenario in scenarios
            if scenario.is_for(column)
        ]
        results = run_all(jobs, options.jobs, Timeline())
    for name in parts:
        if _tell(name, chosen[name], results.get(name, [])):
            write_summary(PAGE)
    failed = any(outcome.verdict is Verdict.FAIL for outcomes in results.values() for outcome in outcomes)
    return 1 if failed else 0


def _chosen(scenarios: Sequence[Scenario], words: Sequence[str]) -> list[Scenario]:
    return [one for one in scenarios if not words or any(word in one.name for word in words)]


def _has_recordings(part: Part) -> bool:
    if not part.needs_recordings or apache.GOLDEN.is_dir():
        return True
    print(f"{part.title}: skipped, as there is no {apache.GOLDEN}, which has what Apache printed")
    return False


def _tell(name: str, scenarios: Sequence[Scenario], outcomes: list[Outcome]) -> bool:
    """Show the table of a part, and write it to the page if all of its scenarios were run; whether it was written."""
    part, grid = PARTS[name], Grid(outcomes)
    if outcomes:
        show(grid, f"{part.title} · {date.today()}")
    if len(scenarios) < len(part.scenarios) or all(outcome.verdict is Verdict.SKIPPED for outcome in outcomes):
        return False
    write_part(PAGE, part.heading, part.columns, outcomes)
    print(f"written to {PAGE.relative_to(apache.ROOT)}")
    return True


if __name__ == "__main__":
    logging.basicConfig(level=logging.CRITICAL)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that every server is stopped on the way out
    sys.exit(main())
