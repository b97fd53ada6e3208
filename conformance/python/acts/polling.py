"""Pull and lite pull consumers: they decide when to read, and at which offset."""

import asyncio
from typing import Final

from conformance.python.stage import Programme, Stage, numbered
from pocketmq.client import AsyncLitePullConsumer
from pocketmq.client.consumer.pulling import PullStatus
from pocketmq.model.message import StoredMessage

POLLING: Final = Programme("pulling")


async def _polled(consumer: AsyncLitePullConsumer, count: int) -> list[StoredMessage]:
    found: list[StoredMessage] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            found += await consumer.poll(1)
    return found


@POLLING.act("a pull returns messages, reaches the end, and gets an error for an offset outside the queue")
async def pulls(stage: Stage) -> None:
    topic = await stage.topic(queues=1)
    async with stage.producer() as producer:
        for body in numbered(5):
            await producer.send(topic, body)
    async with stage.pull(stage.name("CG")) as reader:
        (queue,) = await reader.queues(topic)
        all_of_them = await reader.pull(queue, 0)
        two = await reader.pull(queue, 1, 2)
        end = await reader.pull(queue, 5)
        beyond = await reader.pull(queue, 99)

    stage.same("bodies", [message.body for message in all_of_them.messages], numbered(5))
    found = (all_of_them.status, all_of_them.next_offset, all_of_them.min_offset, all_of_them.max_offset)
    stage.same("status, next, min, max", found, (PullStatus.FOUND, 5, 0, 5))
    stage.same("two of them", ([m.queue_offset for m in two.messages], two.next_offset), ([1, 2], 3))
    stage.same("at the end", (end.status, end.next_offset), (PullStatus.NO_NEW_MESSAGE, 5))
    # The next offset differs: Apache's brokers return the end of the queue, PocketMQ's the offset of the group.
    stage.same("beyond it", (beyond.status, beyond.max_offset), (PullStatus.OFFSET_ILLEGAL, 5))


@POLLING.act("a pull that may wait is woken by a message, or ends when its time is over")
async def held(stage: Stage) -> None:
    topic = await stage.topic(queues=1)
    async with stage.producer() as producer, stage.pull(stage.name("CG"), pull_wait_ms=5000) as reader:
        await producer.send(topic, b"first")
        (queue,) = await reader.queues(topic)
        waiting = asyncio.create_task(reader.pull_block_if_not_found(queue, 1))
        await asyncio.sleep(1.5)
        stage.true("it waits", not waiting.done())
        began = stage.now
        await producer.send(topic, b"second")
        woken = await waiting
        stage.between("from the send to the answer, in s", stage.now - began, 0, 5)
        began = stage.now
        in_vain = await reader.pull_block_if_not_found(queue, 2)
        stage.between("held in vain, in s", stage.now - began, 4.5, 15)

    stage.same("what woke it", [message.body for message in woken.messages], [b"second"])
    stage.same("in vain", (in_vain.status, in_vain.next_offset), (PullStatus.NO_NEW_MESSAGE, 2))


@POLLING.act("a lite pull consumer polls its queues, commits, and continues there")
async def subscribed(stage: Stage) -> None:
    topic, group = await stage.topic(queues=2), stage.name("CG")
    async with stage.producer() as producer:
        for body in numbered(10):
            await producer.send(topic, body, tags="TagA")
        await producer.send(topic, b"other", tags="TagB")
    consumer = stage.lite(group, auto_commit=False)
    await consumer.subscribe(topic, tags="TagA")
    async with consumer:
        found = await _polled(consumer, 10)
        await consumer.commit()
        committed = [await consumer.committed(queue) for queue in await consumer.queues()]
    async with stage.producer() as producer:
        await producer.send(topic, b"next", tags="TagA")
    later = stage.lite(group)
    await later.subscribe(topic, tags="TagA")
    async with later:
        again = await _polled(later, 1)

    stage.same("bodies", sorted(message.body for message in found), numbered(10))
    stage.between("committed", sum(offset or 0 for offset in committed), 10, 11)
    stage.same("afterwards", [message.body for message in again], [b"next"])


@POLLING.act("assigned queues: seek to an offset, a time, begin and end; pause and resume")
async def assigned(stage: Stage) -> None:
    topic = await stage.topic(queues=1)
    async with stage.producer() as producer:
        for body in numbered(4, "old"):
            await producer.send(topic, body)
        await asyncio.sleep(1.1)
        middle = stage.now_ms()
        await asyncio.sleep(1.1)
        for body in numbered(4, "new"):
            await producer.send(topic, body)
        consumer = stage.lite(stage.name("CG"), poll_timeout_ms=500)
        async with consumer:
            (queue,) = await consumer.queues_of(topic)
            await consumer.assign([queue])
            if stage.traits.exact_times:
                stage.same("offset at a time", await consumer.offset_at(queue, middle), 4)
            await consumer.seek(queue, 6)
            stage.same("from 6 on", [m.body for m in await _polled(consumer, 2)], [b"new2", b"new3"])
            await consumer.seek_to_begin(queue)
            stage.same("from the begin on", (await _polled(consumer, 8))[0].body, b"old0")
            await consumer.seek_to_time(queue, middle)
            timely = [m.body for m in await _polled(consumer, 4) if stage.traits.exact_times or m.body != b"old3"]
            stage.same("from a time on", timely, numbered(4, "new"))
            await consumer.seek_to_end(queue)
            stage.same("at the end", await consumer.poll(1), [])
            await consumer.pause([queue])
            await producer.send(topic, b"paused")
            stage.same("while it is paused", await consumer.poll(2), [])
            await consumer.resume([queue])
            stage.same("after that", [m.body for m in await _polled(consumer, 1)], [b"paused"])
            stage.same("position before it is done", await consumer.position(queue), 8)
            await consumer.poll(0.1)
            stage.same("position after that", await consumer.position(queue), 9)
