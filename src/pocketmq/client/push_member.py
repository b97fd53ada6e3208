"""A member of a group whose messages are brought to listeners: what push consumers are made of.

process queues ──► listening, concurrent or orderly ──► workers ──► listeners
                      ├──► offsets
                      └──► send-backs ──► retry topic, dead letters
"""

import asyncio
import logging
from collections.abc import Iterable
from typing import Any, Final

from msgspec.structs import replace

from pocketmq.client.concurrent_listening import ConcurrentListening
from pocketmq.client.consume_events import ConsumeEvents
from pocketmq.client.consume_result import direct_outcome, words_of
from pocketmq.client.consumer_settings import PushSettings, Workers, worker_range
from pocketmq.client.flow_limits import PauseCause
from pocketmq.client.group_member import GroupMember
from pocketmq.client.hooks import HookList, Hooks
from pocketmq.client.instance import Surroundings
from pocketmq.client.jobs import Job
from pocketmq.client.listener import Listener
from pocketmq.client.listeners import Listeners, ListenerWorkers, require_movable
from pocketmq.client.orderly_listening import OrderlyListening
from pocketmq.client.owned_queue import OwnedQueue
from pocketmq.client.process_queue import ProcessQueue
from pocketmq.client.pull_loop import PullWishes
from pocketmq.client.pulling import Pulling
from pocketmq.client.queue_locks import FIRST_RENEWAL_S, RENEW_S, QueueLocks
from pocketmq.client.sending_back import SendBacks
from pocketmq.client.tracing import Traced, Tracer
from pocketmq.errors import ServerFailed, UsageError
from pocketmq.model.flags import PullFlag
from pocketmq.model.message import StoredMessage
from pocketmq.model.queue import MessageQueue
from pocketmq.net.repeating import Repeating
from pocketmq.protocol.bodies.heartbeat import ConsumeType
from pocketmq.protocol.bodies.running_info import ConsumeOutcome, DirectConsumption

log = logging.getLogger("pocketmq.client")

PULLS_AHEAD: Final = 4
"""So many pulls of a queue may wait for listeners before the next gives them time. With one, a far broker would keep them waiting."""


