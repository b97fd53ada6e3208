"""What hooks and the log hear of consumption, on the loop, whoever makes the call: before a listener is called, after, and its failure."""

import logging
from types import TracebackType
from typing import Any

from pocketmq.client.consume_result import traced_outcome
from pocketmq.client.hooks import ConsumeEvent, HookList
from pocketmq.client.jobs import Messages
from pocketmq.client.listener import Listener, as_seen
from pocketmq.client.send_backs import original_topic
from pocketmq.clock import Clock
from pocketmq.errors import PocketMQError, UsageError
from pocketmq.model.message import StoredMessage
from pocketmq.model.names import unwrap
from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.trace_text import Outcome

log = logging.getLogger("pocketmq.client")

_OURS = ("pocketmq.client.", "pocketmq.net.")
"""Modules whose lines say nothing about a user's listener."""


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

    def failed(self, listener: Listener | None, queue: MessageQueue, messages: Messages, error: BaseException) -> None:
        """Log the failure of a call, with the lines of the traceback that are the user's."""
        first = messages[0]
        log.warning(
            "listener %s of group %s failed on message %s of topic %s (queue %s, attempt %d)",
            "for another topic" if listener is None else listener.name,
            self._group,
            ", ".join(message.message_id for message in messages),
            unwrap(self._namespace, original_topic(first)),
            queue,
            first.reconsume_times + 1,
            exc_info=(type(error), error, users_lines(error.__traceback__)),
        )

    def _seen(self, message: StoredMessage) -> StoredMessage:
        try:
            return as_seen(message, self._namespace)
        except PocketMQError:
            return message  # its body is damaged, which the listener will hear of


def users_lines(traceback: TracebackType | None) -> TracebackType | None:
    """A traceback without the lines of this client; None when no others are left."""
    if traceback is None:
        return None
    rest = users_lines(traceback.tb_next)
    if traceback.tb_frame.f_globals.get("__name__", "").startswith(_OURS):
        return rest
    return TracebackType(rest, traceback.tb_frame, traceback.tb_lasti, traceback.tb_lineno)
