"""What hooks and the log hear of a consumer, always on its loop.

pulls         how much each brought, why it waited, and when a queue is not pulled any more; a hook may take messages away
consumption   before a listener is called, after, and its failure, whoever makes the call
"""

import logging
from collections.abc import Sequence
from operator import attrgetter
from types import TracebackType
from typing import Any

from msgspec.structs import replace

from pocketmq.client.cluster.routes import QueueNames
from pocketmq.client.consumer.consume_result import traced_outcome
from pocketmq.client.consumer.flow_limits import PauseCause
from pocketmq.client.consumer.listener import Listener, as_seen
from pocketmq.client.consumer.process_queue import ProcessQueue
from pocketmq.client.consumer.pulling import PullResult
from pocketmq.client.hooks import ConsumeEvent, FilterEvent, HookList, LeaveEvent, PauseEvent, PullEvent
from pocketmq.client.received import original_topic
from pocketmq.clock import Clock
from pocketmq.errors import PocketMQError, UsageError
from pocketmq.model.message import StoredMessage
from pocketmq.model.names import unwrap
from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.trace_text import Outcome

log = logging.getLogger("pocketmq.client")

_OURS = ("pocketmq.client.", "pocketmq.net.")
"""Modules whose lines say nothing about a user's listener."""

Messages = Sequence[StoredMessage]


class PullEvents:
    """Tells the hooks of one consumer what its pulls come to. Whoever calls looks first whether anybody is there to hear it."""

    def __init__(self, hooks: HookList, group: str, namespace: str | None) -> None:
        self._hooks = hooks
        self._group = group
        self._names = QueueNames(namespace)
        self.are_watched = hooks.watch_pulls
        self.has_filters = hooks.filters

    def filtered(self, queue: MessageQueue, result: PullResult) -> PullResult:
        """The same without the messages that a hook takes away."""
        if not result.messages:
            return result
        event = FilterEvent(group=self._group, queue=self._names.shown(queue), messages=result.messages)
        self._hooks.filter_messages(event)
        if not isinstance(event.messages, Sequence) or not all(
            isinstance(one, StoredMessage) for one in event.messages
        ):
            log.error(
                "a hook set the messages of %s to %r, which is no list of messages; all are handled",
                queue,
                event.messages,
            )
            return result
        # In their order in the queue, whatever the hook did: a message behind a later one counts as pulled before, and is dropped.
        return replace(result, messages=sorted(event.messages, key=attrgetter("queue_offset")))

    def pulled(self, owned: ProcessQueue, result: PullResult, took_s: float) -> None:
        """After what it brought was taken in."""
        event = PullEvent(
            group=self._group,
            queue=self._names.shown(owned.queue),
            messages=len(result.messages),
            cost_ms=took_s * 1000,
            behind=max(0, result.max_offset - result.next_offset),
            held=owned.count,
        )
        self._hooks.after_pull(event)

    def paused(self, owned: ProcessQueue, cause: PauseCause) -> None:
        self._hooks.after_pause(PauseEvent(group=self._group, queue=self._names.shown(owned.queue), cause=cause))

    def left(self, owned: ProcessQueue) -> None:
        self._hooks.after_leave(LeaveEvent(group=self._group, queue=self._names.shown(owned.queue)))


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
