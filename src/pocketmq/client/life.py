"""The life of a client: made, running, stopped. It is lived once; that of an async client in one process.

made ── start ──► running ── stop ──► stopped
  └────────────────── stop ─────────────┘

Who gives up waiting for a stop does not keep it from coming to its end: half a stop would leave a member that takes its share of
messages, and nobody who handles them.
"""

import asyncio
from abc import ABC, abstractmethod
from enum import Enum
from typing import Self

from pocketmq.client.identity import generation, require_same_process
from pocketmq.errors import WrongState


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
