"""Base of the async consumers: creates the group member on its event loop, starts and stops it.

new ── start: the member is created and joins ──► running ── stop: running work is finished ──► stopped
         └── stop: the start is completed, undone, and fails ──┘
"""

import asyncio
from abc import abstractmethod
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Generic, Protocol, TypeVar

from pocketmq.client.cluster.instance import Dependencies, Instance
from pocketmq.client.cluster.routes import QueueNames
from pocketmq.client.consumer.settings import GroupSettings
from pocketmq.client.lifecycle import AsyncClient, HostLoop, OwnThread, State, ThisLoop
from pocketmq.client.settings import checked_seconds, settings_of
from pocketmq.errors import UsageError, WrongState
from pocketmq.model import MessageQueue, TopicName
from pocketmq.model.names import parse_topic, wrap

T = TypeVar("T")


class Member(Protocol):
    """The part of a consumer on the network's event loop. It leaves its instance when it stops or cannot start."""

    @property
    def client_id(self) -> str: ...

    async def start(self) -> None: ...

    async def stop(self, drain_s: float) -> None: ...


M = TypeVar("M", bound=Member)
S = TypeVar("S", bound=GroupSettings)


class AsyncConsumer(AsyncClient, Generic[M, S]):
    """Base of the async consumers. For `arguments` see `settings_of`. `is_stream` is reported to brokers: the user reads the messages as a stream."""

    def __init__(
        self,
        kind: type[S],
        name_servers: str | Sequence[str] | None,
        options: Mapping[str, Any],
        dependencies: Dependencies | None,
        *,
        arguments: Sequence[str] = ("hooks",),
        is_stream: bool,
    ) -> None:
        super().__init__("consumer")
        self._settings = settings_of(kind, name_servers, options, arguments)
        self._dependencies = dependencies or Dependencies()
        self._names = QueueNames(self._settings.namespace)
        self._is_stream = is_stream
        self._stopped = asyncio.Event()
        self._starting: asyncio.Event | None = None
        """Exists during the start, and is set at its end."""
        self._user_loop: asyncio.AbstractEventLoop | None = None
        """The event loop on which it was started."""
        self._joined: tuple[HostLoop, M] | None = None
        """The started member, and the event loop that it runs on."""

    @abstractmethod
    def _make_member(self, instance: Instance) -> M:
        """Create the member, on its event loop."""

    async def start(self) -> None:
        """Join the group. Retries while servers are away; raises InvalidExpression if a broker rejects a filter."""
        self._require_new()
        if self._starting is not None:
            raise WrongState("this consumer is starting already")
        self._starting = asyncio.Event()
        self._user_loop = asyncio.get_running_loop()
        try:
            await self._start_member()
        finally:
            self._starting.set()
            self._starting = None

    async def _start_member(self) -> None:
        host: HostLoop = OwnThread() if self._settings.own_thread else ThisLoop()
        async with AsyncExitStack() as undo:
            undo.push_async_callback(host.close)
            self._joined = host, await host.run(self._join())
            undo.pop_all()
        if self._state is State.STOPPED:
            self._ending = asyncio.get_running_loop().create_task(self._end())
            await asyncio.shield(self._ending)
            raise WrongState("this consumer was stopped during its start")
        self._state = State.RUNNING

    async def _join(self) -> M:
        instance = Instance.join(self._settings, self._dependencies, stream=self._is_stream)
        async with AsyncExitStack() as undo:
            undo.push_async_callback(instance.leave)
            member = self._make_member(instance)
            undo.pop_all()
        await member.start()
        return member

    async def stop(self) -> None:
        """Stop pulling, wait for running listeners, commit offsets and leave the group. May be called twice, or without a start.

        Messages that are not consumed within `stop_timeout_ms` are delivered again, to another member.
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
        """Wait until the consumer is stopped; False after the timeout."""
        checked_seconds(timeout_s)
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
        """The client id that brokers know."""
        return self._member.client_id

    @property
    def _member(self) -> M:
        """The member of a running consumer; WrongState for any other."""
        self._require_running()
        assert self._joined is not None
        return self._joined[1]

    def _wire_topic(self, topic: str) -> TopicName:
        """The topic with its namespace."""
        return parse_topic(wrap(self._settings.namespace, topic))

    def _wire(self, queue: MessageQueue) -> MessageQueue:
        """The queue with the namespace of its topic. Raises UsageError if it is not a queue."""
        if not isinstance(queue, MessageQueue):
            raise UsageError(
                f"{queue!r} is {type(queue).__name__}, not a MessageQueue: give one that the consumer returns, or "
                "MessageQueue(topic, broker_name, queue_id)"
            )
        return self._names.on_the_wire(queue, wrap(self._settings.namespace, queue.topic))

    async def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of the member on its event loop."""
        assert self._joined is not None
        return await self._joined[0].run(work)
