"""Rebalance: all queues are allocated, each to one member, and again when members or queues change."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any, Final

from conformance.python.stage import Basket, Programme, Stage, numbered
from pocketmq.client import AsyncPushConsumer
from pocketmq.client.consumer.allocation import (
    AVERAGE,
    Circle,
    Configured,
    ConsistentHash,
    MachineRoom,
    MachineRoomNearby,
)
from pocketmq.model.queue import MessageQueue

SHARING: Final = Programme("sharing")
JOIN_S: Final = 25
"""From a member's start or stop until all have their new shares: a notice is quick, else it is looked every 20 s."""


@SHARING.act("members that join and leave share the queues without overlap; every message is delivered")
async def join_and_leave(stage: Stage) -> None:
    topic, group, basket = await stage.topic(queues=6), stage.name("CG"), Basket()
    members = [_member(stage, group, topic, basket, persist_ms=500) for _ in range(3)]
    sent = 0
    async with stage.producer() as producer, AsyncExitStack() as running:
        for count, member in enumerate(members, 1):
            began = stage.now
            await running.enter_async_context(member)
            await _settled(stage, members[:count], topic, 6)
            stage.between(f"until {count} members have their shares, in s", stage.now - began, 0, JOIN_S)
            for body in numbered(12, f"{count}-"):
                await producer.send(topic, body)
            sent += 12
            await _committed(stage, group, topic, sent)
        began = stage.now
        await members[0].stop()
        await _settled(stage, members[1:], topic, 6)
        stage.between("until those who stay have them, in s", stage.now - began, 0, JOIN_S)
        for body in numbered(12, "left-"):
            await producer.send(topic, body)
        await stage.until("all messages", lambda: len(set(basket.bodies)) == sent + 12)

    twice = [body for body, times in Counter(basket.bodies).items() if times > 1]
    stage.same("messages that came twice", twice, [])


@SHARING.act("queues that a topic gets later are read from their first message")
async def grows(stage: Stage) -> None:
    topic, group, basket = await stage.topic(queues=1), stage.name("CG"), Basket()
    consumer = _member(stage, group, topic, basket, rebalance_ms=1000, route_poll_ms=1000, start_at="last")
    async with stage.admin() as admin, consumer, stage.producer(route_poll_ms=1000) as producer:
        await stage.owns(consumer, 1)
        await producer.send(topic, b"of queue 0")
        await stage.until("the first message", lambda: len(basket) == 1)
        await admin.topics.alter(topic, queues=2)
        broker = (await producer.queues(topic))[0].broker_name
        await producer.send(topic, b"before it is known", queue=MessageQueue(topic, broker, 1))
        await stage.until("the message of the new queue", lambda: len(basket) == 2)
        await stage.owns(consumer, 2)

    stage.same("bodies", basket.bodies, [b"of queue 0", b"before it is known"])


def strategies(queues: list[MessageQueue], member: int) -> dict[str, Any]:
    """Every strategy, for the first or the second of two members."""
    return {
        "AVG": AVERAGE,
        "AVG_BY_CIRCLE": Circle(),
        "CONSISTENT_HASH": ConsistentHash(),
        "CONFIG": Configured(queues[member::2]),
        "MACHINE_ROOM_NEARBY": MachineRoomNearby(
            AVERAGE, lambda queue: "even" if queue.queue_id % 2 == 0 else "odd", lambda client: "even"
        ),
        "MACHINE_ROOM": MachineRoom({"room"}),
    }


@SHARING.act(
    "every strategy allocates all queues to two members; queues of machine rooms without members are not allocated"
)
async def each_strategy(stage: Stage) -> None:
    topic = await stage.topic(queues=5)
    async with stage.producer() as producer:
        queues = sorted(await producer.queues(topic))
    await asyncio.gather(*(_with(stage, name, topic, queues) for name in strategies(queues, 0)))


async def _with(stage: Stage, name: str, topic: str, queues: list[MessageQueue]) -> None:
    group, basket = stage.name(f"CG_{name}"), Basket()
    members = [_member(stage, group, topic, basket, allocation=strategies(queues, number)[name]) for number in range(2)]
    async with members[0], members[1]:
        if name == "MACHINE_ROOM":
            await asyncio.sleep(3)
            stage.same(name, [await member.queues() for member in members], [[], []])
        elif name != "CONSISTENT_HASH":
            shares = await _settled(stage, members, topic, 5)
            stage.same(f"shares by {name}", sorted(map(len, shares)), [2, 3])
        else:
            await _settled(stage, members, topic, 5, may_be_empty=True)


def _member(stage: Stage, group: str, topic: str, basket: Basket, **options: Any) -> AsyncPushConsumer:
    consumer = stage.push(group, **options)
    consumer.on(topic)(basket)
    return consumer


async def _committed(stage: Stage, group: str, topic: str, count: int) -> None:
    """What is not committed yet comes again when its queue moves: wait until there is nothing of that kind."""
    async with stage.admin() as admin:

        async def is_done() -> bool:
            return sum(offset or 0 for offset in (await admin.offsets.committed(group, topic)).values()) == count

        await stage.comes("all committed", is_done)


async def _settled(
    stage: Stage, members: list[AsyncPushConsumer], topic: str, queues: int, *, may_be_empty: bool = False
) -> list[list[MessageQueue]]:
    """Wait until every queue has exactly one reader."""
    async with asyncio.timeout(60):
        while True:
            shares = [[queue for queue in await member.queues() if queue.topic == topic] for member in members]
            owned = [queue for share in shares for queue in share]
            if len(owned) == len(set(owned)) == queues and (all(shares) or may_be_empty):
                return shares
            await asyncio.sleep(0.05)
