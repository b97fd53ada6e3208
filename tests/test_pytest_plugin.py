"""The fixtures, used by a test run of its own."""

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

USES_BOTH = """
from conformance.broker_line import BrokerLine
from pocketmq.net.address import Address

seen = []


def send(server):
    with BrokerLine(Address.parse(server.broker_address).port) as line:
        return line.send("T", 0, b"x", {}).queue_offset


def test_one(rocketmq, rocketmq_session):
    seen.extend([rocketmq.data, rocketmq_session.data])
    assert send(rocketmq) == 0
    assert send(rocketmq_session) == 0


def test_another(rocketmq, rocketmq_session):
    assert not seen[0].exists()
    assert send(rocketmq) == 0
    assert send(rocketmq_session) == 1
"""

USES_NONE = """
import sys


def test_nothing_of_the_broker_is_there():
    assert "pocketmq.pytest_plugin" in sys.modules
    assert not [name for name in sys.modules if name.startswith(("pocketmq.broker", "pocketmq.nameserver", "asyncio"))]
"""


def run_pytest(folder: Path, test: str, *args: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_it.py").write_text(test)
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "pytest", "-q", "-p", "pocketmq.pytest_plugin", *args],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_each_test_gets_its_own_server_and_a_session_one_shared_server(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, USES_BOTH)

    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_a_test_run_without_the_fixtures_imports_no_server(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, USES_NONE)

    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_the_fixtures_have_descriptions(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, "", "--fixtures")

    assert "rocketmq -- " in done.stdout
    assert "An empty name server and broker for one test" in done.stdout


def test_the_plugin_is_found_if_the_package_is_installed() -> None:
    found = importlib.metadata.entry_points(group="pytest11", name="pocketmq")

    assert [entry.value for entry in found] == ["pocketmq.pytest_plugin"]


@pytest.mark.parametrize("name", ["rocketmq", "rocketmq_session"])
def test_the_guide_describes_the_fixtures(name: str) -> None:
    assert f"`{name}`" in (ROOT / "docs" / "guides" / "testing.md").read_text("utf-8")


def test_the_test_of_the_guide_passes(tmp_path: Path) -> None:
    guide = (ROOT / "docs" / "guides" / "testing.md").read_text("utf-8")
    block = guide.partition("## A broker for a test")[2].partition("```python\n")[2].partition("```")[0]

    done = run_pytest(tmp_path, block)

    assert "1 passed" in done.stdout, done.stdout + done.stderr
