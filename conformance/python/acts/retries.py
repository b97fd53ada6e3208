"""Failures: a message comes again, later and later, and at last it is a dead letter that can be read and sent once more."""

from typing import Any, Final

from conformance.python.stage import Basket, Programme, Stage
from pocketmq.client import DeadLetter, RetryLater
from pocketmq.model.message import StoredMessage

RETRIES: Final = Programme("retries")
LATE_S: Final = 20
"""How late a message may be on a busy machine."""


@RETRIES.act("a failed message is delivered again after 10 s, with its content and its history")
async def comes_again(stage: Stage) -> None:
    topic, basket = await stage.topic(queues=1), Basket(lambda message: message.reconsume_times > 0)
    consumer = stage.push(stage.name("CG"))
    consumer.on(topic)(basket)
    async with stage.producer() as producer, consumer:
        sent = await producer.send(topic, b"body", tags="TagA", keys="key", properties={"mine": "yes"})
        await stage.until("a second time", lambda: len(basket) == 2)

    first, second = basket.messages
    stage.between("wait, in s", basket.times[1] - basket.times[0], 9.5, 10 + LATE_S)
    stage.same("body, tags, keys", (second.body, second.tags, second.keys), (b"body", "TagA", ["key"]))
    stage.same("topic that the listener sees", (first.topic, second.topic), (topic, topic))
    stage.same("times tried before", (first.reconsume_times, second.reconsume_times), (0, 1))
    stage.same("the user's property", second.properties.get("mine"), "yes")
    stage.same("unique key", second.properties.get("UNIQ_KEY"), sent.message_id)
    stage.same("origin", second.properties.get("ORIGIN_MESSAGE_ID"), sent.offset_id)


@RETRIES.act("a listener chooses the delay; after the last attempt the message is a dead letter")
async def dead(stage: Stage) -> None:
    topic, group = await stage.topic(queues=1), stage.name("CG")
    basket = Basket(lambda _: RetryLater("not now", delay_level=1))
    consumer = stage.push(group, max_reconsume_times=2)
    consumer.on(topic)(basket)
    async with stage.producer() as producer, stage.admin() as admin, consumer:
        sent = await producer.send(topic, b"doomed", tags="TagA", keys="key", properties={"mine": "yes"})
        await stage.comes("a dead letter", lambda: admin.dead_letters.count(group))
        (letter,) = await admin.dead_letters.read(group)

    stage.same("attempts", [message.reconsume_times for message in basket.messages], [0, 1, 2])
    for earlier, later in zip(basket.times, basket.times[1:], strict=False):
        stage.between("wait of level 1, in s", later - earlier, 0.9, 1 + LATE_S)
    found = letter.message
    stage.same("letter", (found.body, found.tags, found.keys), (b"doomed", "TagA", ["key"]))
    stage.same("its topic, its property", (letter.topic, found.properties.get("mine")), (topic, "yes"))
    stage.same("its first id", letter.original_id, sent.message_id)


@RETRIES.act("a listener makes a dead letter at once; it has the reason, and can be sent again")
async def at_once(stage: Stage) -> None:
    topic, group = await stage.topic(queues=1), stage.name("CG")

    async def listener(message: StoredMessage) -> Any:
        await basket(message)
        if "repaired" not in message.properties:
            raise DeadLetter("no such customer")

    basket = Basket()
    consumer = stage.push(group)
    consumer.on(topic)(listener)
    async with stage.producer() as producer, stage.admin() as admin, consumer:
        await producer.send(topic, b"letter", keys="k", tags="T")
        letters = await stage.comes("a dead letter", lambda: admin.dead_letters.read(group))
        resent = await admin.dead_letters.resend(letters, properties={"repaired": "yes"})
        await stage.until("the message that was sent again", lambda: len(basket) == 2)

    stage.same("reason", letters[0].reason, "no such customer")
    stage.same("letters sent again", (len(resent.sent), resent.failed), (1, ()))
    again = basket.messages[1]
    stage.same("what came", (again.body, again.keys, again.tags, again.reconsume_times), (b"letter", ["k"], "T", 0))


@RETRIES.act("a pull consumer sends a message back: it is delivered to the group again")
async def sent_back(stage: Stage) -> None:
    topic, group, basket = await stage.topic(queues=1), stage.name("CG"), Basket()
    async with stage.producer() as producer:
        await producer.send(topic, b"back")
    consumer = stage.push(group, start_at="first")
    consumer.on(topic)(basket)
    async with consumer:
        await stage.until("the first time", lambda: len(basket) == 1)
        async with stage.pull(group) as reader:
            (queue,) = await reader.queues(topic)
            (message,) = (await reader.pull(queue, 0)).messages
            await reader.send_back(message, queue.broker_name, delay_level=1)
            await stage.until("the second time", lambda: len(basket) == 2)

    stage.same("bodies", basket.bodies, [b"back", b"back"])
    stage.same("times tried before", basket.messages[1].reconsume_times, 1)
