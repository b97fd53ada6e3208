"""The events of pulls for hooks."""

from pocketmq.client.consumer.flow_limits import PauseCause
from pocketmq.client.consumer.pulling import PullEvents, PullResult, PullStatus
from pocketmq.client.hooks import HookList, Hooks, LeaveEvent, PauseEvent, PullEvent
from pocketmq.model.queue import MessageQueue

QUEUE = MessageQueue("dev%T", "broker-a", 0)
SHOWN = MessageQueue("T", "broker-a", 0)
FOUND = PullResult(PullStatus.FOUND, next_offset=10, min_offset=0, max_offset=25)


class Recorder(Hooks):
    def __init__(self) -> None:
        self.events: list[PullEvent | PauseEvent | LeaveEvent] = []

    def after_pull(self, event: PullEvent) -> None:
        self.events.append(event)

    def after_pause(self, event: PauseEvent) -> None:
        self.events.append(event)

    def after_leave(self, event: LeaveEvent) -> None:
        self.events.append(event)


def test_hooks_get_names_without_the_namespace() -> None:
    recorder = Recorder()
    events = PullEvents(HookList([recorder]), "G", "dev")

    events.pulled(QUEUE, 0, FOUND, 0.5)
    events.paused(QUEUE, PauseCause.SPAN)
    events.left(QUEUE)

    assert recorder.events == [
        PullEvent(group="G", queue=SHOWN, messages=0, cost_ms=500.0, behind=15, cached=0),
        PauseEvent(group="G", queue=SHOWN, cause="span"),
        LeaveEvent(group="G", queue=SHOWN),
    ]


def test_without_hooks_no_events_are_created() -> None:
    hooks = HookList([Hooks()])
    events = PullEvents(hooks, "G", None)

    assert not hooks.watch_pulls
    assert not events.are_watched
    assert not events.has_filters
