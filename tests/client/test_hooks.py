"""Hooks: only those that are there are called, in order, and none can do harm."""

import pytest

from pocketmq.client.hooks import (
    ConsumeEvent,
    DecisionEvent,
    HookList,
    Hooks,
    LeaveEvent,
    PauseEvent,
    PullEvent,
    SendEvent,
)
from pocketmq.model.flags import TransactionState
from pocketmq.model.message import Message
from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.trace_text import TracedType

QUEUE = MessageQueue("T", "b", 0)
SENT = SendEvent(
    group="g",
    messages=[Message("T", b"x")],
    message_ids=["id"],
    queue=QUEUE,
    address="a:1",
    kind=TracedType.NORMAL,
    body_bytes=1,
    started_ms=0,
    started=0.0,
)
CONSUMED = ConsumeEvent(group="g", messages=[], queue=QUEUE, started_ms=0)
DECIDED = DecisionEvent(
    group="g",
    message=Message("T", b"x"),
    topic="T",
    message_id="id",
    transaction_id=None,
    state=TransactionState.COMMIT,
    address="a:1",
    at_ms=0,
    from_check=False,
)


PULLED = PullEvent(group="g", queue=QUEUE, messages=0, cost_ms=0, behind=0, held=0)
PAUSED = PauseEvent(group="g", queue=QUEUE, cause="span")
LEFT = LeaveEvent(group="g", queue=QUEUE)


def tell_all(hooks: HookList | Hooks) -> None:
    hooks.before_send(SENT)
    hooks.after_send(SENT)
    hooks.before_consume(CONSUMED)
    hooks.after_consume(CONSUMED)
    hooks.after_decision(DECIDED)
    hooks.after_pull(PULLED)
    hooks.after_pause(PAUSED)
    hooks.after_leave(LEFT)


def test_a_list_without_hooks_watches_nothing() -> None:
    hooks = HookList([Hooks()])

    assert not (hooks.watch_sends)
    assert not (hooks.watch_consumption)
    assert not (hooks.watch_decisions)
    assert not (hooks.watch_pulls)
    tell_all(hooks)
    tell_all(Hooks())


def test_hooks_are_called_in_order_and_a_failing_one_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    told: list[str] = []

    class Failing(Hooks):
        def after_send(self, event: SendEvent) -> None:
            told.append("failing")
            raise ValueError

    class All(Hooks):
        def before_send(self, event: SendEvent) -> None:
            told.append("before send")

        def after_send(self, event: SendEvent) -> None:
            told.append("after send")

        def before_consume(self, event: ConsumeEvent) -> None:
            told.append("before consume")

        def after_consume(self, event: ConsumeEvent) -> None:
            told.append("after consume")

        def after_decision(self, event: DecisionEvent) -> None:
            told.append("decision")

    hooks = HookList([Failing(), All()])
    tell_all(hooks)

    assert hooks.watch_sends
    assert hooks.watch_consumption
    assert hooks.watch_decisions
    assert told == ["before send", "failing", "after send", "before consume", "after consume", "decision"]
    assert "the message goes its way" in caplog.records[0].message


def test_what_a_hook_wants_carried_and_nothing_can_carry_is_left_behind(caplog: pytest.LogCaptureFixture) -> None:
    class Carrying(Hooks):
        def __init__(self, **properties: str) -> None:
            self._properties = properties

        def carry(self, message: Message) -> dict[str, str]:
            return self._properties

    hooks = HookList([Carrying(first="1"), Carrying(KEYS="reserved"), Carrying(empty=""), Carrying(last="2")])
    message = Message("T", b"x", properties={"own": "0"})

    assert hooks.carrying(message).properties == {"own": "0", "first": "1", "last": "2"}
    assert message.properties == {"own": "0"}
    assert len(caplog.records) == 2
