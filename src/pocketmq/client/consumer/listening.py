"""Listening: what concurrent and orderly consumption have in common, and their events for hooks and the log.

process queue ── arrived ──► listening ── job ──► dispatch ──► listener ── result ──► listening ──► settling

Settling is what differs between messages that were pulled and those that brokers leased: see `settling`.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

from pocketmq.client.consumer.consume_result import Verdict, traced_outcome, user_frames
from pocketmq.client.consumer.consume_stats import ConsumeStats
from pocketmq.client.consumer.dispatch import Dispatch
from pocketmq.client.consumer.flow_limits import lease_limit
from pocketmq.client.consumer.jobs import Call
from pocketmq.client.consumer.listener import Listener, ListenerTable, for_user
from pocketmq.client.consumer.process_queue import ProcessQueue
from pocketmq.client.hooks import ConsumeEvent, HookList, LeaseChange, LeaseEvent
from pocketmq.client.received import original_topic
from pocketmq.clock import Clock
from pocketmq.errors import PocketMQError, UsageError
from pocketmq.model import MessageQueue, StoredMessage
from pocketmq.model.names import unwrap
from pocketmq.protocol.trace_text import Outcome

log = logging.getLogger("pocketmq.client")

Messages = Sequence[StoredMessage]


class ConsumeEvents:
    """Events before and after each call of a listener, and failures. Made on the event loop of the network."""

    def __init__(self, hooks: HookList, group: str, namespace: str | None, clock: Clock, *, timeout_ms: float) -> None:
        self._hooks = hooks
        self.are_watched = hooks.watch_consumption
        self._group = group
        self._namespace = namespace
        self._clock = clock
        self._timeout_ms = timeout_ms

    def before(self, queue: MessageQueue, messages: Messages) -> ConsumeEvent:
        event = ConsumeEvent(
            group=self._group,
            messages=[self._for_user(message) for message in messages],
            queue=MessageQueue(unwrap(self._namespace, queue.topic), queue.broker_name, queue.queue_id),
            started_ms=self._clock.now_ms(),
        )
        self._hooks.before_consume(event)
        return event

    def after(self, event: ConsumeEvent, result: Any, took_s: float) -> None:
        """`result` is what the listener returned or raised."""
        event.cost_ms = took_s * 1000
        if isinstance(result, BaseException):
            event.error = result
        try:
            event.outcome = traced_outcome(result, event.cost_ms, self._timeout_ms)
        except UsageError as error:
            event.error, event.outcome = error, Outcome.FAILED
        self._hooks.after_consume(event)

    def lease_changed(self, topic: str, change: LeaseChange, messages: int) -> None:
        if self._hooks.watch_leases:
            name = unwrap(self._namespace, topic)
            self._hooks.after_lease(LeaseEvent(group=self._group, topic=name, change=change, messages=messages))

    def failed(self, listener: Listener | None, queue: MessageQueue, messages: Messages, error: BaseException) -> None:
        """Log a failed call, with the traceback of the user's code."""
        first = messages[0]
        log.warning(
            "listener %s of group %s failed on message %s of topic %s (queue %s, attempt %d)",
            "for another topic" if listener is None else listener.name,
            self._group,
            ", ".join(message.message_id for message in messages),
            unwrap(self._namespace, original_topic(first)),
            queue,
            first.reconsume_times + 1,
            exc_info=(type(error), error, user_frames(error.__traceback__)),
        )

    def _for_user(self, message: StoredMessage) -> StoredMessage:
        try:
            return for_user(message, self._namespace)
        except PocketMQError:
            return message  # unreadable, which the call will report


class Settling(ABC):
    """What follows when listeners returned for messages of a process queue: `OffsetSettling` or `LeaseSettling`."""

    max_times: int
    """Attempts after the first one, before a message becomes a dead letter."""
    has_retries: bool
    """False for broadcasting consumers: their failed messages are dropped."""

    @abstractmethod
    def may_call(self, messages: Messages) -> bool:
        """Whether a listener may be called with these messages now. Called in its thread."""

    @abstractmethod
    def handled(self, owned: ProcessQueue, messages: Messages, now: float) -> None:
        """These messages are done."""

    @abstractmethod
    def sent_back(self, owned: ProcessQueue, messages: Messages, now: float) -> None:
        """The broker has these messages again, or they are dropped."""

    @abstractmethod
    def commit(self, owned: ProcessQueue, now: float) -> None:
        """All messages that were taken are done. For ordered consumers without automatic commits."""

    @abstractmethod
    async def send_back(self, owned: ProcessQueue, message: StoredMessage, verdict: Verdict) -> bool:
        """Whether the broker delivers the message again, or has it among the dead letters."""

    @abstractmethod
    def release(self, messages: Messages) -> None:
        """No listener gets these messages here any more: let other members have them soon."""

    @abstractmethod
    async def send_dead_letter(self, message: StoredMessage, reason: str) -> bool:
        """Copy an ordered message to the dead letters. Whether it worked."""


class ListeningParts(NamedTuple):
    """What both kinds work with. `leased` None: the consumer does not pop."""

    clock: Clock
    listeners: ListenerTable
    dispatch: Dispatch
    pulled: Settling
    leased: Settling | None
    events: ConsumeEvents
    stats: ConsumeStats


class Listening(ABC):
    """Calls listeners with the messages of all assigned queues, as the observer of these queues."""

    OLD_WEIGHT = 0.8
    """The weight of the old mean duration of calls in the new one."""

    def __init__(self, parts: ListeningParts) -> None:
        self._clock = parts.clock
        self._listeners = parts.listeners
        self._dispatch = parts.dispatch
        self._settling = {False: parts.pulled}
        """By `is_leased` of a process queue."""
        if parts.leased is not None:
            self._settling[True] = parts.leased
        self._events = parts.events
        self._stats = parts.stats
        self._mean_s: float | None = None

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    async def stop(self) -> None:
        """Start no more calls, without waiting for the running ones."""

    @abstractmethod
    def resize(self, workers: int) -> None:
        """Change the number of parallel calls. Running calls continue."""

    @abstractmethod
    def arrived(self, owned: ProcessQueue) -> int | None:
        """See `QueueObserver`."""

    @abstractmethod
    def deactivated(self, owned: ProcessQueue) -> None: ...

    @abstractmethod
    def _parallel_calls(self) -> int:
        """The largest number of parallel calls."""

    def lease_limit(self) -> int:
        """How many leased messages keep the workers busy."""
        return lease_limit(self._parallel_calls(), self._listeners.largest_batch, self._mean_s)

    def _release_if_inactive(self, owned: ProcessQueue) -> None:
        """Leased messages that were requeued after their topic was unsubscribed: nothing else would end their leases."""
        if owned.is_leased and not owned.is_active and owned.waiting:
            now = self._clock.monotonic()
            waiting = owned.take(owned.waiting, now)
            owned.finish(waiting, now)
            self._settling[owned.is_leased].release(waiting)

    def _report_exception(self, owned: ProcessQueue, call: Call) -> None:
        self._events.failed(self._listeners.of(call.messages[0]), owned.queue, call.messages, call.result)

    def _report_invalid(self, owned: ProcessQueue, error: UsageError) -> None:
        log.error("invalid result of the listener of topic %s: %s; its messages are retried", owned.queue.topic, error)
