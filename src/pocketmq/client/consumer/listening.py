"""Listening: what concurrent and orderly consumption have in common.

process queue ── arrived ──► listening ── job ──► dispatch ──► listener ── result ──► listening ──► offsets, retries
"""

import logging
from abc import ABC, abstractmethod
from typing import NamedTuple

from pocketmq.client.consumer.consume_events import ConsumeEvents
from pocketmq.client.consumer.consume_stats import ConsumeStats
from pocketmq.client.consumer.dispatch import Dispatch
from pocketmq.client.consumer.jobs import Call
from pocketmq.client.consumer.listener import ListenerTable
from pocketmq.client.consumer.offsets import Offsets
from pocketmq.client.consumer.process_queue import ProcessQueue
from pocketmq.client.consumer.retry_sender import RetrySender
from pocketmq.clock import Clock
from pocketmq.errors import UsageError

log = logging.getLogger("pocketmq.client")


class ListeningParts(NamedTuple):
    """What both kinds work with. `retry_sender` None: a broadcasting consumer, which has no retries."""

    clock: Clock
    listeners: ListenerTable
    dispatch: Dispatch
    offsets: Offsets
    retry_sender: RetrySender | None
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
        self._offsets = parts.offsets
        self._retry_sender = parts.retry_sender
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

    def _report_exception(self, owned: ProcessQueue, call: Call) -> None:
        self._events.failed(self._listeners.of(call.messages[0]), owned.queue, call.messages, call.result)

    def _report_invalid(self, owned: ProcessQueue, error: UsageError) -> None:
        log.error("invalid result of the listener of topic %s: %s; its messages are retried", owned.queue.topic, error)
