"""The event loop that programs run on: uvloop's when it is installed, asyncio's otherwise; and what it does without memory.

A callback that fails for want of memory may be called again at once, for ever: uvloop needs 64 KB to learn of a signal, and asks again
when it does not get them. So a loop has some memory in reserve, which is freed when that happens. The log has a line a second, and
when it lasts the program ends. More memory is in reserve for the stop: what is served takes all that there was of the first.

    MemoryError ── reserve freed ── for PATIENCE_S ──► stopped as by SIGTERM ── for PATIENCE_S again ──► ended at once
                                 └─ a quiet second ──► reserve taken again

Work that comes round: every so often, one run at a time, until it is stopped.

A run that fails is logged once, until a run succeeds again; the next one comes at its time all the same.

Noticing that whoever started this program has gone: its input stream ends then.

Long answers in short steps: whoever makes one lets everybody else have a turn every few milliseconds.
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
"""Address space only: it is never touched."""
PATIENCE_S: Final = 10.0
QUIET_S: Final = 1.0
PAUSE_S: Final = 0.01
"""For which a loop rests after a callback that had no memory."""
EXIT_CODE: Final = 70
"""EX_SOFTWARE: the program could not go on."""


def new_loop() -> asyncio.AbstractEventLoop:
    """For `asyncio.Runner(loop_factory=new_loop)`."""
    return asyncio.new_event_loop() if uvloop is None else uvloop.new_event_loop()


class LoopFailures:
    """The exception handler of a loop. `stop` ends the program well; `end` ends it at once."""

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
        self._stop_reserve = mmap.mmap(-1, STOP_RESERVE_BYTES)  # of bytes, malloc may keep what was freed
        self._since = self._last = self._logged = float("-inf")
        self._stopping = False
        self.count = 0
        """Callbacks that failed for want of memory."""

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
                "out of memory: %d callbacks of the event loop failed so far; connections that need memory are closed",
                self.count,
            )
        if now - self._since >= PATIENCE_S * (2 if self._stopping else 1):
            self._give_up()
        self._pause(PAUSE_S)

    def _give_up(self) -> None:
        if self._stopping:
            log.critical(
                "out of memory for %g s: the process ends at once; what was acknowledged is in the log", 2 * PATIENCE_S
            )
            self._end(EXIT_CODE)
        else:
            self._stopping = True
            log.critical("out of memory for %g s: the program stops", PATIENCE_S)
            self._stop()

    def free_stop_reserve(self) -> None:
        """The program has been told to stop: to save what it has takes memory, too."""
        self._stop_reserve.close()

    def tick(self) -> None:
        """Once a second or so: take the reserve again when there was no such failure for a while."""
        if self._reserve is None and self._clock.monotonic() - self._last > QUIET_S:
            try:
                self._reserve = bytes(RESERVE_BYTES)
            except MemoryError:
                return
            log.warning("there is memory again")


class Repeating:
    """`work` is a plain function or a coroutine function; its next run begins `interval_s` after the last one ended.

    An interval that may change is given as a function.

    The first one begins `first_s` after the start, `interval_s` unless told otherwise. Failures are told to `log`.
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
        self._complaint = ""
        self._task: asyncio.Task[None] | None = None

    @property
    def interval_s(self) -> float:
        return self._interval()

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._repeat(), name=f"pocketmq {self._what}")

    async def stop(self) -> None:
        """No run is under way when this returns. Harmless when done twice, or before the start."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.wait((self._task,))
        self._task = None

    async def run_once(self) -> None:
        """One run, now; whatever goes wrong in it is told."""
        try:
            outcome = self._work()
            if outcome is not None:
                await outcome
        except Exception as error:
            complaint = f"{type(error).__name__}: {error}"
            if complaint != self._complaint:
                self._complaint = complaint
                self._log.error("%s failed, and is tried again every %s s", self._what, self.interval_s, exc_info=error)
        else:
            if self._complaint:
                self._complaint = ""
                self._log.info("%s works again", self._what)

    async def _repeat(self) -> None:
        await asyncio.sleep(self._first_s)
        while True:
            await self.run_once()
            await asyncio.sleep(self.interval_s)


async def end_of_input() -> None:
    """Returns when the input stream ends: whoever started this program has gone, or has closed it."""
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
    """For one answer, begun when this is made."""

    __slots__ = ("_loop", "_since")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._since = self._loop.time()

    async def give_way(self) -> None:
        """To be awaited after every small piece of work: goes on at once, unless the step has lasted long enough."""
        if self._loop.time() - self._since >= STEP_SECONDS:
            await asyncio.sleep(0)
            self._since = self._loop.time()
