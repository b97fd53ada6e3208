"""Running a server in the foreground, and starting servers as child processes.

The first SIGINT or SIGTERM stops a server in order, a later one ends it at once:

    first signal ── stops in order ────────────────────────────────►
         └── SAME_STOP_S: further signals are ignored ──┴── the next signal ends the process

Programs such as `timeout` and foreman repeat a ctrl-C that the terminal has already sent to the whole process group.
"""

import asyncio
import logging
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from types import FrameType
from typing import Any, Self, TypeVar

import msgspec

from pocketmq import system
from pocketmq.clock import SystemClock
from pocketmq.errors import ProgramFailed
from pocketmq.memory import SERVER, keep_freed
from pocketmq.metrics.log_lines import log_formatter
from pocketmq.net import QUIET_S, LoopFailures, new_loop

P = TypeVar("P")

log = logging.getLogger("pocketmq.cli")

SAME_STOP_S = 1.0


def log_to_stderr(form: str = "text", name: str = "") -> None:
    """Log to stderr, with the name of this server in each line; stdout is for results."""
    handler = logging.StreamHandler()
    handler.setFormatter(log_formatter(form, name))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def run_until_stopped(
    program: AbstractAsyncContextManager[P],
    on_ready: Callable[[P], None],
    until: Callable[[P], Coroutine[Any, Any, object]] | None = None,
) -> None:
    """Start `program`, call `on_ready`, and stop it on a signal, or when `until` returns or fails."""
    keep_freed(SERVER, os.environ)
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(_run(program, on_ready, until))


async def _run(
    program: AbstractAsyncContextManager[P],
    on_ready: Callable[[P], None],
    until: Callable[[P], Coroutine[Any, Any, object]] | None,
) -> None:
    loop = asyncio.get_running_loop()
    stop_requested = asyncio.Event()

    def stop() -> None:
        failures.free_stop_reserve()  # also without a signal, if memory has been short for long
        if not stop_requested.is_set():
            stop_requested.set()
            loop.call_later(SAME_STOP_S, restore_signals)

    def restore_signals() -> None:
        for number in system.STOP_SIGNALS:
            system.remove_signal_handler(loop, number)

    failures = LoopFailures(SystemClock(), stop)
    for number in system.STOP_SIGNALS:
        system.add_signal_handler(loop, number, stop)
        _call_first(number, failures.free_stop_reserve)
    loop.set_exception_handler(failures)
    watching = asyncio.ensure_future(_watch(failures))
    try:
        async with program as running:
            on_ready(running)
            await _first_of(stop_requested.wait(), None if until is None else until(running))
    finally:
        watching.cancel()
        # a closed uvloop would still catch the signals
        restore_signals()


def _call_first(number: int, callback: Callable[[], None]) -> None:
    """Call `callback` before the loop's own handler, which needs memory and would otherwise lose the signal."""
    loop_handler = signal.getsignal(number)

    def handler(number: int, frame: FrameType | None) -> None:
        callback()
        if callable(loop_handler):
            loop_handler(number, frame)

    signal.signal(number, handler)
    system.restart_interrupted_calls(number)  # as asyncio does


async def _watch(failures: LoopFailures) -> None:
    while True:
        await asyncio.sleep(QUIET_S)
        failures.tick()


async def _first_of(signalled: Coroutine[Any, Any, object], other: Coroutine[Any, Any, object] | None) -> None:
    """Wait for either, and raise what `other` raises."""
    tasks = [asyncio.ensure_future(each) for each in (signalled, other) if each is not None]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class ChildProgram:
    """A PocketMQ program in a child process. `ready` is the JSON that it printed when it was ready.

    It stops when its stdin ends, so also when this process is killed.
    """

    def __init__(self, name: str, process: Process, ready: dict[str, Any]) -> None:
        self.name = name
        self.ready = ready
        self._process = process

    @classmethod
    async def start(cls, name: str, *arguments: str, environment: Mapping[str, str] | None = None) -> Self:
        # A new session: ctrl-C on the terminal goes to this process, which then stops its children.
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", *arguments, "--json", "--until-end-of-input"),
            env={**os.environ, **(environment or {})},
            stdin=PIPE,
            stdout=PIPE,
            start_new_session=True,
        )
        assert process.stdout is not None
        async with AsyncExitStack() as undo:
            undo.push_async_callback(_killed, process)
            line = await process.stdout.readline()
            undo.pop_all()
        if not line:
            raise ProgramFailed(f"{name} ended with exit code {await _ended(process)} before it was ready")
        return cls(name, process, msgspec.json.decode(line))

    async def wait(self) -> int:
        """Wait until it ends; its exit code."""
        return await self._process.wait()

    async def stop(self, within_s: float) -> int:
        """Send SIGTERM and wait until it ends; its exit code."""
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(within_s):
                return await _ended(self._process)
        except TimeoutError:
            log.error(
                "%s did not stop within %s s; killing it. Its store recovers at the next start", self.name, within_s
            )
            return await _killed(self._process)


async def _ended(process: Process) -> int:
    """The exit code, once the process has ended and its streams are closed."""
    await process.communicate()
    return await process.wait()


async def _killed(process: Process) -> int:
    if process.returncode is None:
        process.kill()
    return await _ended(process)
