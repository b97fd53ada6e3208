"""Several brokers as processes: how they are started and ended, with programs that only pretend to be brokers."""

import asyncio
import sys
from pathlib import Path

import pytest

from pocketmq.cli.serve import BrokerPlan, BrokerProcesses, broker_name
from pocketmq.errors import ProgramFailed
from pocketmq.nameserver.settings import NameServerSettings

broker_processes = sys.modules["pocketmq.cli.serve"]  # `pocketmq.cli.serve` is the command

GOOD = """
print('{"name": "it"}', flush=True)
sys.stdin.read()
"""
BAD_AT_THE_END = """
signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
print('{"name": "it"}', flush=True)
sys.stdin.read()
"""
DEAF = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print('{"name": "it"}', flush=True)
while True:
    signal.pause()
"""
NEVER_READY = "sys.exit(7)"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the pretenders are: the broker of a name runs the file of that name."""
    chooser = tmp_path / "python"
    chooser.write_text(
        f"#!{sys.executable}\nimport signal, sys\nfrom pathlib import Path\n"
        f"name = sys.argv[sys.argv.index('--name') + 1]\nexec((Path({str(tmp_path)!r}) / name).read_text())\n"
    )
    chooser.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(chooser))
    return tmp_path


def brokers(folder: Path, **texts: str) -> BrokerProcesses:
    for name, text in texts.items():
        (folder / name).write_text(text)
    return BrokerProcesses(NameServerSettings(port=0), [BrokerPlan(name, folder / name, []) for name in texts])


def test_a_process_that_exits_with_an_error_is_named(folder: Path) -> None:
    async def main() -> None:
        async with brokers(folder, a=BAD_AT_THE_END, b=BAD_AT_THE_END):
            pass

    with pytest.raises(ProgramFailed, match="a exited with code 5; b exited with code 5"):
        asyncio.run(main())


def test_a_process_that_does_not_stop_is_killed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with brokers(folder, a=DEAF) as running:
            assert running.brokers[0].ready == {"name": "it"}

    monkeypatch.setattr(broker_processes, "STOP_S", 0.05)
    with pytest.raises(ProgramFailed, match="a exited with code -9"):
        asyncio.run(main())
    assert "a did not stop within 0.05 s; killing it" in caplog.text


def test_if_a_process_is_never_ready_the_others_are_stopped(folder: Path) -> None:
    running = brokers(folder, a=GOOD, b=NEVER_READY)

    async def main() -> None:
        async with running:
            raise AssertionError("it must not start")

    with pytest.raises(ProgramFailed, match="b ended with exit code 7 before it was ready"):
        asyncio.run(main())
    assert [broker.name for broker in running.brokers] == ["a"]


def test_a_cancelled_start_leaves_no_process(folder: Path) -> None:
    slow = "(Path(__file__).parent / 'started').touch()\nsys.stdin.read()"

    async def main() -> None:
        start = asyncio.create_task(brokers(folder, a=slow).__aenter__())
        async with asyncio.timeout(20):
            while not (folder / "started").exists():  # noqa: ASYNC110 another process makes it
                await asyncio.sleep(0.01)
        start.cancel()
        with pytest.raises(asyncio.CancelledError):
            await start

    asyncio.run(main())


def test_brokers_are_named_by_letters() -> None:
    assert [broker_name(number) for number in (0, 1, 25)] == ["broker-a", "broker-b", "broker-z"]
