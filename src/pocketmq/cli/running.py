"""Programs that run until they are told to stop: by ctrl-C or SIGTERM they end well, a second one of these ends them at once."""

import asyncio
import logging
import signal
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

from pocketmq.net.loops import new_loop

P = TypeVar("P")

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def log_to_stderr() -> None:
    """Say on the error stream what happens; the output stream is for results."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)-7s %(name)s: %(message)s")


def run_until_stopped(program: AbstractAsyncContextManager[P], on_ready: Callable[[P], None]) -> None:
    """Start `program`, tell `on_ready`, and stop it when a signal asks for it."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(_run(program, on_ready))


async def _run(program: AbstractAsyncContextManager[P], on_ready: Callable[[P], None]) -> None:
    loop = asyncio.get_running_loop()
    told_to_stop = asyncio.Event()

    def stop() -> None:
        told_to_stop.set()
        give_back_signals()

    def give_back_signals() -> None:
        for number in STOP_SIGNALS:
            loop.remove_signal_handler(number)

    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, stop)
    try:
        async with program as running:
            on_ready(running)
            await told_to_stop.wait()
    finally:
        # A closed loop of uvloop would go on swallowing them.
        give_back_signals()
