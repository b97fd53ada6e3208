"""The push consumer: brings messages to listeners. `blocking_push_consumer.PushConsumer` is the same for code that does not await.

    consumer = AsyncPushConsumer("127.0.0.1:9876", group="billing")

    @consumer.on("orders", tags="paid || refunded")
    async def handle(message: StoredMessage) -> None:
        ...                                         # returns: done. raises: comes again, later and later, 16 times

    asyncio.run(consumer.run())                     # until SIGINT or SIGTERM; or: async with consumer: …

A listener may be a plain function: it is called in a thread then. It may return or raise `RetryLater`, `DeadLetter` and others, see
`consume_result`, and ask for decoded bodies and for batches, see `listener`.

A member of a group whose messages are brought to listeners: what push consumers are made of.

process queues ──► listening, concurrent or orderly ──► workers ──► listeners
                      ├──► offsets
                      └──► send-backs ──► retry topic, dead letters
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from typing import Any, ClassVar, Final, Never, TypeVar, Unpack

from msgspec.structs import replace

from pocketmq.client.cluster.instance import Instance, Surroundings
from pocketmq.client.cluster.routes import QueueNames
from pocketmq.client.consumer.assignment import QueueLocks
from pocketmq.client.consumer.async_consumer import AsyncConsumer
from pocketmq.client.consumer.concurrent_listening import ConcurrentListening
from pocketmq.client.consumer.consume_events import ConsumeEvents
from pocketmq.client.consumer.consume_result import direct_outcome, words_of
from pocketmq.client.consumer.dispatch import Dispatch
from pocketmq.client.consumer.flow_limits import PauseCause
from pocketmq.client.consumer.group_member import GroupMember, MemberParts
from pocketmq.client.consumer.jobs import Job, resolving
from pocketmq.client.consumer.listener import Listener, ListenerTable, require_movable
from pocketmq.client.consumer.orderly_listening import OrderlyListening
from pocketmq.client.consumer.pull_loop import PullLoopSettings
from pocketmq.client.consumer.pulling import Pulling
from pocketmq.client.consumer.retry_sender import RetrySender
from pocketmq.client.consumer.settings import (
    PushOptions,
    PushSettings,
    SubscriptionTable,
    Workers,
    filter_of,
    worker_range,
)
from pocketmq.client.hooks import HookList, Hooks, checked_hooks
from pocketmq.client.running import signals_of_loop
from pocketmq.client.settings import settings_of
from pocketmq.client.telemetry.tracing import Traced, Tracer
from pocketmq.errors import ServerFailed, UsageError
from pocketmq.model.flags import PullFlag
from pocketmq.model.message import StoredMessage
from pocketmq.model.names import TopicName, refuse_unknown
from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.bodies.clients import ConsumeType
from pocketmq.protocol.bodies.running_info import ConsumeOutcome, ConsumerRunningInfo, DirectConsumption

log = logging.getLogger("pocketmq.client")

PULLS_AHEAD: Final = 4
"""So many pulls of a queue may wait for listeners before the next gives them time. With one, a far broker would keep them waiting."""


class PushMember(GroupMember):
    """`loop` is where `async def` listeners run; None: on a loop of their own."""

    def __init__(
        self,
        parts: MemberParts,
        settings: PushSettings,
        listeners: ListenerTable,
        tracer: Tracer | None,
        loop: asyncio.AbstractEventLoop | None,
    ) -> None:
        self._push = settings
        self._listeners = listeners
        self._tracer = tracer
        self._leaving: asyncio.Task[None] | None = None
        """Set when it leaves by itself."""
        self._dispatch = Dispatch(
            parts.clock,
            threads=worker_range(settings.workers),
            processes=settings.processes,
            loop=loop,
            lost=self._leave_group,
        )
        locks = QueueLocks(parts.instance, parts.group) if settings.ordered and not settings.broadcast else None
        self._listening = _listening(parts, settings, listeners, self._dispatch, locks)
        pulling = Pulling(
            parts.instance,
            parts.group,
            flags=PullFlag.SUSPEND | (PullFlag.SUBSCRIPTION if settings.subscription_in_pulls else 0),
            max_bytes=settings.pull_batch_bytes,
            wait_ms=settings.pull_wait_ms,
        )
        pull_settings = PullLoopSettings.of(settings, tells_offsets=not settings.broadcast)
        super().__init__(parts, self._listening, pulling, pull_settings, ConsumeType.CONSUME_PASSIVELY, locks=locks)

    # its life

    async def start(self) -> None:
        async with AsyncExitStack() as undo:
            if self._tracer is not None:
                self._tracer.start()
                undo.push_async_callback(self._tracer.stop)
            await super().start()
            undo.pop_all()
        self._listening.start()

    async def stop(self, drain_s: float) -> None:
        if self._leaving is not None and self._leaving is not asyncio.current_task():
            await self._leaving  # it left by itself
            return
        await super().stop(drain_s)
        await self._listening.stop()
        await self._dispatch.close()
        if self._tracer is not None:
            await self._tracer.stop()

    def _leave_group(self, error: RuntimeError) -> None:
        """Whoever ended the loop of the listeners forgot this consumer. It must not keep queues whose messages nobody can handle."""
        log.error("the loop of the listeners is gone, so this consumer leaves its group: %s", error)
        if self._is_running and self._leaving is None:
            self._leaving = asyncio.get_running_loop().create_task(self.stop(0.0))

    # listening

    async def listen(self, name: TopicName, expression: str | None, kind: str, listener: Listener) -> None:
        """Give the messages of a topic to `listener` from now on."""
        if self._push.processes is not None:
            require_movable(listener)
        is_new = name not in self._listeners
        if is_new:
            self._listeners.put(name, listener)  # first: messages may come before brokers have read the filter
        try:
            await self.subscribe(name, expression, kind)
        except BaseException:
            if is_new:
                self._listeners.remove(name)
            raise
        self._listeners.put(name, listener)

    async def unlisten(self, name: TopicName) -> None:
        """The queues of a topic are left; what is here of them and not in work is dropped."""
        await self.unsubscribe(name)
        self._listeners.remove(name)

    def pause(self) -> None:
        """Pull nothing more; what is here is still handled. Any thread may say so: pull loops only read the flag."""
        self._pulls.is_paused = True

    def resume(self) -> None:
        self._pulls.is_paused = False

    async def resize(self, workers: Workers) -> None:
        """So many calls of listeners at the same time from now on."""
        if self._push.processes is not None:
            raise UsageError(f"listeners run in {self._push.processes} processes, whose number is fixed at the start")
        least, most = worker_range(workers)
        self._dispatch.resize(least, most)
        self._listening.resize(most)

    @property
    def core_workers(self) -> int:
        return self._dispatch.least

    @property
    def at_work(self) -> int:
        """Jobs that workers have now."""
        return self._dispatch.at_work

    def pauses(self) -> dict[PauseCause, int]:
        """How often pulls waited, and why."""
        return self._pulls.pauses.snapshot()

    async def consume_directly(self, message: StoredMessage, broker_name: str | None) -> DirectConsumption:
        listener = self._listeners.of(message)
        if listener is None:
            raise ServerFailed(f"no listener of this member is for topic {message.topic}")
        queue = MessageQueue(message.topic, broker_name or "", message.queue_id)
        message = replace(message, _queue=queue)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        job = Job(listener, [message], self._clock.monotonic(), resolving(done))
        if self._dispatch.submit(job):
            await done
        collected = job.collect(self._clock.monotonic())
        if not collected.calls:
            raise ServerFailed("this member stops, and did not call its listener any more")
        return DirectConsumption(
            order=self._push.ordered,
            auto_commit=self._push.auto_commit,
            consume_result=_outcome(collected.result),
            remark=_remark(collected.result),
            spent_time_mills=int(collected.took_s * 1000),
        )


def _listening(
    parts: MemberParts, settings: PushSettings, listeners: ListenerTable, dispatch: Dispatch, locks: QueueLocks | None
) -> ConcurrentListening | OrderlyListening:
    events = ConsumeEvents(
        parts.hooks, settings.group, settings.namespace, parts.clock, timeout_ms=settings.consume_timeout_ms
    )
    retry_sender = None
    if not settings.broadcast:
        retry_sender = RetrySender(
            parts.instance, settings, parts.group, settings.max_reconsume_times, is_orderly=settings.ordered
        )
    if settings.ordered:
        return OrderlyListening(
            parts.clock,
            listeners,
            dispatch,
            parts.offsets,
            retry_sender,
            locks,
            events,
            parts.stats,
            workers=settings.max_workers,
            suspend_ms=settings.suspend_ms,
            auto_commit=settings.auto_commit,
        )
    return ConcurrentListening(
        parts.clock,
        listeners,
        dispatch,
        parts.offsets,
        retry_sender,
        events,
        parts.stats,
        parts.owned,
        workers=settings.processes or settings.max_workers,
        timeout_s=settings.consume_timeout_ms / 1000,
        ahead=PULLS_AHEAD * settings.pull_batch,
    )


def _outcome(result: Any) -> ConsumeOutcome:
    try:
        return direct_outcome(result)
    except UsageError:
        return ConsumeOutcome.CR_THROW_EXCEPTION


def _remark(result: object) -> str | None:
    return f"{type(result).__name__}: {words_of(result)}" if isinstance(result, BaseException) else None


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
        super().__init__(settings, surroundings, is_stream=False)
        self._names = QueueNames(settings.namespace)
        self._tracer = Tracer(settings, settings.group, Traced.CONSUMPTION, self._around) if settings.trace else None
        self._hooks = HookList(hooks if self._tracer is None else (*checked_hooks(hooks), self._tracer))
        with_retries = not settings.broadcast
        now_ms = self._around.clock.now_ms()
        self._subscriptions = SubscriptionTable(settings.wire_group, now_ms, with_retries=with_retries)
        self._listeners = ListenerTable(settings.wire_group)

    def _make_member(self, instance: Instance) -> PushMember:
        parts = MemberParts(self._settings, instance, self._around.files, self._subscriptions, self._hooks)
        loop = self._user_loop if self._listeners_run_here else None
        return PushMember(parts, self._settings, self._listeners, self._tracer, loop)

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
            filtered = filter_of(topic, tags, sql)
            if self._subscriptions.get(self._wire_topic(topic)) is not None:
                raise UsageError(f"there is a listener for topic {topic!r} already; each topic has one")
            self._set_listener(topic, *filtered, listener)
            return function

        return register

    async def subscribe(
        self,
        /,
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
            self._set_listener(topic, expression, kind, made)
        else:
            await self._run(self._member.listen(self._wire_topic(topic), expression, kind, made))

    def _set_listener(self, topic: str, expression: str | None, kind: str, listener: Listener) -> None:
        name = self._wire_topic(topic)
        self._subscriptions.subscribe(name, expression, kind, now_ms=self._around.clock.now_ms())
        self._listeners.put(name, listener)

    async def unsubscribe(self, topic: str) -> None:
        """Get no more messages of `topic`."""
        name = self._wire_topic(topic)
        if self.is_new:
            self._subscriptions.unsubscribe(name)
            self._listeners.remove(name)
        else:
            await self._run(self._member.unlisten(name))

    async def start(self) -> None:
        """Join the group. Servers that are away are tried again; InvalidExpression when a broker cannot read a filter."""
        self._require_new()
        if not len(self._listeners):
            raise UsageError("a push consumer needs a listener before it is started: @consumer.on(topic), or subscribe")
        if self._settings.processes is not None:
            self._listeners.require_movable()
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
        self._member.pause()

    def resume(self) -> None:
        self._member.resume()

    async def set_workers(self, workers: Workers) -> None:
        """Make so many calls of listeners at the same time from now on: a number, or the least and the most of the threads."""
        await self._run(self._member.resize(workers))

    @property
    def at_work(self) -> int:
        """Calls of listeners, or runs of short ones, that are under way."""
        return self._member.at_work

    @property
    def pauses(self) -> dict[PauseCause, int]:
        """How often pulls had to wait, and why."""
        return self._member.pauses()

    async def queues(self) -> list[MessageQueue]:
        """The queues that this member reads now."""
        return [self._names.shown(queue) for queue in await self._run(self._member.owned())]

    async def running_info(self, *, stacks: bool = False) -> ConsumerRunningInfo:
        """What an administrator would be told about this consumer."""
        return await self._run(self._member.info(stacks=stacks))
