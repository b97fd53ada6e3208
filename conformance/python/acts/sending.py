"""Every way to send: what is stored, where, and what the answer says."""

import asyncio
import random
import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from conformance.python.stage import Programme, Stage, numbered
from pocketmq.client import Producer, SendResult, SendStatus
from pocketmq.codes import Compression
from pocketmq.errors import InvalidMessage, RemoteError, TopicNotFound
from pocketmq.model.message import Message
from pocketmq.model.queue import MessageQueue

SENDING: Final = Programme("sending")
BIG: Final = b"compress me, please. " * 1000


def _contiguous(stage: Stage, results: list[SendResult], queues: int) -> None:
    """Each queue has offsets from 0 on without a gap."""
    offsets: dict[int, list[int]] = {}
    for result in results:
        offsets.setdefault(result.queue.queue_id, []).append(result.queue_offset)
    for queue_id, found in offsets.items():
        stage.same(f"offsets of queue {queue_id}", sorted(found), list(range(len(found))))
    stage.true(f"only queues below {queues} are used", set(offsets) <= set(range(queues)))


@SENDING.act("a message with tag, keys, flag and properties is stored unchanged, and the answer has its position")
async def plain(stage: Stage) -> None:
    topic = await stage.topic(queues=1)
    properties = {"colour": "red", "text": "中文 ü", "empty-ish": " "}
    async with stage.producer() as producer:
        message = Message(topic, b"\x00body\xff", tags="TagA", keys=["k1", "k2"], properties=properties, flag=7)
        result = await producer.send(message)
        second = await producer.send(topic, b"second")

    stage.same("status", result.status, SendStatus.SEND_OK)
    stage.same("offsets", (result.queue_offset, second.queue_offset), (0, 1))
    stage.true("the message id has 32 hexadecimal digits", re.fullmatch("[0-9A-F]{32}", result.message_id))
    stored = (await stage.stored(topic, 2))[0]
    stage.same("body", stored.body, b"\x00body\xff")
    stage.same("tags, keys, flag", (stored.tags, stored.keys, stored.flag), ("TagA", ["k1", "k2"], 7))
    stage.same("properties", {name: stored.properties.get(name) for name in properties}, properties)
    stage.same("id", stored.message_id, result.message_id)
    stage.same("broker's id", stored.offset_id, result.offset_id)
    stage.same("place", (stored.queue_id, stored.queue_offset), (result.queue.queue_id, 0))
    stage.between("born to stored, in ms", stored.store_ms - stored.born_ms, -1000, 30_000)


@SENDING.act("queues are used in turn, and each has its own offsets")
async def in_turn(stage: Stage) -> None:
    topic = await stage.topic(queues=4)
    async with stage.producer() as producer:
        results = [await producer.send(topic, body) for body in numbered(16)]

    stage.same(
        "messages of each queue", Counter(result.queue.queue_id for result in results), dict.fromkeys(range(4), 4)
    )
    _contiguous(stage, results, 4)


@SENDING.act("a chosen queue, a selector and a sharding key are kept to, in order")
async def chosen(stage: Stage) -> None:
    topic = await stage.topic(queues=4)
    async with stage.producer() as producer:
        queues = sorted(await producer.queues(topic))
        for body in numbered(3, "queue"):
            await producer.send(topic, body, queue=queues[3])
        for body in numbered(3, "selector"):
            await producer.send(topic, body, selector=lambda all_queues, *_: sorted(all_queues)[1])
        sharded = [await producer.send(topic, body, sharding_key="customer-7") for body in numbered(3, "sharded")]

    stored = await stage.stored(topic, 9)
    stage.same("queue 3", [m.body for m in stored if m.body.startswith(b"queue")], numbered(3, "queue"))
    stage.same("its id", {m.queue_id for m in stored if m.body.startswith(b"queue")}, {3})
    stage.same("its id by a selector", {m.queue_id for m in stored if m.body.startswith(b"selector")}, {1})
    stage.same("queues of one sharding key", len({result.queue for result in sharded}), 1)
    stage.same(
        "order of a sharding key", [m.body for m in stored if m.body.startswith(b"shard")], numbered(3, "sharded")
    )
    stage.true("the key goes along", all(m.properties.get("__SHARDINGKEY") for m in stored if m.body.startswith(b"sh")))


@SENDING.act("many sends at once, by futures: each is stored once")
async def at_once(stage: Stage) -> None:
    topic = await stage.topic(queues=2)
    bodies = numbered(200)
    async with stage.producer() as producer:
        results = await asyncio.gather(*(producer.submit(topic, body) for body in bodies))

    stored = await stage.stored(topic, 200)
    stage.same("bodies", sorted(message.body for message in stored), sorted(bodies))
    _contiguous(stage, list(results), 2)
    places = {message.message_id: (message.queue_id, message.queue_offset) for message in stored}
    told = {result.message_id: (result.queue.queue_id, result.queue_offset) for result in results}
    stage.same("places", told, places)


