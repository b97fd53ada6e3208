"""How fast pipelines go, seen closely: while somebody looks at their page, groups that move without members are looked at twice a second.

The collector looks at all groups every five seconds, in which a query may do many batches. Few groups are asked one by one here, and
more seldom where it takes long.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from pocketmq.client.admin import AsyncAdmin
from pocketmq.client.administration.lag import GroupLag
from pocketmq.clock import Clock
from pocketmq.errors import PocketMQError

PACED_GROUPS: Final = 10
"""The rest is seen as the collector sees all groups."""
PACE_S: Final = 0.5
WANTED_S: Final = 10.0
"""So long after somebody looked at the page."""

Tell = Callable[[Mapping[str, GroupLag], float], None]
"""How far groups are, and when they were asked."""


class Pace:
    """Looks as long as somebody wants it."""

    def __init__(self, admin: AsyncAdmin, clock: Clock, rest_factor: float) -> None:
        """What a look took, times `rest_factor`, is how long it rests at least."""
        self._admin = admin
        self._clock = clock
        self._rest_factor = rest_factor
        self._groups: tuple[str, ...] = ()
        self._until = 0.0
        self._wanted = asyncio.Event()

    def want(self, groups: Iterable[str]) -> None:
        """Somebody looks at these."""
        self._groups = tuple(groups)[:PACED_GROUPS]
        self._until = self._clock.monotonic() + WANTED_S
        self._wanted.set()

    async def run(self, tell: Tell) -> None:
        while True:
            await self._wanted.wait()
            began = self._clock.monotonic()
            if began >= self._until:
                self._wanted.clear()
                continue
            for group in self._groups:
                await self._look(group, tell)
            await asyncio.sleep(max(PACE_S, (self._clock.monotonic() - began) * self._rest_factor))

    async def _look(self, group: str, tell: Tell) -> None:
        asked = self._clock.monotonic()
        try:
            lag = await self._admin.offsets.lag(group)
        except PocketMQError:  # the collector asks, too, and says so
            return
        tell({group: lag}, asked)
