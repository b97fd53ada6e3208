"""Programs that run until they are told to stop."""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext

import pytest

from pocketmq.cli.running import STOP_SIGNALS, run_until_stopped


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_program_well(number: signal.Signals) -> None:
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


def test_a_second_signal_does_not_wait() -> None:
    @asynccontextmanager
    async def stubborn() -> AsyncIterator[None]:
        yield
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("the second signal came too late")

    with pytest.raises(KeyboardInterrupt):
        run_until_stopped(stubborn(), lambda _: os.kill(os.getpid(), signal.SIGINT))


def test_a_program_that_cannot_start_says_why() -> None:
    class Broken(nullcontext[None]):
        async def __aenter__(self) -> None:
            raise OSError("no")

    with pytest.raises(OSError, match="no"):
        run_until_stopped(Broken(), lambda _: None)


def test_a_program_that_cannot_start_gives_the_signals_back() -> None:
    class Broken(nullcontext[None]):
        async def __aenter__(self) -> None:
            raise OSError("no")

    before = [signal.getsignal(number) for number in STOP_SIGNALS]

    with pytest.raises(OSError, match="no"):
        run_until_stopped(Broken(), lambda _: None)

    assert [signal.getsignal(number) for number in STOP_SIGNALS] == before
