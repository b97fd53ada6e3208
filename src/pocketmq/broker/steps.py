"""Long answers in short steps: whoever makes one lets everybody else have a turn every few milliseconds."""

import asyncio
from typing import Final

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
