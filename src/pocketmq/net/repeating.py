"""Work that comes round: every so often, one run at a time, until it is stopped.

A run that fails is logged once, until a run succeeds again; the next one comes at its time all the same.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable


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
