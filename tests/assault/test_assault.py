"""The fault injection works: a fault reaches the process, and a scene detects a broken guarantee."""

import errno
import subprocess
import sys
from pathlib import Path

import pytest
from tests.assault.__main__ import SCENES, play
from tests.assault.injector import Injector, unavailable
from tests.assault.stage import Broken, Stage
from tests.client.processes import processes

needs_injector = pytest.mark.skipif(unavailable() is not None, reason=unavailable() or "")


@pytest.fixture(scope="module")
def injector(tmp_path_factory: pytest.TempPathFactory) -> Injector:
    return Injector(tmp_path_factory.mktemp("injector"))


def run(injector: Injector, program: str, *args: object) -> str:
    command = [sys.executable, "-c", program, *map(str, args)]
    return subprocess.run(command, env=injector.environment, capture_output=True, text=True, check=False).stdout.strip()


WRITE = """
import os, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
for _ in range(3):
    try:
        print(os.pwrite(file, b"12345678", 0))
    except OSError as error:
        print(error.errno)
"""


@needs_injector
@pytest.mark.parametrize(
    ("action", "said"),
    [("fail", f"8 {errno.ENOSPC} 8"), ("half", f"8 {errno.ENOSPC} 8"), ("short", "8 4 8"), ("kill", "")],
)
def test_a_fault_affects_the_chosen_call_of_the_chosen_file(
    injector: Injector, tmp_path: Path, action: str, said: str
) -> None:
    with injector.fault("write", action, errno.ENOSPC, path="aim.log", skip=1, times=1) as fault:
        assert run(injector, WRITE, tmp_path / "other").split() == ["8", "8", "8"]
        assert fault.hits == 0

        assert run(injector, WRITE, tmp_path / "aim.log").split() == said.split()
        assert fault.hits == 1

    assert run(injector, WRITE, tmp_path / "aim.log").split() == ["8", "8", "8"]


SYNC = """
import os, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
os.fdatasync(file)
print("synced")
"""


@needs_injector
def test_a_stalled_call_continues_although_its_rule_is_used_for_another_fault(
    injector: Injector, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", SYNC, str(tmp_path / "aim.log")]
    with injector.fault("sync", "stall", 300, path="aim.log", times=1) as stall:
        child = subprocess.Popen(command, env=injector.environment, stdout=subprocess.PIPE, text=True)
        while not stall.hits:
            assert child.poll() is None
    with injector.fault("open", "fail", errno.EMFILE, path="aim.log"):
        said, _ = child.communicate()

    assert said == "synced\n"


@needs_injector
def test_a_clock_step_changes_only_the_wall_clock(injector: Injector) -> None:
    program = "import time; print(int(time.time()), int(time.monotonic()))"
    before = [int(word) for word in run(injector, program).split()]

    with injector.clock_step(3_600_000):
        ahead = [int(word) for word in run(injector, program).split()]

    assert 3_600 <= ahead[0] - before[0] < 3_660
    assert ahead[1] - before[1] < 60


@needs_injector
def test_an_acknowledged_message_that_was_never_handled_fails_the_scene(
    injector: Injector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.assault.stage.DRAIN_S", 0.2)
    with processes(tmp_path) as children:
        stage = Stage(tmp_path, children, injector, seed=1)
        stage.serve()
        with pytest.raises(Broken, match=r"1 of .* acknowledged messages were not handled"), stage.load() as load:
            load.acknowledged.add(-1)


@needs_injector
@pytest.mark.parametrize("part", ["write of commitlog is half done, then fails with EIO, 20 times", "poisoned flags"])
def test_the_server_keeps_its_guarantees_in_quick_scenes(injector: Injector, part: str) -> None:
    (scene,) = (name for name in SCENES if part in name)

    assert play(scene, 1, injector).broken == ""
