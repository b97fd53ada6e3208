"""Push consumption: nothing is lost, nothing comes twice without need, and the group knows how far it is."""

import asyncio
from datetime import timedelta
from functools import partial
from typing import Any, Final

from conformance.python.stage import Basket, Programme, Stage, numbered
from pocketmq.client import AckIndex, PushConsumer
from pocketmq.client.consumer.flow_limits import PauseCause
from pocketmq.model.message import Message, StoredMessage

CONSUMING: Final = Programme("consuming")


@CONSUMING.act("a push consumer gets every message once, as it was sent, and commits how far it is")
async def push(stage: Stage) -> None:
    topic, group, basket = await stage.topic(queues=4), stage.name("CG"), Basket()
    consumer = stage.push(group)
    consumer.on(topic)(basket)
    async with stage.producer() as producer, consumer:
        results = [await producer.send(topic, body, tags="TagA", properties={"n": "1"}) for body in numbered(40)]
        await stage.until("40 messages", lambda: len(basket) >= 40)
        await asyncio.sleep(0.5)

    stage.same("bodies", sorted(basket.bodies), sorted(numbered(40)))
    stage.same("ids", {m.message_id for m in basket.messages}, {result.message_id for result in results})
    stage.same("tags and properties", {(m.tags, m.properties["n"]) for m in basket.messages}, {("TagA", "1")})
    stage.same("times that it was tried before", {m.reconsume_times for m in basket.messages}, {0})
    async with stage.admin() as admin:
        committed = await admin.offsets.committed(group, topic)
        stage.same("committed", sum(offset or 0 for offset in committed.values()), 40)
        stage.same("lag", (await admin.offsets.lag(group, topic)).messages, 0)


@CONSUMING.act("a restarted consumer continues at the offset of its group")
async def restarted(stage: Stage) -> None:
    topic, group = await stage.topic(queues=2), stage.name("CG")
    baskets = [Basket(), Basket()]
    async with stage.producer() as producer:
        for basket, word in zip(baskets, ("first", "second"), strict=True):
            for body in numbered(5, word):
                await producer.send(topic, body)
            consumer = stage.push(group)
            consumer.on(topic)(basket)
            async with consumer:
                await stage.until(f"{word} messages", partial(_has, basket, 5))

    stage.same("at first", sorted(baskets[0].bodies), numbered(5, "first"))
    stage.same("later", sorted(baskets[1].bodies), numbered(5, "second"))


def _has(basket: Basket, count: int) -> bool:
    return len(basket) >= count


@CONSUMING.act("a new group begins with the first message, at a time, or at the end")
async def begins(stage: Stage) -> None:
    topic, baskets = await stage.topic(queues=1), {"first": Basket(), "time": Basket(), "last": Basket()}
    async with stage.producer() as producer:
        for body in numbered(3, "old"):
            await producer.send(topic, body)
        await asyncio.sleep(3)
        for body in numbered(3, "new"):
            await producer.send(topic, body)
    consumers = [
        stage.push(stage.name("CG_first"), start_at="first"),
        stage.push(stage.name("CG_time"), start_at=timedelta(seconds=2)),
        stage.push(stage.name("CG_last"), start_at="last"),
    ]
    for consumer, basket in zip(consumers, baskets.values(), strict=True):
        consumer.on(topic)(basket)
    async with consumers[1], consumers[0], consumers[2]:
        async with stage.producer() as producer:
            await producer.send(topic, b"last")
        await stage.until(
            "all messages", lambda: len(baskets["first"]) >= 7 and len(baskets["time"]) >= 4 and baskets["last"].bodies
        )
        await asyncio.sleep(0.5)

    old, new = numbered(3, "old"), numbered(3, "new")
    stage.same("from the first on", baskets["first"].bodies, [*old, *new, b"last"])
    # RocketMQ 4.9 answers 0 where nothing is stored and the first message is in memory: the group reads all of it.
    whole = [*old, *new, b"last"] if not stage.traits.tells_new_groups else None
    stage.same("from a time on", baskets["time"].bodies, whole or [*new, b"last"])
    stage.same("from the end on", baskets["last"].bodies, whole or [b"last"])


