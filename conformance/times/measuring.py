"""Measurements of a broker: each gives some times in seconds, of the same thing done several times."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from conformance.python.stage import Basket, Stage
from pocketmq.client import AsyncPushConsumer, TransactionState
from pocketmq.model.message import StoredMessage

SAMPLES: Final = 15
HELD_MS: Final = 5000
LEVELS_S: Final = {1: 1, 2: 5}
CHECK_AFTER_S: Final = 2
"""When the brokers here ask about a transaction at the earliest: transactionTimeOut."""
Measurement = Callable[[Stage], Awaitable[list[float]]]


async def long_poll(stage: Stage) -> list[float]:
    """From a send until a consumer that waits has the message."""
    topic, basket, sent = await stage.topic(queues=1), Basket(), list[float]()
    consumer = stage.push(stage.name("CG"))
    consumer.on(topic)(basket)
    async with stage.producer() as producer, consumer:
        await producer.send(topic, b"first")
        await stage.until("the first message", lambda: len(basket) == 1)
        for number in range(SAMPLES):
            await asyncio.sleep(0.3)
            sent.append(stage.now)
            await producer.send(topic, b"x")
            await stage.until("the message", partial(_has, basket, number + 2))
    return [came - left for came, left in zip(basket.times[1:], sent, strict=True)]


def _has(basket: Basket, count: int) -> bool:
    return len(basket) >= count


async def held_in_vain(stage: Stage) -> list[float]:
    """A pull that finds nothing, and may wait for five seconds."""
    topic = await stage.topic(queues=2)
    async with stage.pull(stage.name("CG"), pull_wait_ms=HELD_MS) as reader:

        async def held(number: int) -> float:
            queue = sorted(await reader.queues(topic))[number]
            began = stage.now
            await reader.pull_block_if_not_found(queue, 0)
            return stage.now - began

        return list(await asyncio.gather(held(0), held(1)))


async def delays(stage: Stage) -> list[float]:
    """How late messages of levels 1 and 2 are; below 0 would be early."""
    topic, basket, due = await stage.topic(queues=1), Basket(), dict[bytes, float]()
    consumer = stage.push(stage.name("CG"))
    consumer.on(topic)(basket)
    async with stage.producer() as producer, consumer:
        await stage.owns(consumer, 1)
        for number in range(4):
            for level, seconds in LEVELS_S.items():
                body = f"{level}-{number}".encode()
                due[body] = stage.now + seconds
                await producer.send(topic, body, delay_level=level)
            await asyncio.sleep(0.37)
        await stage.until("all messages", lambda: len(basket) == len(due))
    return [time - due[message.body] for message, time in zip(basket.messages, basket.times, strict=True)]


async def check_back(stage: Stage) -> list[float]:
    """From a transaction that is left open until its producer is asked about it."""
    topic, sent, asked = await stage.topic(queues=1), dict[str, float](), dict[str, float]()

    async def check(message: StoredMessage) -> TransactionState:
        asked.setdefault(message.keys[0], stage.now)
        return TransactionState.COMMIT

    async with stage.producer(check=check) as producer:
        for number in range(3):
            async with producer.transaction(topic) as tx:
                await tx.send(b"x", keys=f"k{number}")
                await tx.leave_open()
            sent[f"k{number}"] = stage.now
            await asyncio.sleep(1.3)
        await stage.until("all questions", lambda: len(asked) == 3)
    return [asked[key] - sent[key] for key in sent]


async def joining(stage: Stage) -> list[float]:
    """From the start of a second member until both have half of the queues; from its stop until the first has all."""
    topic, group, times = await stage.topic(queues=4), stage.name("CG"), list[float]()
    first = _member(stage, group, topic)
    async with first:
        await stage.owns(first, 4)
        for _ in range(3):
            second = _member(stage, group, topic)
            began = stage.now
            async with second:
                await stage.owns(second, 2)
                await stage.owns(first, 2)
                times.append(stage.now - began)
                began = stage.now
            await stage.owns(first, 4)
            times.append(stage.now - began)
    return times


def _member(stage: Stage, group: str, topic: str) -> AsyncPushConsumer:
    consumer = stage.push(group)
    consumer.on(topic)(Basket())
    return consumer
