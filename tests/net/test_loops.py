"""The loop that programs run on."""

import asyncio
import contextlib
import os
import sys
from pathlib import Path

import pytest
import uvloop

from pocketmq.net import loops
from pocketmq.net.loops import STOP_RESERVE_BYTES, LoopFailures
from pocketmq.testing import FakeClock


def test_uvloop_is_used_when_it_is_installed() -> None:
    loop = loops.new_loop()
    loop.close()

    assert isinstance(loop, uvloop.Loop)


def test_without_uvloop_asyncio_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "uvloop", None)

    loop = loops.new_loop()
    loop.close()

    assert isinstance(loop, asyncio.SelectorEventLoop)


# without memory


class Ending:
    """The reactions of a program without memory."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.happened: list[str] = []
        self.failures = LoopFailures(
            self.clock,
            lambda: self.happened.append("stopped"),
            lambda code: self.happened.append(f"ended {code}"),
            self.rest,
        )

    def rest(self, seconds: float) -> None:
        self.clock.advance_ms(int(seconds * 1000))

    def fail(self, seconds: float) -> None:
        """Callbacks fail at once, again and again, for this time."""
        stop_at = self.clock.monotonic() + seconds
        with contextlib.closing(asyncio.new_event_loop()) as loop:
            while self.clock.monotonic() < stop_at:
                self.failures(loop, {"exception": MemoryError()})


def test_callbacks_without_memory_are_logged_once_a_second(caplog: pytest.LogCaptureFixture) -> None:
    ending = Ending()

    ending.fail(5)

    assert ending.failures.count == 500
    assert 4 <= caplog.text.count("out of memory") <= 6
    assert ending.happened == []


def test_a_program_without_memory_for_long_stops_and_then_exits() -> None:
    ending = Ending()

    ending.fail(10.1)
    assert ending.happened == ["stopped"]
    ending.fail(10.1)

    assert ending.happened[:2] == ["stopped", "ended 70"]


def test_a_short_memory_shortage_has_no_consequences(caplog: pytest.LogCaptureFixture) -> None:
    ending = Ending()
    for _ in range(3):
        ending.fail(6)
        ending.rest(2)
        ending.failures.tick()

    assert ending.happened == []
    assert caplog.text.count("memory is available again") == 3


@pytest.mark.skipif(sys.platform != "linux", reason="address space is read from /proc")
def test_stopping_uses_reserved_memory() -> None:
    failures = Ending().failures
    before = address_space()

    failures.free_stop_reserve()

    assert before - address_space() >= STOP_RESERVE_BYTES


def address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGESIZE")


def test_other_failures_are_handled_by_the_loop(caplog: pytest.LogCaptureFixture) -> None:
    with contextlib.closing(asyncio.new_event_loop()) as loop:
        Ending().failures(loop, {"message": "oh", "exception": ValueError("no")})

    assert "oh" in caplog.text
