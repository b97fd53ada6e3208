"""What all async consumers are made of: a member of the group, where it lives, and its life.

new ── start: the member is made and joins ──► running ── stop: what is in work is waited for ──► stopped
         └── stop: the start comes to its end, is undone, and fails ──┘
"""

import asyncio
from abc import abstractmethod
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any, Generic, Protocol, TypeVar

from pocketmq.client.cluster.instance import Instance, Surroundings
from pocketmq.client.consumer.settings import GroupSettings
from pocketmq.client.lifecycle import HostLoop, Living, OwnThread, State, ThisLoop
from pocketmq.errors import WrongState
from pocketmq.model.names import TopicName, parse_topic, wrap

T = TypeVar("T")


class Member(Protocol):
    """The part that lives where the network is. It was given an instance, which it leaves when it stops or cannot start."""

    @property
    def client_id(self) -> str: ...

    async def start(self) -> None: ...

    async def stop(self, drain_s: float) -> None: ...


M = TypeVar("M", bound=Member)
S = TypeVar("S", bound=GroupSettings)


class AsyncConsumer(Living, Generic[M, S]):
    """Base of the async consumers. `is_stream`: brokers are told that its messages are read as a stream."""

    def __init__(self, settings: S, surroundings: Surroundings | None, *, is_stream: bool) -> None:
        super().__init__("consumer")
        self._settings = settings
        self._around = surroundings or Surroundings()
        self._is_stream = is_stream
        self._stopped = asyncio.Event()
        self._starting: asyncio.Event | None = None
        """While it is being started: set when that is over."""
        self._user_loop: asyncio.AbstractEventLoop | None = None
        """The loop on which it was started."""
        self._joined: tuple[HostLoop, M] | None = None
        """Its member since it was started, and where that lives."""

    @abstractmethod
    def _make_member(self, instance: Instance) -> M:
        """A member that is not started yet, on the loop where it is to live."""

    async def start(self) -> None:
        """Join the group. Servers that are away are tried again; InvalidExpression when a broker cannot read a filter."""
        self._require_new()
        if self._starting is not None:
            raise WrongState("this consumer is being started already")
        self._starting = asyncio.Event()
        self._user_loop = asyncio.get_running_loop()
        try:
            await self._begin()
        finally:
            self._starting.set()
            self._starting = None

    async def _begin(self) -> None:
        host: HostLoop = OwnThread() if self._settings.own_thread else ThisLoop()
        async with AsyncExitStack() as undo:
            undo.push_async_callback(host.close)
            self._joined = host, await host.run(self._join())
            undo.pop_all()
        if self._state is State.STOPPED:
            self._ending = asyncio.get_running_loop().create_task(self._end())
            await asyncio.shield(self._ending)
            raise WrongState("this consumer was stopped while it was being started")
        self._state = State.RUNNING

    async def _join(self) -> M:
        instance = Instance.join(self._settings, self._around, stream=self._is_stream)
        async with AsyncExitStack() as undo:
            undo.push_async_callback(instance.leave)
            member = self._make_member(instance)
            undo.pop_all()
        await member.start()
        return member

    async def stop(self) -> None:
        """Take no more messages, wait for those in work, leave the group. Harmless when done twice, or without a start.

        What is not done within `stop_timeout_ms` comes again, to another member.
        """
        await super().stop()
        if self._starting is not None:
            await self._starting.wait()
        self._stopped.set()

    async def _end(self) -> None:
        assert self._joined is not None
        host, member = self._joined
        try:
            await host.run(member.stop(self._settings.stop_timeout_ms / 1000))
        finally:
            await host.close()
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
        return self._member.client_id

    @property
    def _member(self) -> M:
        """The member of a consumer that runs; WrongState for any other."""
        self._require_running()
        assert self._joined is not None
        return self._joined[1]

    def _wire_topic(self, topic: str) -> TopicName:
        """`topic` as it is called on the wire."""
        return parse_topic(wrap(self._settings.namespace, topic))

    async def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """What a coroutine of the member comes to, run where it lives."""
        assert self._joined is not None
        return await self._joined[0].run(work)
