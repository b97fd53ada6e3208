"""What hooks hear of pulls: how much they brought, why they waited, and when a queue is not pulled any more. They may filter, too."""

from operator import attrgetter

from msgspec.structs import replace

from pocketmq.client.flow_limits import PauseCause
from pocketmq.client.hooks import FilterEvent, HookList, LeaveEvent, PauseEvent, PullEvent
from pocketmq.client.owned_queue import OwnedQueue
from pocketmq.client.pulling import PullResult
from pocketmq.client.queue_names import QueueNames
from pocketmq.model.queue import MessageQueue


class PullEvents:
    """Tells the hooks of one consumer. When nobody watches, each call is one look."""

    def __init__(self, hooks: HookList, group: str, namespace: str | None) -> None:
        self._hooks = hooks
        self._group = group
        self._names = QueueNames(namespace)
        self._are_watched = hooks.watch_pulls
        self._filters = hooks.filters

    def filtered(self, queue: MessageQueue, result: PullResult) -> PullResult:
        """The same without the messages that a hook takes away."""
        if not self._filters or not result.messages:
            return result
        event = FilterEvent(group=self._group, queue=self._names.shown(queue), messages=result.messages)
        self._hooks.filter_messages(event)
        # In their order in the queue, whatever the hook did: a message behind a later one counts as pulled before, and is dropped.
        return replace(result, messages=sorted(event.messages, key=attrgetter("queue_offset")))

    def pulled(self, owned: OwnedQueue, result: PullResult, took_s: float) -> None:
        """After what it brought was taken in."""
        if self._are_watched:
            event = PullEvent(
                group=self._group,
                queue=self._names.shown(owned.queue),
                messages=len(result.messages),
                cost_ms=took_s * 1000,
                behind=max(0, result.max_offset - result.next_offset),
                held=owned.flight.count,
            )
            self._hooks.after_pull(event)

    def paused(self, owned: OwnedQueue, cause: PauseCause) -> None:
        if self._are_watched:
            event = PauseEvent(group=self._group, queue=self._names.shown(owned.queue), cause=cause)
            self._hooks.after_pause(event)

    def left(self, owned: OwnedQueue) -> None:
        if self._are_watched:
            self._hooks.after_leave(LeaveEvent(group=self._group, queue=self._names.shown(owned.queue)))
