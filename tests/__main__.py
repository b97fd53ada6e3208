"""All tests, as several pytest processes side by side: `python -m tests`; further arguments are passed to each process.

    spark      the connector: one Java, which mostly waits
    pipelines  pipelines and demo: another Java
    programs   broker, client and command line: mostly waits for sockets and processes
    memory     lets allocations fail, also those of other threads, which must not be there
    the rest   store, protocol, console, documentation …

Each process runs its tests in their usual order, so that what they share for a session is started once in each.

Two cores that run four processes can starve a test that waits for a condition until its deadline. A few failed tests
therefore run once more, alone, and the last lines name those that passed only then: a name that appears repeatedly is a fault.
A test that stands still ends its process (uvloop has been seen to never return from closing its handles); the last lines
show where, and the process starts once more with the tests that had not passed.
"""

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

import click

HERE = Path(__file__).parent
SHARES = {
    "spark": ("spark",),
    "pipelines": ("pipelines", "demo"),
    "programs": ("access", "assault", "broker", "cli", "client"),
    "memory": ("store/test_turns_without_memory.py",),
}
STACK_LINES = 16
REPEATED_AT_MOST = 3
"""With more failed tests in one process the load is not the reason, and nothing is repeated."""


def arguments() -> dict[str, list[str]]:
    """Arguments for pytest, by the name of the part. Tests that no part names belong to the rest, so that none is
    omitted.
    """
    named = {name: [str(HERE / folder) for folder in folders] for name, folders in SHARES.items()}
    rest = [f"--ignore={folder}" for folders in named.values() for folder in folders]
    return {**named, "the rest": [str(HERE), *rest]}


def command(name: str, words: list[str]) -> list[str]:
    """pytest with a separate cache for each part, which records the failed tests."""
    return [sys.executable, "-m", "pytest", "--quiet", "-o", f"cache_dir={cache(name)}", *words]


def cache(name: str) -> Path:
    return HERE.parent / ".pytest_cache" / name.replace(" ", "-")


def environment(name: str) -> dict[str, str]:
    return {**os.environ, "POCKETMQ_PASSED_TESTS": str(cache(name) / "passed")}


def failed_tests(name: str) -> list[str]:
    """Empty if the process ended before it could write them down."""
    try:
        return sorted(json.loads((cache(name) / "v/cache/lastfailed").read_text()))
    except FileNotFoundError:
        return []


@dataclass
class Run:
    """One share, started."""

    name: str
    process: "subprocess.Popen[str]"
    stack: list[str] = field(default_factory=list)
    """Of the main thread, innermost call first, if a test stood still."""

    def __post_init__(self) -> None:
        self.reader = threading.Thread(target=self.forward)

    def forward(self) -> None:
        """Print the lines. Of the stacks that faulthandler prints, keep the last one, which is the main thread's."""
        assert self.process.stdout is not None
        stopped = False
        for line in self.process.stdout:
            click.echo(f"{self.name:>8} | {line}", nl=False)
            stopped = stopped or "Timeout (0:" in line  # after the dots of passed tests
            if stopped and "most recent call first" in line:
                self.stack.clear()
            if stopped:
                self.stack.append(line)


def start(name: str, words: list[str]) -> Run:
    process = subprocess.Popen(
        command(name, [*words, *arguments()[name]]),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=environment(name),
    )
    return Run(name, process)


def run_side_by_side(names: Iterable[str], words: list[str]) -> list[Run]:
    """The runs, ended."""
    runs = []
    for name in names:
        runs.append(run := start(name, words))
        run.reader.start()
    for run in runs:
        run.reader.join()
        run.process.wait()
    return runs


def passes_alone(run: Run, words: list[str]) -> bool:
    if run.stack:
        click.echo(f"{run.name}: a test stood still; running it and those that had not passed once more")
        again = run_side_by_side([run.name], words)[0]
        click.echo(f"{run.name}: a test stood still beside other tests:\n{''.join(run.stack[:STACK_LINES])}", nl=False)
        return not again.process.returncode
    failed = failed_tests(run.name)
    if not 0 < len(failed) <= REPEATED_AT_MOST:
        return False
    click.echo(f"{run.name}: running {len(failed)} failed test(s) once more, alone")
    if subprocess.run(command(run.name, [*words, *failed]), cwd=HERE.parent, check=False).returncode:
        return False
    for test in failed:
        click.echo(f"failed beside other tests, passed alone: {test}")
    return True


def main(words: list[str]) -> int:
    began = monotonic()
    for name in arguments():
        shutil.rmtree(cache(name), ignore_errors=True)
        cache(name).mkdir(parents=True)
    runs = run_side_by_side(arguments(), words)
    failed = [
        f"{run.name} (exit code {run.process.returncode})"
        for run in runs
        if run.process.returncode and not passes_alone(run, words)
    ]
    click.echo(f"failed: {', '.join(failed)}" if failed else f"all tests passed in {monotonic() - began:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
