"""The benchmark of ready pipelines: its counts, and what it refuses."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from bench.pipelines.__main__ import main
from bench.pipelines.processes import costs_below


def test_a_process_is_measured_with_its_children() -> None:
    busy = "import sys; sum(range(1_000_000)); print('ready', flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", busy], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()

        costs = {cost.pid: cost for cost in costs_below(os.getpid())}
        child.communicate()

    assert {os.getpid(), child.pid} <= costs.keys()
    assert costs[child.pid].peak_bytes > 1_000_000
    assert costs[os.getpid()].cpu_s > 0


def test_an_unknown_pipeline_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["archvie"])

    assert (
        "there is no pipeline archvie here: archive, backfill, replay, mirror, quality, trace"
        in capsys.readouterr().err
    )
