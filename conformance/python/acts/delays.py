"""Delays: messages are never early, arrive soon after they are due, and can be recalled."""

import asyncio
from typing import Final

from conformance.python.stage import Basket, Programme, Stage
from pocketmq.errors import PocketMQError

DELAYS: Final = Programme("delays")
LATE_S: Final = 15
EARLY_S: Final = 0.05
"""Between the clock of a broker and the loop of a client."""


@DELAYS.act("delay levels 1, 2 and 3 are 1, 5 and 10 s; messages are unchanged")
async def levels(stage: Stage) -> None:
    topic, basket = await stage.topic(queues=2), Basket()
    consumer = stage.push(stage.name("CG"))
    consumer.on(topic)(basket)
    sent: dict[bytes, float] = {}
    async with stage.producer() as producer, consumer:
        await stage.owns(consumer, 2)
        for level in (3, 1, 2):
            body = f"level {level}".encode()
            sent[body] = stage.now
            await producer.send(topic, body, delay_level=level, keys="k", properties={"mine": "yes"})
        await stage.until("three messages", lambda: len(basket) == 3)

    stage.same("order", basket.bodies, [b"level 1", b"level 2", b"level 3"])
    for message, time, delay in zip(basket.messages, basket.times, (1, 5, 10), strict=True):
        stage.between(f"delay of {message.body!r}, in s", time - sent[message.body], delay - EARLY_S, delay + LATE_S)
        stage.same(
            "topic, keys, property", (message.topic, message.keys, message.properties["mine"]), (topic, ["k"], "yes")
        )


@DELAYS.act("timed messages: a delay, a moment, a moment that is over", needs="timers")
async def timed(stage: Stage) -> None:
    topic, basket = await stage.topic(queues=1), Basket()
    consumer = stage.push(stage.name("CG"))
    consumer.on(topic)(basket)
    async with stage.producer() as producer, consumer:
        await stage.owns(consumer, 1)
        began = stage.now
        await producer.send(topic, b"at 4 s", deliver_at_ms=stage.now_ms() + 4000)
        await producer.send(topic, b"after 2.5 s", delay_ms=2500)
        await producer.send(topic, b"over", deliver_at_ms=stage.now_ms() - 5000)
        await stage.until("three messages", lambda: len(basket) == 3)

    stage.same("order", basket.bodies, [b"over", b"after 2.5 s", b"at 4 s"])
    for time, least in zip(basket.times, (0, 1.5, 3), strict=True):  # the wheel turns once a second
        stage.between("delivered after, in s", time - began, least, least + 1 + LATE_S)


@DELAYS.act("a time too far ahead is refused", needs="timers")
async def too_far(stage: Stage) -> None:
    topic = await stage.topic(queues=1)
    async with stage.producer(retries=0) as producer:
        await stage.refused("five days", PocketMQError, producer.send(topic, b"x", delay_ms=5 * 86_400_000))


@DELAYS.act("a timed message is recalled before it is due, and is never delivered", needs="recall")
async def recalled(stage: Stage) -> None:
    topic, basket = await stage.topic(queues=1), Basket()
    consumer = stage.push(stage.name("CG"))
    consumer.on(topic)(basket)
    async with stage.producer() as producer, consumer:
        kept = await producer.send(topic, b"kept", delay_ms=6000)
        gone = await producer.send(topic, b"recalled", delay_ms=5000)
        stage.true("each has a handle", kept.recall_handle and gone.recall_handle)
        found = await producer.recall(topic, gone.recall_handle or "")
        await stage.until("the one that is kept", lambda: len(basket) == 1)
        await asyncio.sleep(3)

    stage.same("the id of what was recalled", found, gone.message_id)
    stage.same("bodies", basket.bodies, [b"kept"])


@DELAYS.act("times are refused by the client where brokers would deliver at once", needs="no_timers")
async def not_known(stage: Stage) -> None:
    topic = await stage.topic(queues=1)
    async with stage.producer() as producer:
        await stage.refused("a delay", PocketMQError, producer.send(topic, b"x", delay_ms=1000))

    stage.same("messages", await stage.stored(topic), [])
