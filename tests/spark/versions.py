"""The tests of the connector on every PySpark that it supports: `make spark-versions`.

python -m tests.spark.versions                     all versions, some minutes each
python -m tests.spark.versions 4.0 4.1             some
python -m tests.spark.versions 4.0 -- -k streams   with options of pytest

Each version has an environment of its own below `.venv-spark`, which is kept. PySpark is built from its source, which takes a
minute, once: pip keeps what it builds.
"""

import argparse
import os
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from rich.console import Console
from rich.table import Table

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / ".venv-spark"
PYSPARK: Final = {"4.0": "4.0.5", "4.1": "4.1.4", "4.2": "4.2.1", "4.3": "4.3.0"}
"""The newest patch of each version, as of the last change of constraints.txt."""
TESTS: Final = "tests/spark"


class Result(NamedTuple):
    version: str
    code: int
    summary: str


def environment(version: str) -> Path:
    """The Python of the environment for a version, created if it is missing or has other requirements."""
    folder = FOLDER / version
    python, stamp = folder / "bin" / "python", folder / ".installed"
    constraints = (ROOT / "constraints.txt").read_text("utf-8")
    wanted = f"{PYSPARK[version]}\n{(ROOT / 'pyproject.toml').read_text('utf-8')}{constraints}"
    if stamp.exists() and stamp.read_text("utf-8") == wanted:
        return python
    venv.create(folder, with_pip=True, clear=True)
    lines = [line for line in constraints.splitlines() if not line.startswith(("pyspark==", "py4j=="))]
    with TemporaryDirectory() as temporary:
        limits = Path(temporary, "constraints.txt")
        limits.write_text("\n".join([*lines, f"pyspark=={PYSPARK[version]}"]), "utf-8")
        pip = [
            str(python),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--constraint",
            str(limits),
        ]
        # The tools that build come first, pinned like the rest: hatchling for the project, setuptools for PySpark.
        subprocess.run([*pip, "hatchling", "setuptools"], check=True)
        subprocess.run([*pip, "--no-build-isolation", "--editable", f"{ROOT}[test]"], check=True)
    stamp.write_text(wanted, "utf-8")
    return python


def tested(version: str, given: Sequence[str]) -> Result:
    python = environment(version)
    # PySpark 4.0 and 4.1 leave their sockets to the garbage collector, which would fail the test that runs then.
    warnings = ["-W", "default::pytest.PytestUnraisableExceptionWarning"] if version in ("4.0", "4.1") else []
    command = [str(python), "-m", "pytest", "--quiet", "-p", "no:cacheprovider", *warnings, *(given or [TESTS])]
    environ = {name: text for name, text in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_HOME"))}
    with subprocess.Popen(command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        last = ""
        for line in process.stdout:
            print(line, end="", flush=True)  # noqa: T201
            last = line.strip() or last
    return Result(version, process.returncode, last)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("versions", nargs="*", choices=[*PYSPARK, []], help="such as 4.1; all by default")
    words = sys.argv[1:]
    at = words.index("--") if "--" in words else len(words)
    arguments, given = parser.parse_args(words[:at]), words[at + 1 :]
    results = []
    for version in arguments.versions or PYSPARK:
        Console().rule(f"PySpark {PYSPARK[version]}")
        results.append(tested(version, given))
    table = Table("PySpark", "tests", "result")
    for one in results:
        table.add_row(PYSPARK[one.version], one.summary, "passed" if one.code == 0 else f"failed ({one.code})")
    Console().print(table)
    return int(any(one.code for one in results))


if __name__ == "__main__":
    sys.exit(main())
