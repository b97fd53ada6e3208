"""What hooks hear of consumption: before a listener is called and after, on the loop, whoever makes the call."""

from typing import Any

from pocketmq.client.consume_result import traced_outcome
from pocketmq.client.hooks import ConsumeEvent, HookList
from pocketmq.client.jobs import Messages
from pocketmq.client.listener import as_seen
from pocketmq.clock import Clock
from pocketmq.errors import PocketMQError, UsageError
from pocketmq.model.message import StoredMessage
from pocketmq.model.names import unwrap
from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.trace_text import Outcome


class ConsumeEvents:
    """Tells the hooks of one consumer."""

    def __init__(self, hooks: HookList, group: str, namespace: str | None, clock: Clock, *, timeout_ms: float) -> None:
        self._hooks = hooks
        self.are_watched = hooks.watch_consumption
        self._group = group
        self._namespace = namespace
        self._clock = clock
        self._timeout_ms = timeout_ms

    def before(self, queue: MessageQueue, messages: Messages) -> ConsumeEvent:
        seen = [self._seen(message) for message in messages]
        event = ConsumeEvent(
            group=self._group,
            messages=seen,
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

    def _seen(self, message: StoredMessage) -> StoredMessage:
        try:
            return as_seen(message, self._namespace)
        except PocketMQError:
            return message  # its body is damaged, which the listener will hear of
