"""All tests, as several pytest processes side by side: `python -m tests`; further arguments are passed to each process.

    spark      connector, pipelines and demo: one Java, which mostly waits
    programs   broker, client and command line: mostly waits for sockets and processes
    memory     lets allocations fail, also those of other threads, which must not be there
    the rest   store, protocol, console, documentation …

Each process runs its tests in their usual order, so that what they share for a session is started once in each.

Two cores that run three processes can starve a test that waits for a condition until its deadline. A few failed tests
therefore run once more, alone, and the last lines name those that passed only then: a name that appears repeatedly is a fault.
"""

import json
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from time import monotonic
from typing import IO

import click

HERE = Path(__file__).parent
SHARES = {
    "spark": ("spark", "pipelines", "demo"),
    "programs": ("access", "assault", "broker", "cli", "client"),
    "memory": ("store/test_turns_without_memory.py",),
}
REPEATED_AT_MOST = 3
"""With more failed tests in one process the load is not the reason, and nothing is repeated."""


def arguments() -> dict[str, list[str]]:
    """Arguments for pytest, by the name of the part. Tests that no part names belong to the rest, so that none is
    omitted.
    """
    named = {name: [str(HERE / folder) for folder in folders] for name, folders in SHARES.items()}
    rest = [f"--ignore={folder}" for folders in named.values() for folder in folders]
    return {**named, "the rest": [str(HERE), *rest]}


def forward(name: str, lines: IO[str]) -> None:
    for line in lines:
        click.echo(f"{name:>8} | {line}", nl=False)


def command(name: str, words: list[str]) -> list[str]:
    """pytest with a separate cache for each part, which records the failed tests."""
    return [sys.executable, "-m", "pytest", "--quiet", "-o", f"cache_dir={cache(name)}", *words]


def cache(name: str) -> Path:
    return HERE.parent / ".pytest_cache" / name.replace(" ", "-")


def failed_tests(name: str) -> list[str]:
    """Empty if the process ended before it could write them down."""
    try:
        return sorted(json.loads((cache(name) / "v/cache/lastfailed").read_text()))
    except FileNotFoundError:
        return []


def run_side_by_side(words: list[str]) -> dict[str, int]:
    """Exit codes by share."""
    running = {}
    for name, paths in arguments().items():
        shutil.rmtree(cache(name), ignore_errors=True)
        process = subprocess.Popen(
            command(name, [*words, *paths]),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        assert process.stdout is not None
        reader = threading.Thread(target=forward, args=(name, process.stdout))
        reader.start()
        running[name] = process, reader
    codes = {}
    for name, (process, reader) in running.items():
        reader.join()
        codes[name] = process.wait()
    return codes


def passes_alone(name: str, words: list[str]) -> bool:
    failed = failed_tests(name)
    if not 0 < len(failed) <= REPEATED_AT_MOST:
        return False
    click.echo(f"{name}: running {len(failed)} failed test(s) once more, alone")
    if subprocess.run(command(name, [*words, *failed]), cwd=HERE.parent, check=False).returncode:
        return False
    for test in failed:
        click.echo(f"failed beside other tests, passed alone: {test}")
    return True


def main(words: list[str]) -> int:
    began = monotonic()
    codes = run_side_by_side(words)
    failed = [f"{name} (exit code {code})" for name, code in codes.items() if code and not passes_alone(name, words)]
    click.echo(f"failed: {', '.join(failed)}" if failed else f"all tests passed in {monotonic() - began:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
