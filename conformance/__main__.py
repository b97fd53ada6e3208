"""Run the checks and print one table for each part; write it to docs/compatibility.md when all of the part was run.

python -m conformance                             all parts with all versions
python -m conformance --part mqadmin              one part: store, clients, mqadmin or clusters; may be given several times
python -m conformance small --version 5.3.3       those scenarios whose name holds one of these words, with one version
python -m conformance --keep DIR                  leave stores, logs and printed texts there, to look at them
"""

import argparse
import logging
import signal
import sys
import tempfile
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Final, NamedTuple

from conformance import apache
from conformance.clients import conversations
from conformance.clusters import mixed
from conformance.mqadmin import subcommands
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


class Part(NamedTuple):
    """Scenarios that make one section of the page."""

    heading: str
    title: str
    scenarios: Sequence[Scenario]
    needs_recordings: bool = True
    """What Apache printed is the measure."""


PARTS: Final = {
    "store": Part(
        "Store",
        "stores of PocketMQ and Apache RocketMQ",
        (*turns.SCENARIOS, *removals.SCENARIOS, *kills.SCENARIOS, *locks.SCENARIOS),
        needs_recordings=False,
    ),
    "clients": Part("Clients", "the Java client with PocketMQ's servers", conversations.SCENARIOS),
    "mqadmin": Part("mqadmin", "mqadmin with PocketMQ's servers", subcommands.SCENARIOS),
    "clusters": Part("Mixed clusters", "servers of PocketMQ and Apache RocketMQ in one cluster", mixed.SCENARIOS),
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m conformance", description="PocketMQ beside Apache RocketMQ.")
    parser.add_argument("words", nargs="*", help="run the scenarios whose name holds one of these words")
    parser.add_argument("--part", action="append", choices=PARTS, help="run this part; all if not given")
    parser.add_argument("--version", action="append", help=f"of Apache; {' and '.join(apache.VERSIONS)} if not given")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave stores, logs and printed texts in this folder")
    options = parser.parse_args(arguments)
    parts = options.part or list(PARTS)
    chosen = {name: _chosen(PARTS[name].scenarios, options.words) for name in parts}
    if not any(chosen.values()):
        names = dict.fromkeys(one.name for name in parts for one in PARTS[name].scenarios)
        parser.error(f"no scenario is called so; there are: {', '.join(names)}")
    if options.keep and options.keep.exists() and any(options.keep.iterdir()):
        parser.error(f"{options.keep} is not empty, and what an earlier run left would be taken for this one's")

    versions = options.version or list(apache.VERSIONS)
    failed = 0
    with tempfile.TemporaryDirectory(prefix="pocketmq-conformance-") as folder:
        for name, scenarios in chosen.items():
            if scenarios:
                failed += _run_part(PARTS[name], scenarios, versions, (options.keep or Path(folder)) / name)
    return 1 if failed else 0


def _chosen(scenarios: Sequence[Scenario], words: Sequence[str]) -> list[Scenario]:
    return [one for one in scenarios if not words or any(word in one.name for word in words)]


def _run_part(part: Part, scenarios: Sequence[Scenario], versions: Sequence[str], folder: Path) -> int:
    """Run scenarios of a part, and show the table; how many checks failed."""
    if part.needs_recordings and not apache.GOLDEN.is_dir():
        print(f"{part.title}: skipped, as there is no {apache.GOLDEN}, which has what Apache printed")
        return 0
    grid = Grid(run_all(scenarios, versions, folder, apache.reason_to_skip()))
    show(grid, f"{part.title} · {date.today()}")
    is_whole = len(scenarios) == len(part.scenarios) and set(versions) >= set(apache.VERSIONS)
    if is_whole and grid.outcomes and not grid.count(Verdict.SKIPPED):
        write_section(PAGE, part.heading, _section(part, grid))
        print(f"written to {PAGE.relative_to(apache.ROOT)}")
    return grid.count(Verdict.FAIL)


def run_all(scenarios: Sequence[Scenario], versions: Sequence[str], folder: Path, unable: str) -> list[Outcome]:
    """Every scenario with every version that it is for; one that cannot be run is skipped and says why."""
    timeline = Timeline()
    outcomes: list[Outcome] = []
    for version in versions:
        if not unable:
            timeline.say(f"fetching Apache RocketMQ {version}; the first time takes minutes")
        why = unable or apache.fetch(version)
        for scenario in (one for one in scenarios if one.is_for(version)):
            if why:
                outcomes += skipped(scenario, version, why)
                continue
            trial_folder = folder / f"{version}-{scenario.name.replace(' ', '-')}"
            trial_folder.mkdir(parents=True, exist_ok=True)
            outcomes += Trial(scenario, version, trial_folder, timeline.say).run()
    timeline.say("done")
    return outcomes


def _section(part: Part, grid: Grid) -> str:
    differs = grid.count(Verdict.DIFFERS)
    on_purpose = f", {differs} differ on purpose" if differs else ""
    return (
        f"Checked on {date.today()} with Apache RocketMQ {' and '.join(grid.versions)} by `make conformance`: "
        f"{grid.count(Verdict.PASS)} of {len(grid.outcomes)} checks pass{on_purpose}.\n\n{as_markdown(grid)}"
    )


if __name__ == "__main__":
    logging.basicConfig(level=logging.CRITICAL)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that every server is stopped on the way out
    sys.exit(main())
