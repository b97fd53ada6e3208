"""Runs the scenarios of all parts, several at a time, because most of them wait for Java programs or delayed messages."""

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from conformance.parts import Part
from conformance.report import Outcome, Say, Scenario, Trial, skipped


class Job(NamedTuple):
    """A scenario that is to be run with one column of its part."""

    name: str
    """Of the part."""
    scenario: Scenario
    column: str
    part: Part
    folder: Path


class Timeline:
    """Lines with the seconds since the start."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def say(self, text: str) -> None:
        print(f"[{self.seconds:6.1f} s] {text}", flush=True)


class Columns:
    """What can be run here; each column of a part is asked about once, for it may take minutes to fetch what it needs."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._known: dict[object, str] = {}
        self._lock = threading.Lock()

    def unable(self, part: Part, column: str) -> str:
        with self._lock:
            key = (part.unable, column)
            if key not in self._known:
                self._say(f"making ready what {column} needs; the first time takes minutes")
                self._known[key] = part.unable(column)
            return self._known[key]


def run_all(jobs: Sequence[Job], at_once: int, timeline: Timeline) -> dict[str, list[Outcome]]:
    """Every job; what came of them by part, in the order of the jobs. Those that measure times run alone, at the end."""
    columns = Columns(timeline.say)
    outcomes: dict[int, list[Outcome]] = {}

    def run(number: int) -> None:
        outcomes[number] = _run(jobs[number], columns, timeline)

    with ThreadPoolExecutor(at_once) as pool:
        try:
            list(pool.map(run, (number for number, job in enumerate(jobs) if not job.part.is_alone)))
        except BaseException:  # interrupted: running scenarios end, and no others start
            pool.shutdown(cancel_futures=True)
            raise
    for number, job in enumerate(jobs):
        if job.part.is_alone:
            run(number)
    timeline.say("done")
    results: dict[str, list[Outcome]] = {}
    for number, job in enumerate(jobs):
        results.setdefault(job.name, []).extend(outcomes[number])
    return results


def _run(job: Job, columns: Columns, timeline: Timeline) -> list[Outcome]:
    """A job that cannot be run here is skipped, and says why."""
    if why := columns.unable(job.part, job.column):
        return skipped(job.scenario, job.column, why)
    folder = job.folder / f"{job.column}-{job.scenario.name}".replace(" ", "-")
    folder.mkdir(parents=True, exist_ok=True)
    return Trial(job.scenario, job.column, folder, timeline.say).run()
