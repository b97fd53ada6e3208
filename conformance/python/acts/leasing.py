"""POP: brokers lease messages to any member; what is not acknowledged returns, alone."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any, Final

from conformance.python.stage import Basket, Programme, Stage
from pocketmq.client import DeadLetter
from pocketmq.errors import LeaseLost, RequestNotSupported
from pocketmq.model.message import StoredMessage
from pocketmq.model.queue import MessageQueue

LEASING: Final = Programme("pop")
LATE_S: Final = 25
"""How late a returned message may be: Apache's broker returns it two to four seconds after its lease, a busy one later."""
MANY: Final = [b"%d" % number for number in range(60)]


async def _send(stage: Stage, topic: str, *bodies: bytes, queue: int | None = None, **options: Any) -> None:
    async with stage.producer() as producer:
        for body in bodies:
            place = None if queue is None else MessageQueue(topic, await _broker(stage, topic), queue)
            await producer.send(topic, body, queue=place, **options)


async def _broker(stage: Stage, topic: str) -> str:
    async with stage.pull(stage.name("CG_who")) as reader:
        return next(iter(await reader.queues(topic))).broker_name


@LEASING.act("two members handle every message of all queues once, and nothing returns", needs="pops")
async def all_once(stage: Stage) -> None:
    topic, group = await stage.topic(queues=4), stage.name("CG")
    basket = Basket()
    one, two = stage.push(group, mode="pop"), stage.push(group, mode="pop")
    for consumer in (one, two):
        consumer.on(topic)(basket)
    async with one, two:
        await _send(stage, topic, *MANY)
        await stage.until("all messages", lambda: len(basket) == len(MANY))
        queues = [queue.queue_id for queue in await one.queues() if queue.topic == topic]
        await asyncio.sleep(10)
        counts = one.leases, two.leases

    stage.same("bodies", Counter(basket.bodies), Counter(MANY))
    stage.same("topics", {message.topic for message in basket.messages}, {topic})
    stage.same("assigned queues", queues, [-1])
    stage.same("open leases, returned, lapsed, rejected", [(one[0], *one[2:]) for one in counts], 2 * [(0, 0, 0, 0)])


@LEASING.act("a failed message returns alone after its back-off, with its content and one attempt more", needs="pops")
async def returns_alone(stage: Stage) -> None:
    topic, basket = (
        await stage.topic(queues=1),
        Basket(lambda message: message.body != b"1" or message.reconsume_times > 1),
    )
    consumer = stage.push(stage.name("CG"), mode="pop")
    consumer.on(topic)(basket)
    async with consumer:
        await _send(stage, topic, b"0", b"1", b"2", tags="TagA", keys="key", properties={"mine": "yes"})
        await stage.until("the second attempt", lambda: len(basket) == 4, 90)
        await stage.until("the third attempt", lambda: len(basket) == 5, 120)

    times = [at for at, message in zip(basket.times, basket.messages, strict=True) if message.body == b"1"]
    again = [message for message in basket.messages if message.body == b"1"]
    stage.same("attempts before", [message.reconsume_times for message in again], [0, 1, 2])
    stage.between("first back-off, in s", times[1] - times[0], 9.5, 10 + LATE_S)
    stage.between("second back-off, in s", times[2] - times[1], 29.5, 30 + LATE_S)
    last = again[-1]
    stage.same(
        "what came again",
        (last.topic, last.tags, last.keys, last.properties.get("mine")),
        (topic, "TagA", ["key"], "yes"),
    )
    stage.same("others", sorted(message.body for message in basket.messages if message.body != b"1"), [b"0", b"2"])


@LEASING.act("a dead letter has its reason, at once or after the last attempt, and the message is gone", needs="pops")
async def dead(stage: Stage) -> None:
    topic, group = await stage.topic(queues=1), stage.name("CG")

    def answer(message: StoredMessage) -> Any:
        return DeadLetter("no such customer") if message.body == b"hopeless" else ValueError("not yet")

    basket = Basket(answer)
    consumer = stage.push(group, mode="pop", max_reconsume_times=1)
    consumer.on(topic)(basket)
    async with consumer, stage.admin() as admin:
        await _send(stage, topic, b"hopeless", b"failing")

        async def two() -> bool:
            return await admin.dead_letters.count(group) == 2

        await stage.comes("two dead letters", two, 120)
        letters = {letter.message.body: letter for letter in await admin.dead_letters.read(group)}
        await asyncio.sleep(15)

    stage.same("letters", sorted(letters), [b"failing", b"hopeless"])
    stage.same("their topics", {letter.topic for letter in letters.values()}, {topic})
    stage.same("a reason", letters[b"hopeless"].reason, "no such customer")
    stage.same("calls", Counter(basket.bodies), Counter({b"failing": 2, b"hopeless": 1}))


