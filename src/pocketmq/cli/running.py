"""Programs that run until they are told to stop: by ctrl-C or SIGTERM they end well, and by a later one of these at once.

    one ── ends well ──────────────────────────────────────►
         └── SAME_WISH_S: more of them are the same wish ──┴── one more ends it at once

Who starts a program for somebody often passes ctrl-C on that the terminal has sent it already: `timeout`, foreman and others.
"""

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from pocketmq.clock import SystemClock
from pocketmq.memory import SERVER, keep_freed
from pocketmq.metrics.log_lines import log_formatter
from pocketmq.net.loops import QUIET_S, LoopFailures, new_loop

P = TypeVar("P")

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
SAME_WISH_S = 1.0


def log_to_stderr(form: str = "text", who: str = "") -> None:
    """Say on the error stream what happens, and who says it; the output stream is for results."""
    handler = logging.StreamHandler()
    handler.setFormatter(log_formatter(form, who))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def run_until_stopped(
    program: AbstractAsyncContextManager[P],
    on_ready: Callable[[P], None],
    until: Callable[[P], Coroutine[Any, Any, object]] | None = None,
) -> None:
    """Start `program`, tell `on_ready`, and stop it when a signal asks for it, or when `until` returns or fails."""
    keep_freed(SERVER, os.environ)
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(_run(program, on_ready, until))


async def _run(
    program: AbstractAsyncContextManager[P],
    on_ready: Callable[[P], None],
    until: Callable[[P], Coroutine[Any, Any, object]] | None,
) -> None:
    loop = asyncio.get_running_loop()
    told_to_stop = asyncio.Event()

    def stop() -> None:
        if not told_to_stop.is_set():
            told_to_stop.set()
            loop.call_later(SAME_WISH_S, give_back_signals)

    def give_back_signals() -> None:
        for number in STOP_SIGNALS:
            loop.remove_signal_handler(number)

    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, stop)
    failures = LoopFailures(SystemClock(), stop)
    loop.set_exception_handler(failures)
    watching = asyncio.ensure_future(_watch(failures))
    try:
        async with program as running:
            on_ready(running)
            await _first_of(told_to_stop.wait(), None if until is None else until(running))
    finally:
        watching.cancel()
        # A closed loop of uvloop would go on swallowing them.
        give_back_signals()


async def _watch(failures: LoopFailures) -> None:
    while True:
        await asyncio.sleep(QUIET_S)
        failures.tick()


async def _first_of(signalled: Coroutine[Any, Any, object], other: Coroutine[Any, Any, object] | None) -> None:
    """Wait for either. What `other` raises is raised."""
    tasks = [asyncio.ensure_future(waited_for) for waited_for in (signalled, other) if waited_for is not None]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
