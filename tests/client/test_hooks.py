"""Hooks: only existing ones are called, in order, and an error of one has no effect on the client."""

import re
from typing import Any

import pytest
from tests.client.kit import cluster
from tests.client.real_cluster import Basket, real_cluster, until

import pocketmq
from pocketmq.client.hooks import (
    ConsumeEvent,
    DecisionEvent,
    FilterEvent,
    HookList,
    Hooks,
    LeaveEvent,
    PauseEvent,
    PullEvent,
    RpcHook,
    SendEvent,
)
from pocketmq.codes import RequestCode, TransactionState
from pocketmq.errors import InvalidSetting
from pocketmq.model.message import Message
from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.command import Command
from pocketmq.protocol.signing import Credentials, signed_fields
from pocketmq.protocol.trace_text import TracedType
from pocketmq.testing import run

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


PULLED = PullEvent(group="g", queue=QUEUE, messages=0, cost_ms=0, behind=0, cached=0)
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


def test_a_list_without_hooks_creates_no_events() -> None:
    hooks = HookList([Hooks()])

    assert not (hooks.watch_sends)
    assert not (hooks.watch_consumption)
    assert not (hooks.watch_decisions)
    assert not (hooks.watch_pulls)
    tell_all(hooks)
    tell_all(Hooks())


def test_hooks_are_called_in_order_and_a_failing_one_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
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
    assert "the message continues without it" in caplog.records[0].message


def test_properties_of_a_hook_that_cannot_be_added_are_dropped(caplog: pytest.LogCaptureFixture) -> None:
    class Carrying(Hooks):
        def __init__(self, **properties: str) -> None:
            self._properties = properties

        def extra_properties(self, message: Message) -> dict[str, str]:
            return self._properties

    hooks = HookList([Carrying(first="1"), Carrying(KEYS="reserved"), Carrying(empty=""), Carrying(last="2")])
    message = Message("T", b"x", properties={"own": "0"})

    assert hooks.with_extra_properties(message).properties == {"own": "0", "first": "1", "last": "2"}
    assert message.properties == {"own": "0"}
    assert len(caplog.records) == 2


# messages that a hook takes away


class Even(Hooks):
    def filter_messages(self, event: FilterEvent) -> None:
        assert event.group == "G"
        assert event.queue.broker_name == "broker-a"
        event.messages = [message for message in event.messages if int(message.body) % 2 == 0]


@pytest.mark.parametrize("options", [{}, {"ordered": True}, {"pull_interval_ms": 1}], ids=["runs", "ordered", "alone"])
def test_messages_removed_by_a_hook_are_not_handled_and_count_as_consumed(options: dict[str, Any]) -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            basket = Basket()
            await c.send("T", *(b"%d" % number for number in range(10)))
            consumer = c.push_consumer(start_at="first", hooks=[Even()], **options)
            consumer.on("T")(basket)
            async with consumer:
                await until(lambda: c.committed("G", "T", 0) == 10)

            assert basket.bodies == [b"0", b"2", b"4", b"6", b"8"]

    run(main())


class Backwards(Hooks):
    def filter_messages(self, event: FilterEvent) -> None:
        event.messages = reversed(event.messages)  # type: ignore[assignment]


def test_a_hook_that_sorts_messages_loses_none() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            basket = Basket()
            bodies = [b"%d" % number for number in range(5)]
            await c.send("T", *bodies)
            consumer = c.push_consumer(start_at="first", hooks=[Backwards()], ordered=True)
            consumer.on("T")(basket)
            async with consumer:
                await until(lambda: c.committed("G", "T", 0) == 5)

            assert basket.bodies == bodies

    run(main())


def test_poll_and_pull_do_not_return_removed_messages() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            await c.send("T", b"1", b"2", b"3")
            async with c.lite_consumer(start_at="first", hooks=[Even()]) as lite:
                await lite.subscribe("T")
                assert [message.body for message in await lite.poll(30)] == [b"2"]
            async with c.pull_consumer(hooks=[Even()]) as puller:
                result = await puller.pull(MessageQueue("T", "broker-a", 0), 0)
                assert ([message.body for message in result.messages], result.next_offset) == ([b"2"], 3)

    run(main())


def test_a_filter_that_raises_removes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Hooks):
        def filter_messages(self, event: FilterEvent) -> None:
            raise KeyError("kind")

    async def main() -> None:
        async with real_cluster(queues=1) as c, c.pull_consumer(hooks=[Broken()]) as puller:
            await c.send("T", b"1", b"2")
            assert len((await puller.pull(MessageQueue("T", "broker-a", 0), 0)).messages) == 2

    run(main())
    assert "filter_messages" in caplog.text


@pytest.mark.parametrize("wrong", [None, "T", [b"1"]])
def test_a_filter_without_a_result_removes_nothing(wrong: Any, caplog: pytest.LogCaptureFixture) -> None:
    class Wrong(Hooks):
        def filter_messages(self, event: FilterEvent) -> None:
            event.messages = wrong

    async def main() -> None:
        async with real_cluster(queues=1) as c, c.pull_consumer(hooks=[Wrong()]) as puller:
            await c.send("T", b"1", b"2")
            assert len((await puller.pull(MessageQueue("T", "broker-a", 0), 0)).messages) == 2

    run(main())
    assert "which is not a list of messages; the filter is ignored" in caplog.text


