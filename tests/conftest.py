"""What all tests share: how Hypothesis runs, one Spark session for the connector, the pipelines and the demo, and the list of
passed tests from which an ended run continues.
"""

import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

pytest_plugins = ("tests.spark_fixtures", "tests.twins")

# A busy machine makes any single example slow now and then; that says nothing about the code.
settings.register_profile("pocketmq", deadline=None, print_blob=True)
settings.register_profile("thorough", parent=settings.get_profile("pocketmq"), max_examples=500)
settings.register_profile("short", parent=settings.get_profile("pocketmq"), max_examples=10)
settings.load_profile("pocketmq")

# A shell that starts the tests in the background lets them ignore SIGINT, and every program that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

PASSED_FILE = os.environ.pop("POCKETMQ_PASSED_TESTS", None)  # not for programs that a test starts
"""Lists the passed tests, one a line, which do not run again: `python -m tests` continues after a test that stands still."""

_failed: set[str] = set()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        _failed.add(report.nodeid)
    if PASSED_FILE and report.when == "teardown" and report.nodeid not in _failed:
        with Path(PASSED_FILE).open("a") as passed:
            passed.write(f"{report.nodeid}\n")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if PASSED_FILE and Path(PASSED_FILE).exists():
        passed = set(Path(PASSED_FILE).read_text().splitlines())
        again = [item for item in items if item.nodeid in passed]
        config.hook.pytest_deselected(items=again)
        items[:] = [item for item in items if item.nodeid not in passed]