@LEASING.act("a listener that runs three times as long as its lease keeps the message", needs="pops")
async def kept(stage: Stage) -> None:
    topic, group = await stage.topic(queues=2), stage.name("CG")
    calls: Counter[bytes] = Counter()

    async def listen(message: StoredMessage) -> None:
        calls[message.body] += 1
        await asyncio.sleep(20)

    async with AsyncExitStack() as running:
        members = [stage.push(group, mode="pop", pop_invisible_ms=6_000, workers=2) for _ in range(2)]
        for member in members:
            member.on(topic)(listen)
            await running.enter_async_context(member)
        await _send(stage, topic, b"1", b"2", b"3")
        await stage.until("all calls", lambda: calls.total() == 3)
        await asyncio.sleep(35)
        counts = [member.leases for member in members]

    stage.same("calls", calls, Counter({b"1": 1, b"2": 1, b"3": 1}))
    stage.same(
        "lapsed leases and rejected acks", [(each.lapsed, each.rejected_acks) for each in counts], [(0, 0), (0, 0)]
    )


@LEASING.act("ordered messages are handled in the order of their queue; a failure delays only its queue", needs="pops")
async def in_order(stage: Stage) -> None:
    topic, group = await stage.topic(queues=2), stage.name("CG")
    handled: dict[int, list[bytes]] = {0: [], 1: []}
    failing = {b"0-3"}

    async def listen(message: StoredMessage) -> None:
        if message.body in failing:
            failing.discard(message.body)
            raise ValueError(message.body)
        await asyncio.sleep(0.05)
        handled[message.queue_id].append(message.body)

    for queue in (0, 1):
        await _send(stage, topic, *(b"%d-%d" % (queue, number) for number in range(8)), queue=queue)
    members = [stage.push(group, mode="pop", ordered=True, pop_invisible_ms=10_000) for _ in range(2)]
    async with AsyncExitStack() as running:
        for member in members:
            member.on(topic)(listen)
            await running.enter_async_context(member)
        await stage.until("all messages", lambda: sum(map(len, handled.values())) == 16, 90)
        await asyncio.sleep(15)

    stage.same("order", handled, {queue: [b"%d-%d" % (queue, number) for number in range(8)] for queue in (0, 1)})


@LEASING.act("tags and SQL92 select the messages of a pop", needs="pops")
async def selected(stage: Stage) -> None:
    topic = await stage.topic(queues=2)
    tags, sql = Basket(), Basket()
    one, two = stage.push(stage.name("CG_tags"), mode="pop"), stage.push(stage.name("CG_sql"), mode="pop")
    one.on(topic, tags="a || c")(tags)
    two.on(topic, sql="number > 1")(sql)
    async with one, two:
        for number, tag in enumerate("abcd"):
            await _send(stage, topic, tag.encode(), tags=tag, properties={"number": str(number)})
        await stage.until("selected messages", lambda: len(tags) == 2 and len(sql) == 2)
        await asyncio.sleep(3)

    stage.same("by tags", sorted(tags.bodies), [b"a", b"c"])
    stage.same("by SQL92", sorted(sql.bodies), [b"c", b"d"])


@LEASING.act("a simple consumer acknowledges several messages at once, changes a lease, and loses one", needs="pops")
async def simple(stage: Stage) -> None:
    topic = await stage.topic(queues=2)
    async with stage.simple(stage.name("CG")) as consumer:
        await consumer.subscribe(topic)
        await _send(stage, topic, *MANY[:6])
        found: list[StoredMessage] = []

        async def received(count: int, seconds: float) -> bool:
            found.extend(await consumer.receive(32, invisible_s=seconds, wait_s=2))
            return len(found) >= count

        await stage.comes("six messages", lambda: received(6, 12))
        await consumer.ack(found[:4])
        await consumer.change_invisible(found[4], 120)
        await asyncio.sleep(12)
        await stage.refused("a late ack", LeaseLost, consumer.ack(found[5]))
        late, found = found[5], []
        await stage.comes("the message whose lease ended", lambda: received(1, 60))
        await asyncio.sleep(10)
        await received(1, 60)
        await consumer.ack(found)

    stage.same("what returned", [(message.body, message.reconsume_times) for message in found], [(late.body, 1)])


