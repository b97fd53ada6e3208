"""What all async consumers are made of: a member of the group, where it lives, and its life.

new ── start ──► running ── stop: what is in work is waited for ──► stopped
         └── stop: the start comes to its end, is undone, and fails ──┘
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, Generic, Protocol, TypeVar

from pocketmq.client.consumer_settings import GroupSettings
from pocketmq.client.home import Home, OwnThread, ThisLoop
from pocketmq.client.life import Living, State
from pocketmq.errors import WrongState

T = TypeVar("T")


class Member(Protocol):
    """The part that lives where the network is."""

    @property
    def client_id(self) -> str: ...

    async def start(self) -> None: ...

    async def stop(self, drain_s: float) -> None: ...


M = TypeVar("M", bound=Member)
S = TypeVar("S", bound=GroupSettings)


class AsyncConsumer(Living, Generic[M, S]):
    """Base of the async consumers."""

    def __init__(self, settings: S, member: M) -> None:
        super().__init__("consumer")
        self._settings = settings
        self._member = member
        self._stopped = asyncio.Event()
        self._starting: asyncio.Event | None = None
        """While it is being started: set when that is over."""
        self._home: Home

    async def start(self) -> None:
        """Join the group. Servers that are away are tried again; InvalidExpression when a broker cannot read a filter."""
        self._require_new()
        if self._starting is not None:
            raise WrongState("this consumer is being started already")
        self._starting = asyncio.Event()
        try:
            await self._begin()
        finally:
            self._starting.set()
            self._starting = None

    async def _begin(self) -> None:
        home: Home = OwnThread() if self._settings.own_thread else ThisLoop()
        try:
            await home.run(self._member.start())
        except BaseException:
            await home.close()
            raise
        self._home = home
        if self._state is State.STOPPED:
            self._ending = asyncio.get_running_loop().create_task(self._end())
            await asyncio.shield(self._ending)
            raise WrongState("this consumer was stopped while it was being started")
        self._state = State.RUNNING

    async def stop(self) -> None:
        """Take no more messages, wait for those in work, leave the group. Harmless when done twice, or without a start.

        What is not done within `stop_timeout_ms` comes again, to another member.
        """
        await super().stop()
        if self._starting is not None:
            await self._starting.wait()
        self._stopped.set()

    async def _end(self) -> None:
        try:
            await self._home.run(self._member.stop(self._settings.stop_timeout_ms / 1000))
        finally:
            await self._home.close()
            self._stopped.set()

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Whether the consumer was stopped, at once or before the time is up."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._stopped.wait()
        except TimeoutError:
            return False
        return True

    @property
    def settings(self) -> S:
        return self._settings

    @property
    def client_id(self) -> str:
        """How brokers call this client."""
        self._require_running()
        return self._member.client_id

    async def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """What a coroutine of the member comes to, run where it lives."""
        try:
            self._require_running()
        except WrongState:
            work.close()
            raise
        return await self._home.run(work)
