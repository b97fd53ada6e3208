"""Where the part of a consumer lives that talks to brokers: in the client's own thread, or on the loop of its user.

    own thread    user's loop ── run(work) ──► the shared loop thread ── result ──► user's loop
    this loop     user's loop ── run(work) ──► itself

In its own thread it goes on while the user's loop is held up, by a handler that computes or waits without `await`: heartbeats are
sent, messages are pulled, no queue is lost.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

from pocketmq.client.shared_portal import SHARED

T = TypeVar("T")


class Home(Protocol):
    """Runs coroutines where a consumer lives."""

    async def run(self, work: Coroutine[Any, Any, T]) -> T: ...

    async def close(self) -> None:
        """Nothing is run there any more."""


class OwnThread:
    """The loop thread that all clients of this process share."""

    def __init__(self) -> None:
        self._portal = SHARED.borrow()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(self._portal.submit(work))

    async def close(self) -> None:
        await asyncio.to_thread(SHARED.give_back)  # the last one joins the thread


class ThisLoop:
    """The loop that runs."""

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        return await work

    async def close(self) -> None:
        """It goes on without us."""
