"""Request and reply, and topics that belong to a namespace."""

from typing import Final

from conformance.python.stage import Basket, Programme, Stage
from pocketmq.errors import CallTimedOut
from pocketmq.model.message import StoredMessage

REQUESTS: Final = Programme("requests")


@REQUESTS.act("a request gets the reply that is meant for it; without one it ends in time")
async def replies(stage: Stage) -> None:
    topic = await stage.topic(queues=1)
    async with stage.producer(group=stage.name("PG_replier")) as replier, stage.producer() as asker:

        async def answer(message: StoredMessage) -> None:
            await replier.reply(message, b"answer to " + message.body)

        consumer = stage.push(stage.name("CG"))
        consumer.on(topic, tags="Ask")(answer)
        async with consumer:
            await stage.owns(consumer, 1)
            for question in (b"one", b"two"):
                found = await asker.request(topic, question, timeout_s=30, tags="Ask")
                stage.same("answer", found.body, b"answer to " + question)
            began = stage.now
            await stage.refused("nobody answers", CallTimedOut, asker.request(topic, b"?", timeout_s=2, tags="Unheard"))
            stage.between("until that is over, in s", stage.now - began, 1.9, 6)


@REQUESTS.act("a namespace keeps topics and groups apart, and does not show in names")
async def namespace(stage: Stage) -> None:
    topic, inside, outside = stage.name("T"), Basket(), Basket()
    space = stage.name("NS")
    async with stage.admin(namespace=space) as admin:
        await admin.topics.create(topic, queues=1)
    await stage.topic(queues=1)
    consumers = [stage.push("CG_same", namespace=space), stage.push("CG_same")]
    for consumer, basket in zip(consumers, (inside, outside), strict=True):
        consumer.on(topic)(basket)
    async with consumers[0], consumers[1], stage.producer(namespace=space) as producer, stage.producer() as other:
        await producer.send(topic, b"inside")
        await other.send(topic, b"outside")
        await stage.until("one message each", lambda: len(inside) == len(outside) == 1)

    stage.same("bodies", (inside.bodies, outside.bodies), ([b"inside"], [b"outside"]))
    stage.same("topics that listeners see", (inside.messages[0].topic, outside.messages[0].topic), (topic, topic))
    stored = await stage.stored(f"{space}%{topic}", 1)
    stage.same("the stored topic", [message.body for message in stored], [b"inside"])
