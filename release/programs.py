"""Running other programs, and where files are."""

import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
WHEELS: Final = ROOT / "dist"
"""Where `make wheels` puts them: a folder that pip and uv take as an index."""
SAMPLE_BYTES: Final = 4000


class Failed(Exception):
    """A step did not do what it must. The text is for the person who ran the command."""


def run(
    command: Sequence[str | Path],
    *,
    folder: Path = ROOT,
    environ: Mapping[str, str] | None = None,
    timeout_s: float = 600,
) -> str:
    """What the program printed. Failed with the end of its output, if its exit code is not 0."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words,
            cwd=folder,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
    except FileNotFoundError as error:
        raise Failed(f"{words[0]} is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise Failed(f"{' '.join(words)} did not end within {timeout_s:.0f} s") from error
    printed = (done.stdout + done.stderr).decode(errors="replace")
    if done.returncode:
        raise Failed(f"{' '.join(words)} ended with {done.returncode}:\n{printed[-SAMPLE_BYTES:]}")
    return printed


def source_date(environ: Mapping[str, str] = os.environ) -> int:
    """The time that all files of a release carry: SOURCE_DATE_EPOCH, or the time of the last commit."""
    if wished := environ.get("SOURCE_DATE_EPOCH"):
        return int(wished)
    try:
        return int(run(["git", "log", "-1", "--format=%ct"]))
    except Failed as error:
        raise Failed(
            "this is not a checkout of git: set SOURCE_DATE_EPOCH, the time of the release in seconds"
        ) from error


def tool(name: str) -> str:
    """A tool of the release, installed beside this Python."""
    return str(Path(sysconfig.get_path("scripts"), name))


def say(text: str) -> None:
    print(text, flush=True)


def main_of(steps: Callable[[], object]) -> int:
    """Run a command of make: its exit code, with the reason on stderr if it failed."""
    try:
        steps()
    except Failed as failure:
        sys.stderr.write(f"{failure}\n")
        return 1
    return 0
