"""Run the checks and print one table; write it to docs/compatibility.md when all of them were run.

python -m conformance                         all scenarios with all versions
python -m conformance small --version 5.3.3   those whose name holds one of these words, with one version
python -m conformance --keep DIR              leave stores and logs there, to look at them
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
from conformance.report import (
    Grid,
    Outcome,
    Scenario,
    Timeline,
    Trial,
    Verdict,
    as_markdown,
    show,
    skipped,
    write_section,
)
from conformance.store import kills, locks, removals, turns

PAGE: Final = apache.ROOT / "docs" / "compatibility.md"
SCENARIOS: Final = (*turns.SCENARIOS, *removals.SCENARIOS, *kills.SCENARIOS, *locks.SCENARIOS)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m conformance", description="PocketMQ's store beside Apache RocketMQ.")
    parser.add_argument("words", nargs="*", help="run the scenarios whose name holds one of these words")
    parser.add_argument("--version", action="append", help=f"of Apache; {' and '.join(apache.VERSIONS)} if not given")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave stores and logs in this folder")
    options = parser.parse_args(arguments)
    chosen = [one for one in SCENARIOS if not options.words or any(word in one.name for word in options.words)]
    if not chosen:
        parser.error(f"no scenario is called so; there are: {', '.join(one.name for one in SCENARIOS)}")
    if options.keep and options.keep.exists() and any(options.keep.iterdir()):
        parser.error(f"{options.keep} is not empty, and stores of an earlier run would be taken for those of this one")

    versions = options.version or list(apache.VERSIONS)
    with tempfile.TemporaryDirectory(prefix="pocketmq-conformance-") as folder:
        grid = Grid(run_all(chosen, versions, options.keep or Path(folder)))
    show(grid, f"stores of PocketMQ and Apache RocketMQ · {date.today()}")
    if len(chosen) == len(SCENARIOS) and set(versions) >= set(apache.VERSIONS) and not grid.count(Verdict.SKIPPED):
        write_section(PAGE, "Store", _section(grid))
        print(f"written to {PAGE.relative_to(apache.ROOT)}")
    return 1 if grid.count(Verdict.FAIL) else 0


def run_all(scenarios: Sequence[Scenario], versions: Sequence[str], folder: Path) -> list[Outcome]:
    """Every scenario with every version; one that cannot be run is skipped and says why."""
    timeline = Timeline()
    outcomes: list[Outcome] = []
    unable = apache.reason_to_skip()
    for version in versions:
        if not unable:
            timeline.say(f"fetching Apache RocketMQ {version}; the first time takes minutes")
        why = unable or apache.fetch(version)
        for scenario in scenarios:
            if why:
                outcomes += skipped(scenario, version, why)
                continue
            trial_folder = folder / f"{version}-{scenario.name.replace(' ', '-')}"
            outcomes += Trial(scenario, version, trial_folder, timeline.say).run()
    timeline.say("done")
    return outcomes


def _section(grid: Grid) -> str:
    return (
        f"Checked on {date.today()} with Apache RocketMQ {' and '.join(grid.versions)} by `make conformance`: "
        f"{grid.count(Verdict.PASS)} of {len(grid.outcomes)} checks pass.\n\n{as_markdown(grid)}"
    )


if __name__ == "__main__":
    logging.basicConfig(level=logging.CRITICAL)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that every broker is stopped on the way out
    sys.exit(main())
