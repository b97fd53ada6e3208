"""Consumption events for hooks and the log: before and after each call of a listener, and failures.

They are created on the event loop of the network.
"""

import logging
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from pocketmq.client.consumer.consume_result import traced_outcome
from pocketmq.client.consumer.listener import Listener, for_user
from pocketmq.client.hooks import ConsumeEvent, HookList
from pocketmq.client.received import original_topic
from pocketmq.clock import Clock
from pocketmq.errors import PocketMQError, UsageError
from pocketmq.model import MessageQueue, StoredMessage
from pocketmq.model.names import unwrap
from pocketmq.protocol.trace_text import Outcome

log = logging.getLogger("pocketmq.client")

_OURS = ("pocketmq.client.", "pocketmq.net.")
"""Modules whose frames are removed from tracebacks of listeners."""

Messages = Sequence[StoredMessage]


class ConsumeEvents:
    """Consumption events of one consumer."""

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


def user_frames(traceback: TracebackType | None) -> TracebackType | None:
    """A traceback without the frames of this client; None if it has no others."""
    if traceback is None:
        return None
    rest = user_frames(traceback.tb_next)
    if traceback.tb_frame.f_globals.get("__name__", "").startswith(_OURS):
        return rest
    return TracebackType(rest, traceback.tb_frame, traceback.tb_lasti, traceback.tb_lineno)
