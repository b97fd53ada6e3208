"""Ordered consumption: one member at a time, one message after the other, and a failure blocks its queue."""

import asyncio
from typing import Any, Final

from conformance.python.stage import Basket, Programme, Stage, numbered
from pocketmq.client import Suspend
from pocketmq.model.message import StoredMessage

ORDERING: Final = Programme("order")


@ORDERING.act("messages of a sharding key are delivered in order, with a lock of the queue")
async def in_order(stage: Stage) -> None:
    topic, basket = await stage.topic(queues=3), Basket()
    consumer = stage.push(stage.name("CG"), ordered=True)
    consumer.on(topic)(basket)
    async with stage.producer() as producer, consumer:
        for round_number in range(10):
            for key in ("a", "b", "c", "d"):
                await producer.send(topic, f"{key}{round_number}".encode(), sharding_key=key)
        await stage.until("40 messages", lambda: len(basket) >= 40)

    for key in "abcd":
        found = [body.decode() for body in basket.bodies if body.decode().startswith(key)]
        stage.same(f"order of {key}", found, [f"{key}{number}" for number in range(10)])


@ORDERING.act("a failed message is delivered again before later ones; a suspended one after its pause")
async def held_up(stage: Stage) -> None:
    topic, tried = await stage.topic(queues=1), list[tuple[bytes, float]]()

    async def listener(message: StoredMessage) -> Any:
        tried.append((message.body, stage.now))
        attempts = sum(body == message.body for body, _ in tried)
        if message.body == b"m1" and attempts < 3:
            return False
        if message.body == b"m3" and attempts < 2:
            return Suspend(wait_ms=1500)
        return None

    consumer = stage.push(stage.name("CG"), ordered=True, suspend_ms=300)
    consumer.on(topic)(listener)
    async with stage.producer() as producer, consumer:
        for body in numbered(5):
            await producer.send(topic, body)
        await stage.until("all messages", lambda: any(body == b"m4" for body, _ in tried))

    stage.same("what was tried", [body for body, _ in tried], [b"m0", b"m1", b"m1", b"m1", b"m2", b"m3", b"m3", b"m4"])
    times = [time for _, time in tried]
    stage.between("rest after a failure, in s", times[2] - times[1], 0.29, 10)
    stage.between("rest after a suspension, in s", times[6] - times[5], 1.49, 12)


@ORDERING.act("of two ordered members each queue has one reader at any time, also while one leaves")
async def one_reader(stage: Stage) -> None:
    topic, group = await stage.topic(queues=4), stage.name("CG")
    got: list[tuple[int, int, int]] = []

    def listener(member: int) -> Any:
        async def listen(message: StoredMessage) -> None:
            got.append((message.queue_id, message.queue_offset, member))

        return listen

    members = [stage.push(group, ordered=True) for _ in range(2)]
    for number, member in enumerate(members):
        member.on(topic)(listener(number))
    async with stage.producer() as producer, members[0]:
        async with members[1]:
            await stage.owns(members[0], 2)
            await stage.owns(members[1], 2)
            for body in numbered(40):
                await producer.send(topic, body)
            await stage.until("40 messages", lambda: len(got) >= 40)
        await stage.owns(members[0], 4)
        for body in numbered(40):
            await producer.send(topic, body)
        await stage.until("80 messages", lambda: len(got) >= 80)
        await asyncio.sleep(0.3)

    for queue_id in range(4):
        offsets = [offset for queue, offset, _ in got if queue == queue_id]
        stage.same(f"offsets of queue {queue_id}", offsets, list(range(20)))
    stage.same("members that read", {member for _, _, member in got}, {0, 1})


@ORDERING.act("an ordered message that fails too often becomes a dead letter, and the queue continues")
async def gives_up(stage: Stage) -> None:
    topic, group, basket = await stage.topic(queues=1), stage.name("CG"), Basket(lambda m: m.body != b"m1")
    consumer = stage.push(group, ordered=True, suspend_ms=200, max_reconsume_times=2)
    consumer.on(topic)(basket)
    async with stage.producer() as producer, stage.admin() as admin, consumer:
        for body in numbered(3):
            await producer.send(topic, body, properties={"mine": "yes"})
        await stage.until("the message behind it", lambda: b"m2" in basket.bodies)
        await stage.comes("a dead letter", lambda: admin.dead_letters.count(group))
        (letter,) = await admin.dead_letters.read(group)

    tries = basket.bodies.count(b"m1")
    stage.between("how often it was tried", tries, 3, 4)
    stage.same("order", [body for body in basket.bodies if body != b"m1"], [b"m0", b"m2"])
    stage.same(
        "the letter", (letter.message.body, letter.topic, letter.message.properties["mine"]), (b"m1", topic, "yes")
    )
