"""Work that comes round on a client's loop: every so often, one run at a time, until it is stopped.

A run that fails is logged once, until a run succeeds again; the next one comes at its time all the same.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

log = logging.getLogger("pocketmq.client")


class Round:
    """`work` runs `first_s` after the start, then `interval_s` after each run has ended."""

    def __init__(
        self, what: str, interval_s: float, work: Callable[[], Awaitable[None]], *, first_s: float | None = None
    ) -> None:
        self._what = what
        self._interval_s = interval_s
        self._first_s = interval_s if first_s is None else first_s
        self._work = work
        self._complaint = ""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._come_round(), name=f"pocketmq {self._what}")

    async def stop(self) -> None:
        """No run is under way when this returns. Harmless when done twice, or before the start."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _come_round(self) -> None:
        await asyncio.sleep(self._first_s)
        while True:
            await self._run()
            await asyncio.sleep(self._interval_s)

    async def _run(self) -> None:
        try:
            await self._work()
        except Exception as error:
            complaint = f"{type(error).__name__}: {error}"
            if complaint != self._complaint:
                self._complaint = complaint
                log.error("%s failed, and is tried again every %s s", self._what, self._interval_s, exc_info=error)
        else:
            self._complaint = ""
