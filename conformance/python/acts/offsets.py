"""Offsets: asked for, committed, found by time, reset and cloned; and messages found by key and id."""

import asyncio
from typing import Final

from conformance.python.stage import Basket, Programme, Stage, numbered
from pocketmq.errors import NotFound

OFFSETS: Final = Programme("offsets")


@OFFSETS.act("smallest, largest, by time, earliest time, committed")
async def asked(stage: Stage) -> None:
    topic, group = await stage.topic(queues=2), stage.name("CG")
    async with stage.producer() as producer, stage.pull(group) as reader:
        queues = sorted(await reader.queues(topic))
        began = stage.now_ms()
        await producer.send(topic, b"0", queue=queues[0])
        await asyncio.sleep(1.1)
        middle = stage.now_ms()
        await asyncio.sleep(1.1)
        await producer.send(topic, b"1", queue=queues[0])
        limits = [(await reader.min_offset(queue), await reader.max_offset(queue)) for queue in queues]
        stage.same("smallest and largest", limits, [(0, 2), (0, 0)])
        stage.same("by time", [await reader.offset_at(queues[0], time) for time in (0, middle)], [0, 1])
        stage.between("earliest time", await reader.earliest_time_ms(queues[0]), began - 1000, middle)
        before = await reader.committed(queues[0])
        stage.true(f"nothing is committed at first: {before}", before in (None, 0))
        await reader.commit({queues[0]: 1})
        stage.same("committed", await reader.committed(queues[0]), 1)


@OFFSETS.act("messages are found by key, by id, by the broker's id and by time")
async def found(stage: Stage) -> None:
    topic = await stage.topic(queues=2)
    async with stage.producer() as producer, stage.admin() as admin:
        began = stage.now_ms() - 1000
        results = [await producer.send(topic, body, keys=["same", body.decode()]) for body in numbered(5)]

        async def by_key() -> bool:
            return len(await admin.messages.by_key(topic, "same")) == 5

        await stage.comes("all in the index", by_key)
        one = await admin.messages.by_key(topic, "m3")
        stage.same("by key", [message.body for message in one], [b"m3"])
        same = await admin.messages.by_id(topic, results[2].message_id)
        stage.same("by id", [message.body for message in same], [b"m2"])
        stage.same("by the broker's id", (await admin.messages.by_offset_id(results[1].offset_id)).body, b"m1")
        timely = await admin.messages.in_time(topic, began, stage.now_ms() + 1000)
        stage.same("by time", sorted(message.body for message in timely), numbered(5))
        in_queue = await admin.messages.in_queue(results[0].queue, results[0].queue_offset, results[0].queue_offset + 1)
        stage.same("by place", [message.message_id for message in in_queue], [results[0].message_id])
        stage.same("no such key", await admin.messages.by_key(topic, "nothing"), [])
        nowhere = results[1].offset_id[:16] + "0000000FFFFFFFFF"
        await stage.refused("no such id", NotFound, admin.messages.by_offset_id(nowhere))


@OFFSETS.act("a reset of a group without members: new members begin there")
async def reset_offline(stage: Stage) -> None:
    topic, group = await stage.topic(queues=1), stage.name("CG")
    await _consumed(stage, topic, group, 6)
    async with stage.admin() as admin:
        plan = await admin.offsets.reset(group, topic, "earliest", dry_run=True)
        stage.same("plan", [(row.before, row.after, row.again, row.skipped) for row in plan.queues], [(6, 0, 6, 0)])
        stage.same("nothing is changed by a plan", [*(await admin.offsets.committed(group, topic)).values()], [6])
        await admin.offsets.reset(group, topic, {plan.queues[0].queue: 4})
        basket = Basket()
        consumer = stage.push(group)
        consumer.on(topic)(basket)
        async with consumer:
            await stage.until("the last two", lambda: len(basket) >= 2)
        await asyncio.sleep(0.2)

    stage.same("bodies", basket.bodies, [b"m4", b"m5"])


@OFFSETS.act("a reset to a time moves running members")
async def reset_online(stage: Stage) -> None:
    topic, group, basket = await stage.topic(queues=1), stage.name("CG"), Basket()
    consumer = stage.push(group, persist_ms=500)
    consumer.on(topic)(basket)
    async with stage.producer() as producer, stage.admin() as admin, consumer:
        for body in numbered(3, "old"):
            await producer.send(topic, body)
        await asyncio.sleep(1.1)
        middle = stage.now_ms()
        await asyncio.sleep(1.1)
        for body in numbered(3, "new"):
            await producer.send(topic, body)
        await stage.until("all messages", lambda: len(basket) == 6)

        async def is_done() -> bool:
            return 6 in (await admin.offsets.committed(group, topic)).values()

        await stage.comes("a commit", is_done)
        await admin.offsets.reset(group, topic, middle)
        await stage.until("those after that time once more", lambda: len(basket) >= 9)
        await asyncio.sleep(1)

    again = [body for body in basket.bodies[6:] if stage.traits.exact_times or body != b"old2"]
    stage.same("what came again", again, numbered(3, "new"))


@OFFSETS.act("a reset to offsets moves running members", needs="resets_itself")
async def reset_to_offsets(stage: Stage) -> None:
    topic, group, basket = await stage.topic(queues=1), stage.name("CG"), Basket()
    consumer = stage.push(group, persist_ms=500)
    consumer.on(topic)(basket)
    async with stage.producer() as producer, stage.admin() as admin, consumer:
        for body in numbered(5):
            await producer.send(topic, body)
        await stage.until("all messages", lambda: len(basket) == 5)
        (queue,) = await producer.queues(topic)

        async def is_done() -> bool:
            return 5 in (await admin.offsets.committed(group, topic)).values()

        await stage.comes("a commit", is_done)
        await admin.offsets.reset(group, topic, {queue: 3})
        await producer.send(topic, b"wakes it")
        await stage.until("two of them once more, and the new one", lambda: len(basket) >= 8)

    stage.same("what came", sorted(set(basket.bodies[5:])), [b"m3", b"m4", b"wakes it"])


@OFFSETS.act("one group's offsets are given to another")
async def cloned(stage: Stage) -> None:
    topic, source, target = await stage.topic(queues=1), stage.name("CG"), stage.name("CG_clone")
    await _consumed(stage, topic, source, 4)
    async with stage.admin() as admin:
        await admin.groups.create(target)
        await admin.offsets.clone(source, target, topic)
        stage.same("committed", [*(await admin.offsets.committed(target, topic)).values()], [4])


async def _consumed(stage: Stage, topic: str, group: str, count: int) -> None:
    """Messages that a group has read, and is gone."""
    basket = Basket()
    consumer = stage.push(group)
    consumer.on(topic)(basket)
    async with stage.producer() as producer, consumer:
        for body in numbered(count):
            await producer.send(topic, body)
        await stage.until("all messages", lambda: len(basket) == count)
