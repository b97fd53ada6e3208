"""The life of a client: made, running, stopped. It is lived once; that of an async client in one process.

made ── start ──► running ── stop ──► stopped
  └────────────────── stop ─────────────┘

Who gives up waiting for a stop does not keep it from coming to its end: half a stop would leave a member that takes its share of
messages, and nobody who handles them.

Calling functions of users: `async def` ones on the loop, plain ones in a thread, so that none of them stops the loop.

Where the part of a consumer lives that talks to brokers: in the client's own thread, or on the loop of its user.

    own thread    user's loop ── run(work) ──► the shared loop thread ── result ──► user's loop
    this loop     user's loop ── run(work) ──► itself

In its own thread it goes on while the user's loop is held up, by a handler that computes or waits without `await`: heartbeats are
sent, messages are pulled, no queue is lost.

One loop thread for all blocking clients of a process, so that they share connections as clients of one loop do.

    first client ── borrow ──► the portal is made        last client ── give back ──► its thread ends and is joined

After a fork the child's portal starts a thread of its own when it is used; who had borrowed it before still has it.
"""

import asyncio
import inspect
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from enum import Enum
from typing import Any, Protocol, Self, TypeVar, cast

from pocketmq.client.cluster.identity import generation, require_same_process
from pocketmq.errors import WrongState
from pocketmq.net.portal import Portal


class State(Enum):
    """Where a client is in its life, in words about it."""

    NEW = "was not started: use {}"
    RUNNING = "is running"
    STOPPED = "was stopped; make a new one"

    def refusal(self, what: str, start: str) -> WrongState:
        """Why a client that is called `what`, and is started so, cannot do it now."""
        return WrongState(f"this {what} {self.value.format(start)}")


class Living(ABC):
    """Base of the async clients. `what` is how errors call them."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._made_in = generation()
        self._state = State.NEW
        self._ending: asyncio.Task[None] | None = None

    @abstractmethod
    async def start(self) -> None:
        """Begin. WrongState when it was begun before."""

    @abstractmethod
    async def _end(self) -> None:
        """Finish what is under way, and leave. Called once, of a client that runs."""

    async def stop(self) -> None:
        """Take nothing more, finish what is under way, leave. Harmless when done twice, or without a start."""
        was, self._state = self._state, State.STOPPED
        if was is State.RUNNING:
            require_same_process(self._made_in, self._what)
            self._ending = asyncio.get_running_loop().create_task(self._end())
        if self._ending is not None:
            await asyncio.shield(self._ending)

    @property
    def is_new(self) -> bool:
        """Whether it was not started yet."""
        return self._state is State.NEW

    @property
    def is_running(self) -> bool:
        return self._state is State.RUNNING

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    def _require_new(self) -> None:
        self._require(State.NEW)

    def _require_running(self) -> None:
        self._require(State.RUNNING)

    def _require(self, state: State) -> None:
        require_same_process(self._made_in, self._what)
        if self._state is not state:
            raise self._state.refusal(self._what, f"`async with`, or `await {self._what}.start()`")


T = TypeVar("T")


def is_async(function: Callable[..., object]) -> bool:
    """Whether calling it gives something to await: an `async def`, a partial of one, or an object with such a `__call__`."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


async def call(function: Callable[..., T | Awaitable[T]], *args: Any) -> T:
    """What `function` comes to."""
    if is_async(function):
        return await cast("Awaitable[T]", function(*args))
    outcome = await asyncio.to_thread(function, *args)
    return await outcome if inspect.isawaitable(outcome) else outcome


class SharedPortal:
    """Counts who uses the portal."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the two below; no other lock is taken under it
        self._portal: Portal | None = None
        self._users = 0
        os.register_at_fork(after_in_child=self._begin_anew)

    def borrow(self) -> Portal:
        with self._lock:
            if self._portal is None:
                self._portal = Portal("pocketmq client")
            self._users += 1
            return self._portal

    def give_back(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users:
                return
            portal, self._portal = self._portal, None
        assert portal is not None, "given back more often than borrowed"
        portal.close()

    def _begin_anew(self) -> None:
        self._lock = threading.Lock()  # a thread that the child does not have may have held it


SHARED = SharedPortal()


class HostLoop(Protocol):
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
