"""What hooks hear of pulls."""

from tests.client.messages import Unobserved

from pocketmq.client.consumer.consume_events import PullEvents
from pocketmq.client.consumer.flow_limits import PauseCause
from pocketmq.client.consumer.process_queue import ProcessQueue
from pocketmq.client.consumer.pull_position import PullPosition
from pocketmq.client.consumer.pulling import PullResult, PullStatus
from pocketmq.client.hooks import HookList, Hooks, LeaveEvent, PauseEvent, PullEvent
from pocketmq.model.queue import MessageQueue

OWNED = ProcessQueue(PullPosition(MessageQueue("dev%T", "broker-a", 0), 0), Unobserved(), 0.0)
SHOWN = MessageQueue("T", "broker-a", 0)
FOUND = PullResult(PullStatus.FOUND, next_offset=10, min_offset=0, max_offset=25)


class Ear(Hooks):
    def __init__(self) -> None:
        self.heard: list[PullEvent | PauseEvent | LeaveEvent] = []

    def after_pull(self, event: PullEvent) -> None:
        self.heard.append(event)

    def after_pause(self, event: PauseEvent) -> None:
        self.heard.append(event)

    def after_leave(self, event: LeaveEvent) -> None:
        self.heard.append(event)


def test_hooks_hear_names_as_users_know_them() -> None:
    ear = Ear()
    events = PullEvents(HookList([ear]), "G", "dev")

    events.pulled(OWNED, FOUND, 0.5)
    events.paused(OWNED, PauseCause.SPAN)
    events.left(OWNED)

    assert ear.heard == [
        PullEvent(group="G", queue=SHOWN, messages=0, cost_ms=500.0, behind=15, held=0),
        PauseEvent(group="G", queue=SHOWN, cause="span"),
        LeaveEvent(group="G", queue=SHOWN),
    ]


def test_nothing_is_told_when_nobody_watches() -> None:
    hooks = HookList([Hooks()])
    events = PullEvents(hooks, "G", None)

    assert not hooks.watch_pulls
    assert not events.are_watched
    assert not events.has_filters
