"""The push consumer calls listeners with messages. `PushConsumer` is the same for code that does not use asyncio.

    consumer = AsyncPushConsumer("127.0.0.1:9876", group="billing")

    @consumer.on("orders", tags="paid || refunded")
    async def handle(message: StoredMessage) -> None:
        ...                                         # returns: done. raises: retried 16 times, with growing delays

    asyncio.run(consumer.run())                     # until SIGINT or SIGTERM; or: async with consumer: …

A listener may be a plain function, which is called in a thread. It may return or raise `RetryLater`, `DeadLetter` and others (see
`consume_result`), and take decoded bodies and batches (see `listener`).

    process queues ──► concurrent or orderly listening ──► workers ──► listeners
                          ├──► offsets, or acks of leases
                          └──► retry topic, dead letters
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from math import inf
from typing import Any, ClassVar, Final, Never, TypeVar, Unpack

from msgspec.structs import replace

from pocketmq.client.cluster.instance import Dependencies, Instance
from pocketmq.client.consumer.assignment import QueueLocks
from pocketmq.client.consumer.async_consumer import AsyncConsumer
from pocketmq.client.consumer.concurrent_listening import ConcurrentListening
from pocketmq.client.consumer.consume_result import direct_outcome, text_of
from pocketmq.client.consumer.dispatch import Dispatch
from pocketmq.client.consumer.flow_limits import PauseCause, Workers, worker_range
from pocketmq.client.consumer.group_member import AssignedMember, MemberParts, default_allocator
from pocketmq.client.consumer.jobs import Job, setting_result
from pocketmq.client.consumer.leases import LeaseCounts, LeaseTable
from pocketmq.client.consumer.listener import Listener, ListenerTable, require_picklable
from pocketmq.client.consumer.listening import ConsumeEvents, Listening, ListeningParts
from pocketmq.client.consumer.orderly_listening import Locks, OrderlyListening
from pocketmq.client.consumer.pop_loop import LeasedQueues, PopLoops
from pocketmq.client.consumer.popping import Popping
from pocketmq.client.consumer.pull_loop import PullLoopSettings
from pocketmq.client.consumer.pulling import PullEvents, Pulling
from pocketmq.client.consumer.rebalance import Allocator, BrokerAllocator
from pocketmq.client.consumer.retry_sender import RetrySender
from pocketmq.client.consumer.settings import (
    PushOptions,
    PushSettings,
    refuse_subscribe_arguments,
)
from pocketmq.client.consumer.settling import LeaseSettling, OffsetSettling
from pocketmq.client.consumer.subscriptions import SubscriptionTable, filter_of
from pocketmq.client.hooks import HookList, Hooks, checked_hooks
from pocketmq.client.running import signals_of_loop
from pocketmq.client.telemetry.tracing import Traced, Tracer
from pocketmq.codes import PullFlag
from pocketmq.errors import ServerFailed, UsageError
from pocketmq.model import MessageQueue, StoredMessage, TopicName
from pocketmq.model.names import refuse_unknown
from pocketmq.protocol.bodies.clients import ConsumerRunningInfo, ConsumeType, DirectConsumption

log = logging.getLogger("pocketmq.client")

Pauses = dict[PauseCause, int]
"""How often pulls paused, by cause."""
PULLS_AHEAD: Final = 4
"""The number of pulls of a queue that may wait for listeners. With one, a broker far away would keep listeners waiting."""


class PushMember(AssignedMember):
    """The group member of a push consumer. `async def` listeners run on `loop`; None: on a separate event loop."""

    def __init__(
        self,
        parts: MemberParts[PushSettings],
        settings: PushSettings,
        listeners: ListenerTable,
        tracer: Tracer | None,
        loop: asyncio.AbstractEventLoop | None,
    ) -> None:
        self._push = settings
        self._listeners = listeners
        self._tracer = tracer
        self._leaving: asyncio.Task[None] | None = None
        """Set when it leaves the group without a call of `stop`."""
        self._dispatch = Dispatch(
            parts.clock,
            threads=worker_range(settings.workers),
            processes=settings.processes,
            loop=loop,
            lost=self._leave_group,
        )
        self._parts = ListenerParts(parts, settings, listeners, self._dispatch)
        self._listening = self._parts.listening
        pulling = Pulling(
            parts.instance,
            parts.group,
            flags=PullFlag.SUSPEND | (PullFlag.SUBSCRIPTION if settings.subscription_in_pulls else 0),
            max_bytes=settings.pull_batch_bytes,
            wait_ms=settings.pull_wait_ms,
        )
        pull_settings = PullLoopSettings.of(settings, commits_offsets=not settings.broadcast)
        super().__init__(
            parts,
            self._listening,
            pulling,
            pull_settings,
            ConsumeType.CONSUME_PASSIVELY,
            allocator=_allocator(parts, settings),
            locks=self._parts.locks,
            pops=self._parts.pops,
        )

    # lifecycle

    async def start(self) -> None:
        async with AsyncExitStack() as undo:
            if self._tracer is not None:
                self._tracer.start()
                undo.push_async_callback(self._tracer.stop)
            if self._parts.leases is not None:
                self._parts.leases.start()
                undo.push_async_callback(self._parts.leases.stop)
            await super().start()
            undo.pop_all()
        self._listening.start()

    async def stop(self, drain_s: float) -> None:
        if self._leaving is not None and self._leaving is not asyncio.current_task():
            await self._leaving
            return
        await super().stop(drain_s)
        await self._listening.stop()
        await self._dispatch.close()
        if self._tracer is not None:
            await self._tracer.stop()

    def _leave_group(self, error: RuntimeError) -> None:
        """A consumer whose listeners cannot be called must not keep queues."""
        log.error("the event loop of the listeners is closed (%s); the consumer leaves group %s", error, self._group)
        if self._is_running and self._leaving is None:
            self._leaving = asyncio.get_running_loop().create_task(self.stop(0.0))

    # listeners

    async def listen(self, name: TopicName, expression: str | None, kind: str, listener: Listener) -> None:
        """Set the listener of a topic."""
        if self._push.processes is not None:
            require_picklable(listener)
        is_new = name not in self._listeners
        if is_new:
            self._listeners.put(name, listener)  # messages may arrive before the brokers have checked the filter
        try:
            await self.subscribe(name, expression, kind)
        except BaseException:
            if is_new:
                self._listeners.remove(name)
            raise
        self._listeners.put(name, listener)

    async def unlisten(self, name: TopicName) -> None:
        """Leave the queues of a topic, and drop their waiting messages."""
        await self.unsubscribe(name)
        self._listeners.remove(name)

    def pause(self) -> None:
        """Stop pulling and popping; messages that are here are still consumed. Thread-safe."""
        self._set_paused(True)

    def resume(self) -> None:
        self._set_paused(False)

    def _set_paused(self, is_paused: bool) -> None:
        self._pulls.is_paused = is_paused
        if self._pops is not None:
            self._pops.is_paused = is_paused

    async def resize(self, workers: Workers) -> None:
        """Change the number of parallel calls of listeners."""
        if self._push.processes is not None:
            raise UsageError(f"listeners run in {self._push.processes} processes; their number cannot be changed")
        least, most = worker_range(workers)
        self._dispatch.resize(least, most)
        self._listening.resize(most)

    @property
    def core_workers(self) -> int:
        return self._dispatch.least

    @property
    def at_work(self) -> int:
        """Jobs that were submitted and are not finished."""
        return self._dispatch.at_work

    def pauses(self) -> Pauses:
        """How often pulls paused, by cause."""
        found = self._pulls.pauses.snapshot()
        if self._pops is not None:
            found = {cause: count + self._pops.pauses[cause] for cause, count in found.items()}
        return found

    def running_info(self, *, stacks: bool) -> ConsumerRunningInfo:
        info = super().running_info(stacks=stacks)
        if self._parts.leases is None:
            return info
        return replace(info, properties={**info.properties, **self._parts.leases.counts().shown()})

    def leases(self) -> LeaseCounts:
        return LeaseCounts() if self._parts.leases is None else self._parts.leases.counts()

    async def consume_directly(self, message: StoredMessage, broker_name: str | None) -> DirectConsumption:
        listener = self._listeners.of(message)
        if listener is None:
            raise ServerFailed(f"this consumer has no listener for topic {message.topic}")
        queue = MessageQueue(message.topic, broker_name or "", message.queue_id)
        message = replace(message, _queue=queue)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        job = Job(listener, [message], self._clock.monotonic(), setting_result(done))
        if self._dispatch.submit(job):
            await done
        collected = job.collect(self._clock.monotonic())
        if not collected.calls:
            raise ServerFailed("this consumer is stopping; the listener was not called")
        return DirectConsumption(
            order=self._push.ordered,
            auto_commit=self._push.auto_commit,
            consume_result=direct_outcome(collected.result),
            remark=_remark(collected.result),
            spent_time_mills=int(collected.took_s * 1000),
        )


class ListenerParts:
    """The parts of a member that call listeners, and those that pop messages for them."""

    def __init__(
        self,
        parts: MemberParts[PushSettings],
        settings: PushSettings,
        listeners: ListenerTable,
        dispatch: Dispatch,
    ) -> None:
        self._parts = parts
        self._settings = settings
        self.locks: QueueLocks | None = None
        """Of an ordered consumer that pulls."""
        self.leases: LeaseTable | None = None
        self.pops: PopLoops | None = None
        instance, is_ordered = parts.instance, settings.ordered
        events = ConsumeEvents(
            parts.hooks, settings.group, settings.namespace, parts.clock, timeout_ms=settings.consume_timeout_ms
        )
        sender = None
        if not settings.broadcast:
            sender = RetrySender(instance, settings, parts.group, settings.max_reconsume_times, is_orderly=is_ordered)
        pulled = OffsetSettling(parts.offsets, sender, is_ordered=is_ordered)
        if settings.mode == "pull" or sender is None:
            self.locks = QueueLocks(instance, parts.group) if is_ordered and not settings.broadcast else None
            common = ListeningParts(parts.clock, listeners, dispatch, pulled, None, events, parts.stats)
            self.listening = self._new_listening(common, self.locks, None)
            return
        self.leases = LeaseTable(instance.brokers.leases, parts.clock, parts.group, events)
        leased = LeaseSettling(self.leases, sender)
        queues = LeasedQueues(self.leases, leased)
        common = ListeningParts(parts.clock, listeners, dispatch, pulled, leased, events, parts.stats)
        self.listening = self._new_listening(common, queues, queues)
        pull_events = PullEvents(parts.hooks, settings.group, settings.namespace)
        popping = Popping(
            instance, settings, parts.subscriptions, self.leases, pull_events, hold_s=inf, is_ordered=is_ordered
        )
        self.pops = PopLoops(instance, settings, popping, queues, leased, self.listening, pull_events)

    def _new_listening(self, common: ListeningParts, locks: Locks | None, leased: LeasedQueues | None) -> Listening:
        settings, owned = self._settings, self._parts.owned
        if settings.ordered:
            return OrderlyListening(
                common,
                locks,
                workers=settings.max_workers,
                suspend_ms=settings.suspend_ms,
                auto_commit=settings.auto_commit,
            )
        return ConcurrentListening(
            common,
            owned.all if leased is None else lambda: [*owned.all(), *leased.all()],
            workers=settings.processes or settings.max_workers,
            timeout_s=settings.consume_timeout_ms / 1000,
            ahead=PULLS_AHEAD * settings.pull_batch,
        )


def _allocator(parts: MemberParts[PushSettings], settings: PushSettings) -> Allocator:
    if settings.mode == "pull":
        return default_allocator(parts)
    return BrokerAllocator(parts.instance, parts.group, settings.strategy, pops_always=settings.mode == "pop")


def _remark(result: object) -> str | None:
    return f"{type(result).__name__}: {text_of(result)}" if isinstance(result, BaseException) else None


LISTENER_ARGUMENTS: Final = ("tags", "sql", "batch_size")
F = TypeVar("F", bound=Callable[..., Any])


class AsyncPushConsumer(AsyncConsumer[PushMember, PushSettings]):
    """A member of a consumer group that calls listeners with messages.

    The options are those of `PushSettings`; `group` is required. `hooks` are called before and after listeners.
    """

    _listeners_run_here: ClassVar[bool] = True

    def __init__(
        self,
        name_servers: str | Sequence[str] | None = None,
        *,
        hooks: Iterable[Hooks] = (),
        dependencies: Dependencies | None = None,
        **options: Unpack[PushOptions],
    ) -> None:
        refuse_subscribe_arguments(options, LISTENER_ARGUMENTS, "on() and subscribe()")
        super().__init__(PushSettings, name_servers, options, dependencies, is_stream=False)
        settings = self._settings
        self._tracer = (
            Tracer(settings, settings.group, Traced.CONSUMPTION, self._dependencies) if settings.trace else None
        )
        self._hooks = HookList(hooks if self._tracer is None else (*checked_hooks(hooks), self._tracer))
        with_retries = not settings.broadcast and not (settings.mode == "pop" and settings.ordered)
        now_ms = self._dependencies.clock.now_ms()
        self._subscriptions = SubscriptionTable(settings.wire_group, now_ms, with_retries=with_retries)
        self._listeners = ListenerTable(settings.wire_group)

    def _make_member(self, instance: Instance) -> PushMember:
        parts = MemberParts(self._settings, instance, self._dependencies.files, self._subscriptions, self._hooks)
        loop = self._user_loop if self._listeners_run_here else None
        return PushMember(parts, self._settings, self._listeners, self._tracer, loop)

    # subscriptions

    def on(
        self,
        topic: str,
        *,
        tags: str | None = None,
        sql: str | None = None,
        batch_size: int | None = None,
        **unknown: Never,
    ) -> Callable[[F], F]:
        """Decorator: make a function the listener of `topic` before the start. `subscribe` does it at any time.

        `tags` such as `"a || b"`, or `sql`, an expression over properties, select messages; without them the listener gets all.
        With `batch_size` it is called with lists of at most so many messages, else with one message.
        """
        refuse_unknown("on", unknown, LISTENER_ARGUMENTS)

        def register(function: F) -> F:
            self._require_new()
            listener = Listener(function, batch_size, self._settings.namespace)
            filtered = filter_of(topic, tags, sql)
            if self._subscriptions.get(self._wire_topic(topic)) is not None:
                raise UsageError(f"topic {topic!r} has a listener already; each topic has one")
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
        """Set the listener of `topic`, also while running, and also to replace another. The arguments are those of
        `on`.
        """
        refuse_unknown("subscribe", unknown, LISTENER_ARGUMENTS)
        made = Listener(listener, batch_size, self._settings.namespace)
        expression, kind = filter_of(topic, tags, sql)
        if self.is_new:
            self._set_listener(topic, expression, kind, made)
        else:
            await self._run(self._member.listen(self._wire_topic(topic), expression, kind, made))

    def _set_listener(self, topic: str, expression: str | None, kind: str, listener: Listener) -> None:
        name = self._wire_topic(topic)
        self._subscriptions.subscribe(name, expression, kind, now_ms=self._dependencies.clock.now_ms())
        self._listeners.put(name, listener)

    async def unsubscribe(self, topic: str) -> None:
        """Stop consuming `topic`."""
        name = self._wire_topic(topic)
        if self.is_new:
            self._subscriptions.unsubscribe(name)
            self._listeners.remove(name)
        else:
            await self._run(self._member.unlisten(name))

    async def start(self) -> None:
        """Join the group. Retries while servers are away; raises InvalidExpression if a broker rejects a filter."""
        self._require_new()
        if not len(self._listeners):
            raise UsageError(
                "a push consumer needs a listener before its start: use @consumer.on(topic) or subscribe()"
            )
        if self._settings.processes is not None:
            self._listeners.require_picklable()
        await super().start()

    async def run(self) -> None:
        """Start, consume until SIGINT or SIGTERM, then stop and return: a whole program is `asyncio.run(consumer.run())`.

        Several consumers may run at once (`asyncio.gather`): the signal stops all of them. A second signal ends the program.
        `run` also returns after a call of `stop`. Raises WrongState outside the main thread.
        """
        with signals_of_loop() as received:
            try:
                if not self.is_running:
                    await self.start()
                signalled = asyncio.ensure_future(received.wait())
                stopped = asyncio.ensure_future(self.wait())
                try:
                    await asyncio.wait((signalled, stopped), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    signalled.cancel()
                    stopped.cancel()
            finally:
                await self.stop()

    # control

    def pause(self) -> None:
        """Stop pulling until `resume`. Pulled messages are still consumed, and the queues stay assigned."""
        self._member.pause()

    def resume(self) -> None:
        self._member.resume()

    async def set_workers(self, workers: Workers) -> None:
        """Change the number of parallel calls of listeners: a number, or the minimum and maximum of threads."""
        await self._run(self._member.resize(workers))

    @property
    def at_work(self) -> int:
        """Running calls of listeners; a run of short calls counts as one."""
        return self._member.at_work

    @property
    def pauses(self) -> Pauses:
        """How often pulls paused, by cause."""
        return self._member.pauses()

    @property
    def leases(self) -> LeaseCounts:
        """Leased messages, and what became of former ones. All are 0 if the consumer pulls."""
        return self._member.leases()

    async def queues(self) -> list[MessageQueue]:
        """The queues that are assigned to this consumer. One that it pops has the id -1 if it means all of a broker."""
        return [self._names.shown(queue) for queue in await self._run(self._member.owned())]

    async def running_info(self, *, stacks: bool = False) -> ConsumerRunningInfo:
        """The running info that administrators can query."""
        return await self._run(self._member.info(stacks=stacks))
