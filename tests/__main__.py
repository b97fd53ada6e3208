"""All tests, as several pytest processes side by side: `python -m tests`, with further words for each of them.

    spark      connector, pipelines and demo: one Java, which mostly waits
    programs   broker, client and command line: mostly waits for sockets and processes
    memory     lets allocations fail, also those of other threads, which must not be there
    the rest   store, protocol, console, documentation …

Each process runs its tests in their usual order, so that what they share for a session is started once in each.
"""

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


def arguments() -> dict[str, list[str]]:
    """For pytest, by the name of the share. What no share names belongs to the rest, so that nothing is left out."""
    named = {name: [str(HERE / folder) for folder in folders] for name, folders in SHARES.items()}
    rest = [f"--ignore={folder}" for folders in named.values() for folder in folders]
    return {**named, "the rest": [str(HERE), *rest]}


def forward(name: str, lines: IO[str]) -> None:
    for line in lines:
        click.echo(f"{name:>8} | {line}", nl=False)


def main(words: list[str]) -> int:
    began = monotonic()
    running = {}
    for name, paths in arguments().items():
        command = [sys.executable, "-m", "pytest", "--quiet", *words, *paths]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        )
        assert process.stdout is not None
        reader = threading.Thread(target=forward, args=(name, process.stdout))
        reader.start()
        running[name] = process, reader
    codes = {}
    for name, (process, reader) in running.items():
        reader.join()
        codes[name] = process.wait()
    failed = [f"{name} (exit code {code})" for name, code in codes.items() if code]
    click.echo(f"failed: {', '.join(failed)}" if failed else f"all tests passed in {monotonic() - began:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
