"""The tests of the connector, run with a broker of Apache: the environment variable that names it is all that differs.

Tests that need a broker with settings of their own (access keys, TLS, a retention of no time) start PocketMQ's, here as well.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from conformance.apache import ROOT, ApacheBroker
from conformance.report import Scenario, Trial

BROKER_NAME: Final = "broker-a"
SETTINGS: Final = {"enablePropertyFilter": "true", "waitTimeMillsInSendQueue": 10_000}
RUN_S: Final = 1800

FILES: Final = {
    "on Spark: batches and streams, read and written": "test_source",
    "on Spark: two queries on one topic, and clean stops": "test_streams",
    "on Spark: rows once after a worker was killed": "test_restarts",
    "streaming reads: offsets, limits, added queues, recreated topics": "test_stream_reader",
    "writes: every moment at which a task may fail": "test_writer",
    "requests to brokers": "test_metadata",
    "filters: what brokers and tasks select, compared with Spark": "test_exactness",
    "the offsets at which a repeated batch searches for its rows": "test_sink_offsets",
    "progress as a consumer group": "test_progress_listener",
}


def _run(trial: Trial) -> None:
    with ApacheBroker(trial.version, trial.folder / "broker", SETTINGS, trial.say) as broker:
        failed = _failures(broker.name_server, trial.folder / "report.xml")
    for check, name in FILES.items():
        trial.expect(check, failed.get(name, ["no test of it was run"]))


def _failures(name_server: str, report: Path) -> Mapping[str, list[str]]:
    """What failed, by file; files of which something was run and nothing failed have an empty list."""
    files = [str(path) for name in FILES.values() for path in sorted((ROOT / "tests" / "spark").rglob(f"{name}.py"))]
    command = [sys.executable, "-m", "pytest", "--quiet", f"--junitxml={report}", *files]
    environ = {**os.environ, "SPARK_TEST_BROKER": f"{name_server}/{BROKER_NAME}"}
    subprocess.run(command, cwd=ROOT, env=environ, check=False, timeout=RUN_S, stdout=subprocess.DEVNULL)
    found: dict[str, list[str]] = {}
    for case in ET.parse(report).iter("testcase"):
        flaws = found.setdefault(case.get("classname", "").rpartition(".")[2], [])
        for kind in ("failure", "error", "skipped"):
            if (said := case.find(kind)) is not None:
                flaws.append(f"{case.get('name')}: {said.get('message', kind)}")
    return found


SCENARIOS: Final = (Scenario("the connector", tuple(FILES), _run),)