# requests and responses


class Watching(RpcHook):
    def __init__(self) -> None:
        self.sent: list[tuple[str, int]] = []
        self.answered: list[tuple[str, int, int]] = []

    def before_request(self, address: str, request: Command) -> None:
        assert request.ext is not None
        request.ext["team"] = "billing"
        self.sent.append((address, request.code))

    def after_response(self, address: str, request: Command, response: Command) -> None:
        self.answered.append((address, request.code, response.code))


def test_a_hook_sees_every_request_of_a_consumer_and_its_response() -> None:
    async def main() -> None:
        async with real_cluster(queues=1) as c:
            await c.send("T", b"1", b"2")
            hook, basket = Watching(), Basket()
            consumer = c.push_consumer(start_at="first", rpc_hook=hook, persist_ms=1_000)
            consumer.on("T")(basket)
            async with consumer:
                await basket.wait(2)
                await until(lambda: c.committed("G", "T", 0) == 2)
                await until(lambda: ("10.0.1.1:10911", RequestCode.UPDATE_CONSUMER_OFFSET) in hook.sent)

            assert ("10.0.0.1:9876", RequestCode.GET_ROUTEINFO_BY_TOPIC) in hook.sent
            assert {code for _, code in hook.sent} >= {
                RequestCode.HEART_BEAT,
                RequestCode.GET_CONSUMER_LIST_BY_GROUP,
                RequestCode.QUERY_CONSUMER_OFFSET,
                RequestCode.PULL_MESSAGE,
                RequestCode.UNREGISTER_CLIENT,
            }
            assert ("10.0.1.1:10911", RequestCode.PULL_MESSAGE, 0) in hook.answered
            assert ("10.0.1.1:10911", RequestCode.HEART_BEAT, 0) in hook.answered

    run(main())


def test_fields_added_by_a_hook_are_signed_and_sent_by_every_method() -> None:
    credentials = Credentials("pocketAccess", "pocketSecret12")

    async def main() -> None:
        async with cluster() as c:
            hook = Watching()
            async with c.producer(rpc_hook=hook, credentials=credentials) as producer:
                await producer.send("T", b"1")
                await producer.submit(Message("T", b"2"))
                await producer.send_many([Message("T", b"3"), Message("T", b"4")])
                await producer.send_one_way("T", b"5")
                await until(lambda: len(c.broker.sends) == 4)

            for request in [*c.broker.heard, *c.name_server.heard]:
                ext = dict(request.ext or {})
                assert ext["team"] == "billing"
                signature = ext.pop("Signature")
                ext.pop("AccessKey")
                assert (signed_fields(ext, request.body, credentials) or {})["Signature"] == signature
            assert len(hook.sent) == len(c.broker.heard) + len(c.name_server.heard)
            assert sum(code in (310, 320) for _, code, _ in hook.answered) == 3, "one-way sends have no response"

    run(main())


def test_a_hook_that_raises_fails_no_request(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(RpcHook):
        def before_request(self, address: str, request: Command) -> None:
            raise KeyError("before")

        def after_response(self, address: str, request: Command, response: Command) -> None:
            raise KeyError("after")

    async def main() -> None:
        async with cluster() as c, c.producer(rpc_hook=Broken()) as producer:
            for _ in range(3):
                await producer.send("T", b"1")

    run(main())
    failures = [record.getMessage() for record in caplog.records if "Hook" in record.getMessage()]
    assert [re.search("request|response", text.partition(";")[2])[0] for text in failures] == ["request", "response"]  # type: ignore[index]
    assert all(text.endswith("Further exceptions of type KeyError are not logged") for text in failures)


def test_an_invalid_hook_is_refused() -> None:
    async def main() -> None:
        async with cluster() as c:
            with pytest.raises(
                InvalidSetting, match="rpc_hook = 3 must be an object of a class that inherits from RpcHook"
            ):
                c.new_producer(rpc_hook=3)

    run(main())


@pytest.mark.parametrize("hooks", [3, Hooks(), [Hooks], [3]])
@pytest.mark.parametrize("options", [{}, {"trace": True}])
def test_invalid_hooks_are_refused_by_every_client(hooks: Any, options: dict[str, Any]) -> None:
    for make in (
        lambda: pocketmq.Producer("127.0.0.1:1", hooks=hooks, **options),
        lambda: pocketmq.PushConsumer("127.0.0.1:1", group="G", hooks=hooks, **options),
        lambda: pocketmq.LitePullConsumer("127.0.0.1:1", group="G", hooks=hooks, **options),
        lambda: pocketmq.PullConsumer("127.0.0.1:1", group="G", hooks=hooks, **options),
        lambda: HookList(hooks),
    ):
        with pytest.raises(InvalidSetting, match="must be a list of objects of classes that inherit from Hooks"):
            make()