@CONSUMING.act("a listener of batches acknowledges some messages; the others are delivered again")
async def lists(stage: Stage) -> None:
    topic, group = await stage.topic(queues=1), stage.name("CG")
    async with stage.producer() as producer:
        await producer.send_many([Message(topic, body) for body in numbered(8)])
    calls: list[list[bytes]] = []

    async def listener(messages: list[StoredMessage]) -> Any:
        calls.append([message.body for message in messages])
        return AckIndex(1) if len(calls) == 1 else None

    consumer = stage.push(group)
    consumer.on(topic, batch_size=4)(listener)
    async with consumer:
        await stage.until("all messages, two of them again", lambda: sum(map(len, calls)) >= 10)

    stage.true(f"no list has more than 4: {calls}", max(map(len, calls)) <= 4)
    stage.same("the first list", calls[0], numbered(4))
    again = [body for call in calls[1:] for body in call if body in numbered(4)]
    stage.same("what came again", sorted(again), [b"m2", b"m3"])


@CONSUMING.act("broadcasting: every member gets every message")
async def broadcast(stage: Stage) -> None:
    topic, group, baskets = await stage.topic(queues=2), stage.name("CG"), [Basket(), Basket()]
    with stage.folder() as folder:
        consumers = [stage.push(group, broadcast=True, local_offsets=folder) for _ in baskets]
        for consumer, basket in zip(consumers, baskets, strict=True):
            consumer.on(topic)(basket)
        async with stage.producer() as producer, consumers[0], consumers[1]:
            for consumer in consumers:
                await stage.owns(consumer, 2)
            for body in numbered(6):
                await producer.send(topic, body)
            await stage.until("all messages at both", lambda: min(map(len, baskets)) >= 6)

    for number, basket in enumerate(baskets):
        stage.same(f"member {number}", sorted(basket.bodies), numbered(6))


@CONSUMING.act("flow control: a slow listener holds its queue back, and nothing is lost")
async def slow(stage: Stage) -> None:
    topic, group = await stage.topic(queues=1), stage.name("CG")
    async with stage.producer() as producer:
        await producer.send_many([Message(topic, body) for body in numbered(120)])
    basket, gate, most = Basket(), asyncio.Event(), 0

    async def listener(message: StoredMessage) -> None:
        await gate.wait()
        await basket(message)

    consumer = stage.push(group, max_queue_messages=20, pull_batch=10, workers=2)
    consumer.on(topic)(listener)
    async with consumer:
        await stage.until("a pause", lambda: consumer.pauses.get(PauseCause.MESSAGES, 0))
        info = await consumer.running_info()
        most = max(state.cached_msg_count for state in info.mq_table.values())
        gate.set()
        await stage.until("all messages", lambda: len(basket) >= 120)

    stage.between("messages at hand while it was slow", most, 20, 31)
    stage.same("bodies", sorted(basket.bodies), sorted(numbered(120)))


@CONSUMING.act("paused, resumed, subscribed and unsubscribed while it runs")
async def while_running(stage: Stage) -> None:
    first, second = await stage.topic("First", queues=1), await stage.topic("Second", queues=1)
    baskets = {first: Basket(), second: Basket()}
    consumer = stage.push(stage.name("CG"), pull_wait_ms=1000)
    consumer.on(first)(baskets[first])
    async with stage.producer() as producer, consumer:
        await stage.owns(consumer, 1)
        await consumer.subscribe(second, baskets[second])
        await stage.owns(consumer, 2)
        await producer.send(second, b"for the new subscription")
        await stage.until("the new subscription", lambda: len(baskets[second]) == 1)
        await consumer.unsubscribe(second)
        await stage.owns(consumer, 1)
        consumer.pause()
        await asyncio.sleep(2)
        await producer.send(first, b"while it is paused")
        await producer.send(second, b"for nobody")
        await asyncio.sleep(2)
        stage.true("at most one held pull brings something during a pause", len(baskets[first]) <= 1)
        consumer.resume()
        await stage.until("the first topic", lambda: len(baskets[first]) == 1)

    stage.same("of the second topic", baskets[second].bodies, [b"for the new subscription"])


@CONSUMING.act("the blocking push consumer calls plain functions in threads", needs="threads")
async def blocking(stage: Stage) -> None:
    topic, got = await stage.topic(queues=2), list[bytes]()
    consumer = PushConsumer(stage.name_server, **{**stage.options(), "group": stage.name("CG"), "start_at": "first"})
    consumer.on(topic)(lambda message: got.append(message.body))
    await asyncio.to_thread(consumer.start)
    try:
        async with stage.producer() as producer:
            for body in numbered(10):
                await producer.send(topic, body)
        await stage.until("10 messages", lambda: len(got) >= 10)
    finally:
        await asyncio.to_thread(consumer.stop)

    stage.same("bodies", sorted(got), numbered(10))
