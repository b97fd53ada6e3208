"""What hooks hear of pulls: how much they brought, why they waited, and when a queue is not pulled any more."""

from pocketmq.client.flow_limits import PauseCause
from pocketmq.client.hooks import HookList, LeaveEvent, PauseEvent, PullEvent
from pocketmq.client.owned_queue import OwnedQueue
from pocketmq.client.pulling import PullResult
from pocketmq.client.queue_names import QueueNames


class PullEvents:
    """Tells the hooks of one consumer. When nobody watches, each call is one look."""

    def __init__(self, hooks: HookList, group: str, namespace: str | None) -> None:
        self._hooks = hooks
        self._group = group
        self._names = QueueNames(namespace)
        self._are_watched = hooks.watch_pulls

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