class PushMember(GroupMember):
    """`loop`, which may be set before the start, is where `async def` listeners run; None: on a loop of their own."""

    consume_type = ConsumeType.CONSUME_PASSIVELY

    def __init__(
        self,
        settings: PushSettings,
        hooks: Iterable[Hooks],
        around: Surroundings,
    ) -> None:
        self._tracer = Tracer(settings, settings.group, Traced.CONSUMPTION, around) if settings.trace else None
        all_hooks = HookList((*hooks, self._tracer) if self._tracer is not None else hooks)
        super().__init__(settings, all_hooks, around, with_retries=not settings.broadcast, is_stream=False)
        self._push = settings
        self.loop: asyncio.AbstractEventLoop | None = None
        self._listeners = Listeners()
        self._direct: dict[Job, asyncio.Future[None]] = {}
        self._queue_locks: QueueLocks | None = None
        self._leaving_task: asyncio.Task[None] | None = None
        self._workers: ListenerWorkers
        self._listening: ConcurrentListening | OrderlyListening

    # its life

    async def start(self) -> None:
        if not len(self._listeners):
            raise UsageError("a push consumer needs a listener before it is started: @consumer.on(topic), or subscribe")
        if self._push.processes is not None:
            self._listeners.require_movable()
        if self._tracer is not None:
            self._tracer.start()
        try:
            await super().start()
        except BaseException:
            if self._tracer is not None:
                await self._tracer.stop()
            raise
        self._listening.start()

    async def stop(self, drain_s: float) -> None:
        if self._leaving_task is not None and self._leaving_task is not asyncio.current_task():
            await self._leaving_task  # it left by itself
            return
        await super().stop(drain_s)
        await self._listening.stop()
        await self._workers.close()
        if self._tracer is not None:
            await self._tracer.stop()

    def _prepare(self) -> None:
        settings, instance = self._push, self._instance
        self._workers = ListenerWorkers(
            self._finished,
            self._clock,
            threads=worker_range(settings.workers),
            processes=settings.processes,
            loop=self.loop,
        )
        events = ConsumeEvents(
            self._hooks, settings.group, settings.namespace, self._clock, timeout_ms=settings.consume_timeout_ms
        )
        send_backs = None
        if not settings.broadcast:
            send_backs = SendBacks(
                instance, settings, self._group, settings.max_reconsume_times, is_orderly=settings.ordered
            )
        if settings.ordered:
            self._listening = OrderlyListening(
                self._clock,
                self._listeners,
                self._submit,
                self._offsets,
                send_backs,
                self._queue_locks,
                events,
                self._stats,
                workers=settings.max_workers,
                suspend_ms=settings.suspend_ms,
                auto_commit=settings.auto_commit,
            )
            if self._queue_locks is not None:
                self._rounds.append(
                    Repeating("renewing of locks", RENEW_S, self._renew_locks, log, first_s=FIRST_RENEWAL_S)
                )
        else:
            self._listening = ConcurrentListening(
                self._clock,
                self._listeners,
                self._submit,
                self._offsets,
                send_backs,
                events,
                self._stats,
                self._assignment.all,
                workers=settings.processes or settings.max_workers,
                timeout_s=settings.consume_timeout_ms / 1000,
                ahead=PULLS_AHEAD * settings.pull_batch,
            )

    def _pulling(self) -> Pulling:
        flags = PullFlag.SUSPEND | (PullFlag.SUBSCRIPTION if self._push.subscription_in_pulls else 0)
        return Pulling(
            self._instance,
            self._group,
            flags=flags,
            max_bytes=self._push.pull_batch_bytes,
            wait_ms=self._push.pull_wait_ms,
        )

    def _pull_wishes(self) -> PullWishes:
        settings = self._push
        return PullWishes(
            batch=settings.pull_batch,
            interval_s=None if settings.pull_interval_ms is None else settings.pull_interval_ms / 1000,
            retry_s=settings.pull_retry_ms / 1000,
            timeout_s=settings.pull_timeout_ms / 1000,
            limits=settings.limits,
            tells_offsets=not settings.broadcast,
        )

    def _locks(self) -> QueueLocks | None:
        if self._push.ordered and not self._push.broadcast:
            self._queue_locks = QueueLocks(self._instance, self._group)
        return self._queue_locks

    async def _renew_locks(self) -> None:
        assert self._queue_locks is not None
        await self._queue_locks.renew(self._assignment.all())

    # listening

    def add_listener(self, topic: str, expression: str | None, kind: str, listener: Listener) -> None:
        """Before the start: give the messages of `topic` to `listener`. UsageError when there is another for it."""
        if self._subscriptions.get(self.wire_topic(topic)) is not None:
            raise UsageError(f"there is a listener for topic {topic!r} already; each topic has one")
        self.set_listener(topic, expression, kind, listener)

    def set_listener(self, topic: str, expression: str | None, kind: str, listener: Listener) -> None:
        """The same, also instead of another."""
        name = self.wire_topic(topic)
        self.want(name, expression, kind)
        self._listeners.put(name, listener)

    async def listen(self, topic: str, expression: str | None, kind: str, listener: Listener) -> None:
        """While running: give the messages of `topic` to `listener` from now on."""
        if self._push.processes is not None:
            require_movable(listener)
        name = self.wire_topic(topic)
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

    async def unlisten(self, topic: str) -> None:
        """Its queues are left; what is here of them and not in work is dropped."""
        name = self.wire_topic(topic)
        self.unsubscribe(name)
        self._listeners.remove(name)

    def pause(self) -> None:
        """Pull nothing more; what is here is still handled."""
        self._pulls.is_paused = True

    def resume(self) -> None:
        self._pulls.is_paused = False

    async def resize(self, workers: Workers) -> None:
        """So many calls of listeners at the same time from now on."""
        if self._push.processes is not None:
            raise UsageError(f"listeners run in {self._push.processes} processes, whose number is fixed at the start")
        least, most = worker_range(workers)
        self._workers.resize(least, most)
        self._listening.resize(most)

    @property
    def core_workers(self) -> int:
        return self._workers.least

    @property
    def at_work(self) -> int:
        """Jobs that workers have now."""
        return self._workers.at_work

    def pauses(self) -> dict[PauseCause, int]:
        """How often pulls waited, and why."""
        return self._pulls.pauses.snapshot()

    def _arrived(self, owned: OwnedQueue) -> None:
        self._listening.arrived(owned)

    def _submit(self, job: Job) -> None:
        try:
            self._workers.submit(job)
        except RuntimeError as error:
            # Whoever ended the loop forgot this consumer. It must not keep queues whose messages nobody can handle.
            log.error("the loop of the listeners is gone, so this consumer leaves its group: %s", error)
            if self._is_running and self._leaving_task is None:
                self._leaving_task = asyncio.get_running_loop().create_task(self.stop(0.0))

    def _finished(self, job: Job) -> None:
        future = self._direct.pop(job, None)
        if future is None:
            self._listening.finished(job)
        elif not future.done():
            future.set_result(None)

    async def consume_directly(self, message: StoredMessage, broker_name: str | None) -> DirectConsumption:
        listener = self._listeners.of(message)
        if listener is None:
            raise ServerFailed(f"no listener of this member is for topic {message.topic}")
        queue = MessageQueue(message.topic, broker_name or "", message.queue_id)
        message = replace(message, _queue=queue)
        now = self._clock.monotonic()
        owned = OwnedQueue(queue, ProcessQueue(now), message.queue_offset)
        job = Job(owned, listener, [message], now, stops_at_failure=False)
        done = self._direct[job] = asyncio.get_running_loop().create_future()
        self._workers.submit(job)
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


def _outcome(result: Any) -> ConsumeOutcome:
    try:
        return direct_outcome(result)
    except UsageError:
        return ConsumeOutcome.CR_THROW_EXCEPTION


def _remark(result: object) -> str | None:
    return f"{type(result).__name__}: {words_of(result)}" if isinstance(result, BaseException) else None
