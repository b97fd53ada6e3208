"""The resources that a process uses, as Linux reports them."""

import os
import sys
from pathlib import Path

import pytest
from tests.cli.program import Program

ON_LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="what a process takes is read from /proc")


def cpu_s(process: Program) -> float:
    """Processor time that it has used, its own and the system's for it."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def anonymous_mib(process: Program) -> float:
    """Memory that is its own: all but files that it has mapped."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024
