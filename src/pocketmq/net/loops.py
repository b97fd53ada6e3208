"""The event loop that programs run on: uvloop's when it is installed, asyncio's otherwise; and what it does without memory.

A callback that fails for want of memory may be called again at once, for ever: uvloop needs 64 KB to learn of a signal, and asks again
when it does not get them. So a loop has some memory in reserve, which is freed when that happens. The log has a line a second, and
when it lasts the program ends.

    MemoryError ── reserve freed ── for PATIENCE_S ──► stopped as by SIGTERM ── for PATIENCE_S again ──► ended at once
                                 └─ a quiet second ──► reserve taken again
"""

import asyncio
import logging
import os
import time
from collections.abc import Callable
from typing import Any, Final

from pocketmq.clock import Clock

try:
    import uvloop
except ImportError:
    uvloop = None  # type: ignore[assignment]


log = logging.getLogger("pocketmq.net")

RESERVE_BYTES: Final = 4 * 1024 * 1024
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

    def tick(self) -> None:
        """Once a second or so: take the reserve again when there was no such failure for a while."""
        if self._reserve is None and self._clock.monotonic() - self._last > QUIET_S:
            try:
                self._reserve = bytes(RESERVE_BYTES)
            except MemoryError:
                return
            log.warning("there is memory again")
