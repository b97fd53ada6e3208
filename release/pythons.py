"""Runs the core of the tests with the wheel of this machine on each version of Python: `make pythons`.

python -m release.pythons                    3.11 to 3.14, and 3.14 without the global lock; minutes each
python -m release.pythons 3.12 3.14          some
python -m release.pythons 3.12 -- -k pull    with options of pytest

uv finds the interpreters: its own, those in PATH, and those of pyenv. It downloads one that is missing, if it can; a version that
cannot be had is named. Each has an environment of its own below `.venv-pythons`, which is kept. The tests with Spark and of the
console are left out: their libraries are not made for every version.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from rich.console import Console
from rich.table import Table

import pocketmq
from release.programs import ROOT, WHEELS, Failed, run, tool

FOLDER: Final = ROOT / ".venv-pythons"
VERSIONS: Final = ("3.11", "3.12", "3.13", "3.14", "3.14t")
TESTS: Final = (
    "tests/model",
    "tests/protocol",
    "tests/net",
    "tests/store",
    "tests/nameserver",
    "tests/broker",
    "tests/client",
    "tests/testing",
    "tests/test_embedded.py",
    "tests/test_files.py",
    "tests/test_clock.py",
    "tests/test_errors.py",
)
LIBRARIES: Final = (
    "pytest",
    "pytest-timeout",
    "hypothesis",
    "hatchling",
    "packaging",
    "orjson",
    "pydantic",
    "opentelemetry-sdk",
    "prometheus-client",
    "lz4",
    "zstandard",
    "uvloop",
    "testcontainers",
)
"""What these tests need."""


class Result(NamedTuple):
    version: str
    found: str
    summary: str
    failed: bool


def interpreter(version: str) -> str | None:
    """The path of an interpreter; None if there is none and none can be downloaded."""
    environ = dict(os.environ)
    kept = sorted(Path(environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob("versions/*/bin"))
    environ["PATH"] = os.pathsep.join([environ.get("PATH", ""), *map(str, kept)])
    find = [tool("uv"), "python", "find", "--no-project", "--system", version]
    for attempt in (find, [tool("uv"), "python", "install", "--quiet", version], find):
        try:
            told = run(attempt, folder=Path("/"), environ=environ)
        except Failed:
            continue
        if attempt is find:
            return told.splitlines()[0].strip()
    return None


def environment(version: str, found: str) -> Path:
    python = FOLDER / version / "bin" / "python"
    if not python.exists():
        run([tool("uv"), "venv", "--quiet", "--python", found, FOLDER / version])
    install = [
        tool("uv"),
        "pip",
        "install",
        "--quiet",
        f"--python={python}",
        f"--constraint={ROOT / 'constraints.txt'}",
    ]
    run([*install, *LIBRARIES], timeout_s=1800)
    again = ["--reinstall-package=pocketmq", f"--find-links={WHEELS}"]
    run([*install, *again, f"pocketmq=={pocketmq.__version__}"])
    return python


def tested(version: str, given: Sequence[str]) -> Result:
    found = interpreter(version)
    if found is None:
        return Result(version, "none", "not run: uv neither finds nor can download this Python", failed=False)
    python = environment(version, found)
    code = "import sys, pocketmq.compiled as c; print(sys.version.split()[0], c.why_pure() or 'with the C twins')"
    kind = run([python, "-c", code], folder=FOLDER).strip()
    command = [str(python), "-m", "pytest", "--quiet", "-p", "no:cacheprovider", *(given or TESTS)]
    last = ""
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            last = line.strip() or last
    return Result(version, kind, last, failed=process.returncode != 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("versions", nargs="*", choices=[*VERSIONS, []], help="such as 3.12; all by default")
    words = sys.argv[1:]
    at = words.index("--") if "--" in words else len(words)
    arguments, given = parser.parse_args(words[:at]), words[at + 1 :]
    results = []
    for version in arguments.versions or VERSIONS:
        Console().rule(f"Python {version}")
        results.append(tested(version, given))
    table = Table("version", "Python", "tests", "result")
    for one in results:
        state = "not run" if one.found == "none" else "failed" if one.failed else "passed"
        table.add_row(one.version, one.found, one.summary, state)
    Console().print(table)
    return int(any(one.failed for one in results))


if __name__ == "__main__":
    sys.exit(main())
