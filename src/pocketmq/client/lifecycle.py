"""The lifecycle of a client, and the event loop on which it runs.

    created ── start ──► running ── stop ──► stopped
       └────────────────── stop ─────────────┘

A cancelled call of `stop` does not end the stop itself: a consumer that stopped halfway would keep queues without consuming them.

The part of a consumer that talks to brokers runs in the client's thread, or on the user's event loop:

    OwnThread     user's loop ── run(work) ──► shared loop thread ── result ──► user's loop
    ThisLoop      user's loop ── run(work) ──► the same loop

In its own thread it continues while a handler blocks the user's loop: it sends heartbeats and pulls messages, and keeps its queues.

All blocking clients of a process use one loop thread, so that they share connections:

    first client ── acquire ──► the portal is created        last client ── release ──► its thread ends and is joined

After a fork, the child's portal starts a new thread when it is used first. The child's clients keep using it.
"""

import asyncio
import inspect
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from enum import Enum
from typing import Any, Protocol, Self, TypeVar, cast

from pocketmq import system
from pocketmq.client.cluster.identity import generation, require_same_process
from pocketmq.errors import WrongState
from pocketmq.net import Portal


class State(Enum):
    """The state of a client. The values are the texts of errors."""

    NEW = "was not started: use {}"
    RUNNING = "is running"
    STOPPED = "was stopped; create a new one"

    def refusal(self, what: str, start: str) -> WrongState:
        """The error of a call in the wrong state. `what` is the name of the client, `start` how to start it."""
        return WrongState(f"this {what} {self.value.format(start)}")


class AsyncClient(ABC):
    """Base of the async clients. `what` is the name in errors."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._made_in = generation()
        self._state = State.NEW
        self._ending: asyncio.Task[None] | None = None

    @abstractmethod
    async def start(self) -> None:
        """Start the client. Raises WrongState if it was started before."""

    @abstractmethod
    async def _end(self) -> None:
        """Complete running calls, and disconnect. Called once, for a running client."""

    async def stop(self) -> None:
        """Complete running calls, and disconnect. May be called twice, or without a start."""
        was, self._state = self._state, State.STOPPED
        if was is State.RUNNING:
            require_same_process(self._made_in, self._what)
            self._ending = asyncio.get_running_loop().create_task(self._end())
        if self._ending is not None:
            await asyncio.shield(self._ending)

    @property
    def is_new(self) -> bool:
        """Whether it was never started."""
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
    """Whether a call returns an awaitable: an `async def` function, a partial of one, or an object with such a `__call__`."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


async def call(function: Callable[..., T | Awaitable[T]], *args: Any) -> T:
    """Call a user's function: `async def` on this loop, others in a thread, so that they do not block it."""
    if is_async(function):
        return await cast("Awaitable[T]", function(*args))
    result = await asyncio.to_thread(function, *args)
    return await result if inspect.isawaitable(result) else result


class SharedPortal:
    """The loop thread of all blocking clients, with a count of its users."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # protects the next two; no other lock is taken under it
        self._portal: Portal | None = None
        self._users = 0
        system.after_fork_in_child(self._forked)

    def acquire(self) -> Portal:
        with self._lock:
            if self._portal is None:
                self._portal = Portal("pocketmq client")
            self._users += 1
            return self._portal

    def release(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users:
                return
            portal, self._portal = self._portal, None
        assert portal is not None, "released more often than acquired"
        portal.close()

    def _forked(self) -> None:
        self._lock = threading.Lock()  # another thread of the parent may have had it


SHARED_PORTAL = SharedPortal()


class HostLoop(Protocol):
    """The event loop of the part of a consumer that talks to brokers."""

    async def run(self, work: Coroutine[Any, Any, T]) -> T: ...

    async def close(self) -> None:
        """No more coroutines are run."""


class OwnThread:
    """The shared loop thread."""

    def __init__(self) -> None:
        self._portal = SHARED_PORTAL.acquire()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(self._portal.submit(work))

    async def close(self) -> None:
        await asyncio.to_thread(SHARED_PORTAL.release)  # the last one joins the thread


class ThisLoop:
    """The running event loop."""

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        return await work

    async def close(self) -> None:
        """The loop belongs to the user."""