@LEASING.act("a simple consumer and a push consumer share the messages of a group", needs="pops")
async def both_kinds(stage: Stage) -> None:
    topic, group = await stage.topic(queues=2), stage.name("CG")
    handled: Counter[bytes] = Counter()

    async def listen(message: StoredMessage) -> None:
        await asyncio.sleep(0.2)
        handled[message.body] += 1

    await _send(stage, topic, *MANY[:40])
    received = 0
    pushing = stage.push(group, mode="pop", workers=2)
    pushing.on(topic)(listen)
    async with pushing, stage.simple(group) as pulling:
        await pulling.subscribe(topic)
        for _ in range(200):
            for message in await pulling.receive(2, wait_s=0.5):
                handled[message.body] += 1
                received += 1
                await pulling.ack(message)
            if handled.total() >= 40:
                break
            await asyncio.sleep(0.2)

    stage.same("bodies", handled, Counter(MANY[:40]))
    stage.between("messages of the simple consumer", received, 2, 38)


@LEASING.act("a group is switched from pull to POP and back while messages are sent, and none is lost", needs="pops")
async def switched(stage: Stage) -> None:
    topic, group = await stage.topic(queues=2), stage.name("CG")
    handled: Counter[bytes] = Counter()
    failed: set[bytes] = set()

    async def listen(message: StoredMessage) -> bool:
        if message.body.endswith(b"5") and message.body not in failed:
            failed.add(message.body)
            return False
        handled[message.body] += 1
        return True

    sent: list[bytes] = []
    async with AsyncExitStack() as running:
        admin = await running.enter_async_context(stage.admin())
        producer = await running.enter_async_context(stage.producer())
        for _ in range(2):
            member = stage.push(group, mode="broker", rebalance_ms=2_000)
            member.on(topic)(listen)
            await running.enter_async_context(member)
        for mode in ("PULL", "POP", "PULL"):
            await admin.groups.set_mode(group, topic, mode)
            for _ in range(20):
                sent.append(b"%d" % len(sent))
                await producer.send(topic, sent[-1])
                await asyncio.sleep(0.3)
            ids = {queue.queue_id for queue in await member.queues() if queue.topic == topic}
            stage.same(f"queue -1 in mode {mode}", -1 in ids, mode == "POP")
        await stage.until("all messages", lambda: handled.keys() == set(sent), 120)

    stage.true("few messages came twice", handled.total() <= len(sent) + 20)


@LEASING.act("a reset while messages are leased delivers them again", needs="pops")
async def reset(stage: Stage) -> None:
    topic, group = await stage.topic(queues=1), stage.name("CG")
    finish = asyncio.Event()
    calls: Counter[bytes] = Counter()

    async def listen(message: StoredMessage) -> None:
        calls[message.body] += 1
        await finish.wait()

    await _send(stage, topic, *MANY[:5])
    consumer = stage.push(group, mode="pop")
    consumer.on(topic)(listen)
    async with consumer, stage.admin() as admin:
        await stage.until("five calls", lambda: calls.total() == 5)
        await asyncio.sleep(2)
        await admin.offsets.reset(group, topic, "earliest")
        await stage.until("ten calls", lambda: calls.total() == 10)
        finish.set()
        await stage.until("all acks", lambda: not consumer.leases.in_flight)

    stage.same("calls", calls, Counter(dict.fromkeys(MANY[:5], 2)))


@LEASING.act("a broker of RocketMQ 4 is refused with a clear error", needs="no_pops")
async def refused(stage: Stage) -> None:
    topic = await stage.topic(queues=1)
    for consumer in (stage.push(stage.name("CG"), mode="pop"), stage.push(stage.name("CG2"), mode="broker")):
        consumer.on(topic)(Basket())
        try:
            await consumer.start()
        except RequestNotSupported as error:
            stage.true(f"{error} names POP", "cannot lease messages (POP)" in str(error))
        else:
            stage.true("the start fails", False)
            await consumer.stop()
