"""The event loop of a program: uvloop if installed, else asyncio's. Also memory failures, periodic tasks and cooperative loops.

A callback that fails with MemoryError may run again at once, forever: uvloop needs 64 KB to read a signal, and retries when it cannot
allocate them. `LoopFailures` therefore reserves memory and frees it then. It logs once a second, and stops the program if the failures
last. A second reserve is for the stop itself.

    MemoryError ── reserve freed ── for PATIENCE_S ──► stop as after SIGTERM ── for PATIENCE_S again ──► exit at once
                                 └─ a second without one ──► reserve allocated again

`Repeating` runs a function periodically, one run at a time. A failed run is logged once until a run succeeds.

`end_of_input` returns when the standard input ends, which means that the parent process is gone.

`Steps` splits a long computation, so that other tasks of the loop run every few milliseconds.
"""

import asyncio
import logging
import mmap
import os
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from pocketmq.clock import Clock

try:
    import uvloop
except ImportError:
    uvloop = None  # type: ignore[assignment]


log = logging.getLogger("pocketmq.net")

RESERVE_BYTES: Final = 4 * 1024 * 1024
STOP_RESERVE_BYTES: Final = 16 * 1024 * 1024
"""Address space only; the pages are never touched."""
PATIENCE_S: Final = 10.0
QUIET_S: Final = 1.0
PAUSE_S: Final = 0.01
"""How long the loop sleeps after a MemoryError."""
EXIT_CODE: Final = 70
"""EX_SOFTWARE of sysexits.h."""


def new_loop() -> asyncio.AbstractEventLoop:
    """For `asyncio.Runner(loop_factory=new_loop)`."""
    return asyncio.new_event_loop() if uvloop is None else uvloop.new_event_loop()


class LoopFailures:
    """The exception handler of a loop. `stop` shuts the program down; `end` exits at once."""

    def __init__(
        self,
        clock: Clock,
        stop: Callable[[], None],
        end: Callable[[int], object] = os._exit,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self._clock = clock
        self._stop = stop
        self._end = end
        self._pause = pause
        self._reserve: bytes | None = bytes(RESERVE_BYTES)
        self._stop_reserve = mmap.mmap(-1, STOP_RESERVE_BYTES)  # a mapping, because malloc may keep freed bytes
        self._since = self._last = self._logged = float("-inf")
        self._stopping = False
        self.count = 0
        """Callbacks that failed with MemoryError."""

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not isinstance(context.get("exception"), MemoryError):
            loop.default_exception_handler(context)
            return
        self.count += 1
        now = self._clock.monotonic()
        if now - self._last > QUIET_S:
            self._since = now
        self._last = now
        self._reserve = None
        if now - self._logged >= QUIET_S:
            self._logged = now
            log.error(
                "out of memory: %d callbacks of the event loop failed so far; closing connections that need memory",
                self.count,
            )
        if now - self._since >= PATIENCE_S * (2 if self._stopping else 1):
            self._give_up()
        self._pause(PAUSE_S)

    def _give_up(self) -> None:
        if self._stopping:
            log.critical(
                "out of memory for %g s: exiting at once; acknowledged messages are in the commit log", 2 * PATIENCE_S
            )
            self._end(EXIT_CODE)
        else:
            self._stopping = True
            log.critical("out of memory for %g s: shutting down", PATIENCE_S)
            self._stop()

    def free_stop_reserve(self) -> None:
        """Free the second reserve, because saving state at the stop needs memory."""
        self._stop_reserve.close()

    def tick(self) -> None:
        """Called about once a second: allocate the reserve again after a second without failures."""
        if self._reserve is None and self._clock.monotonic() - self._last > QUIET_S:
            try:
                self._reserve = bytes(RESERVE_BYTES)
            except MemoryError:
                return
            log.warning("memory is available again")


class Repeating:
    """Runs `work`, a function or a coroutine function, `interval_s` after the end of its last run.

    The interval may be a function. The first run is `first_s` after the start, by default `interval_s`. Failures go to `log`.
    """

    def __init__(
        self,
        what: str,
        interval_s: float | Callable[[], float],
        work: Callable[[], Awaitable[None] | None],
        log: logging.Logger,
        *,
        first_s: float | None = None,
    ) -> None:
        self._what = what
        self._work = work
        self._log = log
        self._interval = interval_s if callable(interval_s) else lambda: interval_s
        self._first_s = self.interval_s if first_s is None else first_s
        self._failure = ""
        self._task: asyncio.Task[None] | None = None

    @property
    def interval_s(self) -> float:
        return self._interval()

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._repeat(), name=f"pocketmq {self._what}")

    async def stop(self) -> None:
        """Cancel, and wait for a current run to end. Idempotent, also before the start."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.wait((self._task,))
        self._task = None

    async def run_once(self) -> None:
        """Run now, and log a failure."""
        try:
            outcome = self._work()
            if outcome is not None:
                await outcome
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"
            if failure != self._failure:
                self._failure = failure
                self._log.error("%s failed; next attempt in %s s", self._what, self.interval_s, exc_info=error)
        else:
            if self._failure:
                self._failure = ""
                self._log.info("%s succeeded again", self._what)

    async def _repeat(self) -> None:
        await asyncio.sleep(self._first_s)
        while True:
            await self.run_once()
            await asyncio.sleep(self.interval_s)


async def end_of_input() -> None:
    """Return when the standard input ends: the parent process has exited or closed it."""
    ended = asyncio.Event()

    class Input(asyncio.Protocol):
        def connection_lost(self, reason: Exception | None) -> None:
            ended.set()

    transport, _ = await asyncio.get_running_loop().connect_read_pipe(Input, sys.stdin)
    try:
        await ended.wait()
    finally:
        transport.close()


STEP_SECONDS: Final = 0.003


class Steps:
    """For one computation, which begins with the constructor."""

    __slots__ = ("_loop", "_since")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._since = self._loop.time()

    async def pause(self) -> None:
        """Await this often. It returns at once unless the current step has lasted `STEP_SECONDS`."""
        if self._loop.time() - self._since >= STEP_SECONDS:
            await asyncio.sleep(0)
            self._since = self._loop.time()
