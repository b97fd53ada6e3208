"""Shared by the tests of running programs: start one in a process of its own, and wait until it is ready."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ACCOUNTS = """
[[account]]
access_key = "operator"
secret_env = "OPERATOR_SECRET"
admin = true
"""
SECRET = "the secret of operators"
"""Of the account above: `start(…, OPERATOR_SECRET=SECRET)`."""

SRC = Path(__file__).parents[2] / "src"
DEADLINE_S = 60

Program = subprocess.Popen[str]
Start = Callable[..., Program]


@contextmanager
def programs(folder: Path, *command: str) -> Iterator[Start]:
    """Starts `pocketmq command …` in `folder`; programs that still run at the end are killed."""
    started: list[Program] = []

    def start(*args: object, **variables: str) -> Program:
        process = subprocess.Popen(
            [sys.executable, "-m", "pocketmq", *command, *map(str, args)],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(SRC), **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    try:
        yield start
    finally:
        for process in started:
            process.kill()
            process.communicate()


def ready(process: Program) -> dict[str, Any]:
    """The content of its JSON line."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.stderr and process.stderr.read()
    told: dict[str, Any] = json.loads(line)
    return told


def ended(process: Program) -> str:
    """Its output on the error stream until it ended."""
    _, log = process.communicate(timeout=DEADLINE_S)
    assert "Traceback" not in log
    return log
