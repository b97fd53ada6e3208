"""Waiting for servers that cannot be reached: a broker or a name server that restarts.

    send ── no connection: nothing was sent ──► wait(topic) ──┐
    send ── no connection ────────────────────► wait(topic) ──┼──► one search for all of them
                                                              │       ├─ connect to the masters of the topic
    a master is connected, or the deadline has passed ◄───────┘       └─ ask name servers for the route, once a second

All sends of a topic share one search, so ten thousand waiting messages cost no more connections than one. The search ends with the
last deadline. How often an address is tried is the pool's rule, see `net.pool`.
"""

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from typing import Final

from pocketmq.client.brokers import Brokers
from pocketmq.client.routes import Routes
from pocketmq.errors import NetworkError, PocketMQError, TopicNotFound

PAUSE_S: Final = 0.05
"""Between two looks at the connections. A look sends nothing while the pool backs off."""
LOOK_S: Final = 0.5
"""A look takes no longer; connecting goes on beside."""
REFRESH_S: Final = 1.0
"""A route that is known is asked for again after so long: the broker may return at another address."""


class _Search:
    """One search, and how long somebody waits for it."""

    __slots__ = ("task", "until")

    def __init__(self, until: float) -> None:
        self.until = until
        self.task: asyncio.Task[bool]


class Comebacks:
    """The searches of one client."""

    def __init__(self, routes: Routes, brokers: Brokers) -> None:
        self._routes = routes
        self._brokers = brokers
        self._searches: dict[tuple[str, str | None], _Search] = {}

    async def wait(self, topic: str, broker_name: str | None, until: float) -> bool:
        """Whether a master can be sent to before the loop's time is `until`: this broker's, or any of the topic's."""
        key = topic, broker_name
        search = self._searches.get(key)
        if search is None or search.task.done():  # its callback may not have run yet
            search = self._searches[key] = _Search(until)
            search.task = asyncio.get_running_loop().create_task(self._search(topic, broker_name, search))
            search.task.add_done_callback(lambda task: self._forget(key, task))
        search.until = max(search.until, until)
        # Not awaited itself: a send that gives up must not end the search of the others.
        await asyncio.wait((search.task,), timeout=max(until - asyncio.get_running_loop().time(), 0))
        return search.task.done() and not search.task.cancelled() and search.task.result()

    def _forget(self, key: tuple[str, str | None], task: "asyncio.Task[bool]") -> None:
        if self._searches[key].task is task:
            del self._searches[key]

    async def close(self) -> None:
        """End all searches."""
        tasks = [search.task for search in self._searches.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _search(self, topic: str, broker_name: str | None, search: _Search) -> bool:
        loop = asyncio.get_running_loop()
        refresh_at = loop.time()
        while loop.time() < search.until:
            route = self._routes.get(topic)
            names = [broker_name] if broker_name is not None else []
            if route is not None and broker_name is None:
                names = list(dict.fromkeys(queue.broker_name for queue in route.writable))
            looks: list[Awaitable[bool]] = [self._is_connected(name) for name in names] if route is not None else []
            if route is None or loop.time() >= refresh_at:
                refresh_at = loop.time() + REFRESH_S
                looks.append(self._is_answered(topic, is_known=route is not None))
            if await _any(looks):
                return True
            await asyncio.sleep(PAUSE_S)
        return False

    async def _is_connected(self, broker_name: str) -> bool:
        try:
            await self._brokers.peer(self._brokers.master(broker_name))
        except NetworkError:
            return False
        return True

    async def _is_answered(self, topic: str, *, is_known: bool) -> bool:
        """Whether name servers say something about a topic of which nothing was known."""
        try:
            await self._routes.refresh(topic)
        except TopicNotFound:
            return not is_known
        except PocketMQError:
            return False
        return not is_known


async def _any(looks: list[Awaitable[bool]]) -> bool:
    """Whether one of them is true, as soon as one is; the others are not waited for."""
    tasks = [asyncio.ensure_future(look) for look in looks]
    try:
        with suppress(TimeoutError):
            for done in asyncio.as_completed(tasks, timeout=LOOK_S):
                if await done:
                    return True
        return False
    finally:
        for task in tasks:
            task.cancel()
