"""The push consumer: brings messages to listeners. `blocking_push_consumer.PushConsumer` is the same for code that does not await.

    consumer = AsyncPushConsumer("127.0.0.1:9876", group="billing")

    @consumer.on("orders", tags="paid || refunded")
    async def handle(message: StoredMessage) -> None:
        ...                                         # returns: done. raises: comes again, later and later, 16 times

    asyncio.run(consumer.run())                     # until SIGINT or SIGTERM; or: async with consumer: …

A listener may be a plain function: it is called in a thread then. It may return or raise `RetryLater`, `DeadLetter` and others, see
`consume_result`, and ask for decoded bodies and for batches, see `listener`.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Final, Never, TypeVar, Unpack

from pocketmq.client.async_consumer import AsyncConsumer
from pocketmq.client.consumer_settings import PushOptions, PushSettings, Workers
from pocketmq.client.flow_limits import PauseCause
from pocketmq.client.hooks import Hooks
from pocketmq.client.instance import Surroundings
from pocketmq.client.listener import Listener
from pocketmq.client.push_member import PushMember
from pocketmq.client.queue_names import QueueNames
from pocketmq.client.running import signals_of_loop
from pocketmq.client.settings import settings_of
from pocketmq.client.subscriptions import filter_of
from pocketmq.model.queue import MessageQueue
from pocketmq.model.suggesting import refuse_unknown
from pocketmq.protocol.bodies.running_info import ConsumerRunningInfo

LISTENER_ARGUMENTS: Final = ("tags", "sql", "batch_size")
F = TypeVar("F", bound=Callable[..., Any])


class AsyncPushConsumer(AsyncConsumer[PushMember, PushSettings]):
    """A member of a consumer group whose messages are brought to listeners.

    `name_servers` and all other options are those of `PushSettings`; `group` must be given. `hooks` hear of every call.
    """

    _listeners_run_here: ClassVar[bool] = True

    def __init__(
        self,
        name_servers: str | Sequence[str] | None = None,
        *,
        hooks: Iterable[Hooks] = (),
        surroundings: Surroundings | None = None,
        **options: Unpack[PushOptions],
    ) -> None:
        settings = settings_of(PushSettings, name_servers, options)
        super().__init__(settings, PushMember(settings, hooks, surroundings or Surroundings()))
        self._names = QueueNames(settings.namespace)

    # what it listens to

    def on(
        self,
        topic: str,
        *,
        tags: str | None = None,
        sql: str | None = None,
        batch_size: int | None = None,
        **unknown: Never,
    ) -> Callable[[F], F]:
        """Make a function the listener of `topic`, before the start; `subscribe` does it at any time.

        `tags` are those that it wants, such as `"a || b"`, and `sql` an expression over properties; neither means all
        messages. With `batch_size` it gets lists of so many messages at most, else one message a call.
        """
        refuse_unknown("on", unknown, LISTENER_ARGUMENTS)

        def register(function: F) -> F:
            self._require_new()
            listener = Listener(function, batch_size, self._settings.namespace)
            self._member.add_listener(topic, *filter_of(topic, tags, sql), listener)
            return function

        return register

    async def subscribe(
        self,
        topic: str,
        listener: Callable[..., Any],
        *,
        tags: str | None = None,
        sql: str | None = None,
        batch_size: int | None = None,
        **unknown: Never,
    ) -> None:
        """Give the messages of `topic` to `listener`; as `on`, but also while running, and also instead of another."""
        refuse_unknown("subscribe", unknown, LISTENER_ARGUMENTS)
        made = Listener(listener, batch_size, self._settings.namespace)
        expression, kind = filter_of(topic, tags, sql)
        if self.is_new:
            self._member.set_listener(topic, expression, kind, made)
        else:
            await self._run(self._member.listen(topic, expression, kind, made))

    async def unsubscribe(self, topic: str) -> None:
        """Get no more messages of `topic`."""
        if self.is_new:
            await self._member.unlisten(topic)
        else:
            await self._run(self._member.unlisten(topic))

    async def start(self) -> None:
        """Join the group. Servers that are away are tried again; InvalidExpression when a broker cannot read a filter."""
        self._require_new()
        if self._listeners_run_here:
            self._member.loop = asyncio.get_running_loop()
        await super().start()

    async def run(self) -> None:
        """Start, consume until SIGINT or SIGTERM, stop as `stop` does, and return: a whole program is `asyncio.run(consumer.run())`.

        Several consumers may run at once (`asyncio.gather`), and all end with the signal; a second one ends the program.
        Returns also after a `stop` from elsewhere. WrongState outside the main thread.
        """
        with signals_of_loop() as came:
            try:
                if not self.is_running:
                    await self.start()
                signalled = asyncio.ensure_future(came.wait())
                stopped = asyncio.ensure_future(self.wait())
                try:
                    await asyncio.wait((signalled, stopped), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    signalled.cancel()
                    stopped.cancel()
            finally:
                await self.stop()

    # what it does

    def pause(self) -> None:
        """Pull nothing more until `resume`; what is here is still handled. It stays a member, and keeps its queues."""
        self._require_running()
        self._member.pause()

    def resume(self) -> None:
        self._require_running()
        self._member.resume()

    async def set_workers(self, workers: Workers) -> None:
        """Make so many calls of listeners at the same time from now on: a number, or the least and the most of the threads."""
        await self._run(self._member.resize(workers))

    @property
    def at_work(self) -> int:
        """Calls of listeners, or runs of short ones, that are under way."""
        self._require_running()
        return self._member.at_work

    @property
    def pauses(self) -> dict[PauseCause, int]:
        """How often pulls had to wait, and why."""
        self._require_running()
        return self._member.pauses()

    async def queues(self) -> list[MessageQueue]:
        """The queues that this member reads now."""
        return [self._names.shown(queue) for queue in await self._run(self._member.owned())]

    async def running_info(self, *, stacks: bool = False) -> ConsumerRunningInfo:
        """What an administrator would be told about this consumer."""
        return await self._run(self._member.info(stacks=stacks))