@SENDING.act("one-way sends arrive")
async def one_way(stage: Stage) -> None:
    topic = await stage.topic(queues=1)
    async with stage.producer() as producer:
        for body in numbered(5):
            await producer.send_one_way(topic, body)
        await producer.send(topic, b"last")  # by the same line, so the others are stored by then

    stage.same("bodies", sorted(message.body for message in await stage.stored(topic, 6)), [b"last", *numbered(5)])


@SENDING.act("bodies over 4 KiB are compressed: zlib, LZ4, ZSTD; readers get them decompressed")
async def compressed(stage: Stage) -> None:
    topic = await stage.topic(queues=1)
    kinds = [Compression.ZLIB, Compression.LZ4, Compression.ZSTD]
    for kind in kinds:
        async with stage.producer(compression=kind, group=stage.name(f"PG_{kind.name}")) as producer:
            await producer.send(topic, BIG, properties={"kind": kind.name})
            await producer.send(topic, b"small", properties={"kind": kind.name})

    stored = await stage.stored(topic, 6)
    stage.same("bodies", [message.body for message in stored], [BIG, b"small"] * len(kinds))
    for message in stored[::2]:
        stage.true(f"{message.properties['kind']} makes it small: {message.size}", message.size < len(BIG) / 10)


@SENDING.act("a batch is one send: offsets side by side, each message with its own id, keys and properties")
async def batches(stage: Stage) -> None:
    topic = await stage.topic(queues=2)
    bodies = numbered(20)
    async with stage.producer() as producer:
        messages = [
            Message(topic, body, tags="TagB", keys=[f"key{n}"], properties={"n": str(n)})
            for n, body in enumerate(bodies)
        ]
        results = await producer.send_many(messages)

    stage.same("queues", len({result.queue for result in results}), 1)
    stage.same("offsets", [result.queue_offset for result in results], list(range(20)))
    stored = await stage.stored(topic, 20)
    stage.same("bodies", [message.body for message in stored], bodies)
    stage.same("ids", [message.message_id for message in stored], [result.message_id for result in results])
    stage.same("broker's ids", [message.offset_id for message in stored], [result.offset_id for result in results])
    stage.same("keys", [message.keys for message in stored], [[f"key{n}"] for n in range(20)])
    stage.same("properties", [message.properties.get("n") for message in stored], [str(n) for n in range(20)])


@SENDING.act("a producer that lingers makes batches by itself; order within a queue is kept")
async def lingering(stage: Stage) -> None:
    topic = await stage.topic(queues=1)
    bodies = numbered(100)
    async with stage.producer(linger_ms=20) as producer:
        results = await asyncio.gather(*(producer.submit(topic, body) for body in bodies))

    stage.same("offsets", [result.queue_offset for result in results], list(range(100)))
    stage.same("order", [message.body for message in await stage.stored(topic, 100)], bodies)


@SENDING.act("a send to a missing topic creates it by the template")
async def auto_created(stage: Stage) -> None:
    topic = stage.name("Made")
    async with stage.producer(new_topic_queues=3) as producer, stage.admin() as admin:
        result = await producer.send(topic, b"first")
        state = await admin.topics.describe(topic)

    stage.same("status", result.status, SendStatus.SEND_OK)
    stage.same("queues", len(state.queues), 3)
    stage.same("messages", [message.body for message in await stage.stored(topic, 1)], [b"first"])


@SENDING.act("refused: a missing queue, a missing topic, a too large body")
async def refusals(stage: Stage) -> None:
    topic = await stage.topic(queues=1)
    async with stage.producer(
        retries=0, template_topic=stage.name("NoTemplate"), max_message_bytes=1 << 23
    ) as producer:
        broker = (await producer.queues(topic))[0].broker_name
        await stage.refused("queue 99", RemoteError, producer.send(topic, b"x", queue=MessageQueue(topic, broker, 99)))
        await stage.refused("no such topic", TopicNotFound, producer.send(stage.name("Nowhere"), b"x"))
        noise = random.Random(1).randbytes(5 << 20)
        await stage.refused("5 MiB at the broker", RemoteError, producer.send(topic, noise, properties={"n": "1"}))
    async with stage.producer() as producer:
        await stage.refused("5 MiB at the client", InvalidMessage, producer.send(topic, noise))

    stage.same("messages", len(await stage.stored(topic)), 0)


@SENDING.act("the blocking producer sends from several threads", needs="threads")
async def blocking(stage: Stage) -> None:
    topic = await stage.topic(queues=2)

    def work() -> list[SendResult]:
        options = {**stage.options(), "group": stage.name("PG_blocking"), "send_timeout_ms": 20_000}
        with Producer(stage.name_server, **options) as producer, ThreadPoolExecutor(3) as threads:
            return list(threads.map(lambda body: producer.send(topic, body), numbered(60)))

    _contiguous(stage, await asyncio.to_thread(work), 2)
    stage.same("messages", len(await stage.stored(topic, 60)), 60)
