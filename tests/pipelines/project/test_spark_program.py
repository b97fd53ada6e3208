"""Spark's program in a process: after any kind of end, no process that it started runs."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from uuid import uuid4

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from tests.spark_fixtures import use_java

from pocketmq.files import DiskFiles
from pocketmq.pipelines.project import spark_program
from pocketmq.pipelines.project.running import install_command, make_project
from pocketmq.pipelines.project.spark_program import SparkProgram

MARK = "WHO_STARTED_IT"
DEADLINE_S = 120

PARENT = """
import os, signal, subprocess, sys, time
child = "import os, sys, time; os.setpgid(0, 0); print('ready', flush=True);"
if "stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child += "time.sleep(600)"
else:
    child += "sys.stdin.read()"
started = subprocess.Popen([sys.executable, "-c", child], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
started.stdout.readline()
print("they run", flush=True)
if "ends" not in sys.argv:
    time.sleep(600)
os._exit(5)
"""
"""As Spark: a process with one of another group, which ends when its input does, or does not."""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are looked for in /proc")


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A variable of all processes that this test starts. Remaining ones are killed."""
    value = uuid4().hex
    monkeypatch.setenv(MARK, value)
    yield value
    for pid in living(value):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def living(mark: str) -> list[int]:
    """The processes that this test has started, except itself. A process that has ended has no environment."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and f"{MARK}={mark}".encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid()]


def until(happens: Callable[[], object], what: str) -> None:
    deadline = monotonic() + DEADLINE_S
    while not happens():
        assert monotonic() < deadline, what
        sleep(0.05)


def stand_in(folder: Path, *words: str) -> SparkProgram:
    return SparkProgram([sys.executable, "-c", PARENT, *words], folder, dict(os.environ))


def read(program: SparkProgram, at_line: Callable[[], object]) -> None:
    with program:
        for line in program.lines():
            assert line == "they run"
            at_line()


def heard(number: signal.Signals) -> object:
    """The handler of a signal, which is not ignored from now on. `nohup` has SIGHUP ignored, also by the tests."""
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)
    return signal.getsignal(number)


def fail() -> None:
    raise ZeroDivisionError


def test_output_lines_are_passed_one_by_one_followed_by_the_exit_status(tmp_path: Path, mark: str) -> None:
    with stand_in(tmp_path, "ends") as program:
        lines = [*program.lines()]

    assert (lines, program.code) == (["they run"], 5)
    assert living(mark) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("words", [(), ("stubborn",)], ids=["soon", "stubborn"])
def test_a_signal_ends_all_processes(
    words: tuple[str, ...], number: signal.Signals, tmp_path: Path, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_program, "GRACE_S", 0.3)
    before = heard(number)
    seen: list[int] = []

    def at_line() -> None:
        seen.extend(living(mark))
        signal.raise_signal(number)

    with pytest.raises(KeyboardInterrupt):
        read(stand_in(tmp_path, *words), at_line)

    assert (len(seen), living(mark)) == (2, [])
    assert signal.getsignal(number) is before


def test_a_second_signal_kills_all_processes_at_once(tmp_path: Path, mark: str) -> None:
    began = monotonic()

    def twice() -> None:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)

    with pytest.raises(KeyboardInterrupt):
        read(stand_in(tmp_path, "stubborn"), twice)

    assert living(mark) == []
    assert monotonic() - began < spark_program.GRACE_S


def test_an_ignored_signal_stays_ignored(tmp_path: Path, mark: str) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        program = stand_in(tmp_path, "ends")
        read(program, lambda: signal.raise_signal(signal.SIGHUP))
    finally:
        signal.signal(signal.SIGHUP, before)

    assert program.code == 5


@pytest.mark.parametrize("words", [(), ("stubborn",)], ids=["soon", "stubborn"])
def test_leaving_early_ends_all_processes(
    words: tuple[str, ...], tmp_path: Path, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_program, "GRACE_S", 0.3)

    with pytest.raises(ZeroDivisionError):
        read(stand_in(tmp_path, *words), fail)

    assert living(mark) == []


def test_a_run_that_gets_sigterm_leaves_no_process_of_spark(tmp_path: Path, mark: str) -> None:
    use_java()
    if install := install_command():
        pytest.skip(install)
    make_project("shop", tmp_path, DiskFiles())
    with subprocess.Popen(
        [sys.executable, "-m", "pocketmq", "pipeline", "run", "--broker", "--verbose"],
        cwd=tmp_path / "shop",
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "is RUNNING" in line:
                break
        until(lambda: len(living(mark)) > 5, "two of Java, a driver, a worker and its parent, besides the command")

        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=DEADLINE_S)

    assert living(mark) == []
    assert (process.returncode, said.splitlines()[-1]) == (130, "pocketmq: interrupted")
