"""Traces of messages and numbers about clients."""

from typing import Final

from conformance.python.stage import Basket, Programme, Stage
from pocketmq.client import ClientMetrics, Hooks
from pocketmq.client.admin.messages import MessageTrace
from pocketmq.client.hooks import ConsumeEvent, SendEvent
from pocketmq.client.telemetry.metrics import CONSUMED, SENT, MetricsInMemory

WATCHING: Final = Programme("watching")


@WATCHING.act("traces show the producer and the consumers of a message")
async def traces(stage: Stage) -> None:
    topic, group, basket = await stage.topic(queues=1), stage.name("CG"), Basket()
    consumer = stage.push(group, trace=True)
    consumer.on(topic)(basket)
    async with stage.admin() as admin:
        async with stage.producer(trace=True) as producer, consumer:
            sent = await producer.send(topic, b"traced", keys="k", tags="T")
            await stage.until("a message", lambda: len(basket) == 1)

        async def is_told() -> MessageTrace | None:
            found = await admin.messages.trace(sent.message_id)
            return found if found.sent and found.attempts else None

        trace = await stage.comes("its trace", is_told)

    assert trace is not None
    (send,) = trace.sent
    stage.same("its topic, keys and tag", (send.topic, send.keys, send.tags), (topic, "k", "T"))
    stage.same("its group", {attempt.group for attempt in trace.attempts}, {group})


class Counting(Hooks):
    def __init__(self) -> None:
        self.recorded: list[str] = []

    def after_send(self, event: SendEvent) -> None:
        self.recorded.append("sent")

    def after_consume(self, event: ConsumeEvent) -> None:
        self.recorded.append("consumed")


@WATCHING.act("metrics and hooks count what was sent and consumed")
async def metrics(stage: Stage) -> None:
    topic, group, basket, kept, hooks = (
        await stage.topic(queues=1),
        stage.name("CG"),
        Basket(),
        MetricsInMemory(),
        Counting(),
    )
    consumer = stage.push(group, hooks=[ClientMetrics(kept), hooks])
    consumer.on(topic)(basket)
    async with stage.producer(hooks=[ClientMetrics(kept), hooks]) as producer, consumer:
        for _ in range(3):
            await producer.send(topic, b"x")
        await stage.until("three messages", lambda: len(basket) == 3)
        await stage.until("three calls recorded", lambda: hooks.recorded.count("consumed") == 3)

    sent = kept.value(SENT, producer.settings.group, topic)
    stage.same("sent", (sent, hooks.recorded.count("sent")), (3, 3))
    stage.same("consumed", [kept.value(CONSUMED, *labels) for labels in kept.labels(CONSUMED)], [3])
