"""Programs that run until a signal or a request stops them."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext

import pytest

from pocketmq.cli import programs as running
from pocketmq.cli.programs import run_until_stopped
from pocketmq.errors import ProgramFailed
from pocketmq.net.loops import LoopFailures, end_of_input
from pocketmq.system import STOP_SIGNALS


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_a_program_cleanly(number: signal.Signals) -> None:
    happened: list[str] = []

    @asynccontextmanager
    async def program() -> AsyncIterator[str]:
        happened.append("started")
        yield "it"
        happened.append("stopped")

    def on_ready(running: str) -> None:
        happened.append(f"{running} is ready")
        os.kill(os.getpid(), number)

    run_until_stopped(program(), on_ready)

    assert happened == ["started", "it is ready", "stopped"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_handler_frees_memory_before_the_loop_runs(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[str] = []
    monkeypatch.setattr(LoopFailures, "free_stop_reserve", lambda _: happened.append("freed"))

    def on_ready(_: None) -> None:
        os.kill(os.getpid(), number)
        happened.append("went on")

    run_until_stopped(nullcontext(), on_ready)

    assert happened[:2] == ["freed", "went on"]


def test_a_second_signal_stops_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "SAME_STOP_S", 0.0)

    @asynccontextmanager
    async def stubborn() -> AsyncIterator[None]:
        yield
        async with asyncio.timeout(30):
            while signal.getsignal(signal.SIGINT) is not signal.default_int_handler:  # noqa: ASYNC110 there is no event for it
                await asyncio.sleep(0)
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("the second signal came too late")

    with pytest.raises(KeyboardInterrupt):
        run_until_stopped(stubborn(), lambda _: os.kill(os.getpid(), signal.SIGINT))


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_signals_in_quick_succession_count_as_one(second: signal.Signals) -> None:
    happened: list[str] = []

    @asynccontextmanager
    async def program() -> AsyncIterator[None]:
        yield
        os.kill(os.getpid(), second)
        await asyncio.sleep(0)
        happened.append("stopped")

    run_until_stopped(program(), lambda _: os.kill(os.getpid(), signal.SIGINT))

    assert happened == ["stopped"]


def test_a_program_that_cannot_start_prints_the_reason() -> None:
    class Broken(nullcontext[None]):
        async def __aenter__(self) -> None:
            raise OSError("no")

    with pytest.raises(OSError, match="no"):
        run_until_stopped(Broken(), lambda _: None)


def test_a_program_that_cannot_start_restores_the_signal_handlers() -> None:
    class Broken(nullcontext[None]):
        async def __aenter__(self) -> None:
            raise OSError("no")

    before = [signal.getsignal(number) for number in STOP_SIGNALS]

    with pytest.raises(OSError, match="no"):
        run_until_stopped(Broken(), lambda _: None)

    assert [signal.getsignal(number) for number in STOP_SIGNALS] == before


def test_a_program_stops_when_its_main_task_ends() -> None:
    happened: list[str] = []

    @asynccontextmanager
    async def program() -> AsyncIterator[str]:
        yield "it"
        happened.append("stopped")

    async def over(running: str) -> None:
        happened.append(f"{running} is over")

    run_until_stopped(program(), lambda _: None, over)

    assert happened == ["it is over", "stopped"]


def test_an_error_of_the_main_task_is_raised_after_the_stop() -> None:
    happened: list[str] = []

    class Program(nullcontext[None]):
        async def __aexit__(self, *exc: object) -> None:
            happened.append("stopped")

    async def broken(_: None) -> None:
        raise ProgramFailed("a part of it is gone")

    with pytest.raises(ProgramFailed, match="a part of it is gone"):
        run_until_stopped(Program(), lambda _: None, broken)

    assert happened == ["stopped"]


def test_a_signal_is_handled_without_delay() -> None:
    async def never(_: None) -> None:
        await asyncio.Event().wait()

    run_until_stopped(nullcontext(), lambda _: os.kill(os.getpid(), signal.SIGTERM), never)


def test_the_end_of_stdin_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading) as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        os.write(writing, b"what is said is not listened to\n")

        run_until_stopped(nullcontext(), lambda _: os.close(writing), lambda _: end_of_input())
