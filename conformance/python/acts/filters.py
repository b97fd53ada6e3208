"""Filters: by tag and by SQL92, for consumers that are pushed to and for those that pull."""

from typing import Final

from conformance.python.stage import Basket, Programme, Stage
from pocketmq.client.consumer.pulling import PullStatus
from pocketmq.errors import InvalidExpression

FILTERS: Final = Programme("filters")
COLOURS: Final = ("red", "blue", "green")


async def _sent(stage: Stage, topic: str) -> None:
    """Messages 0 to 8: tags A, B and C in turn, a colour, and a number that every third one lacks."""
    async with stage.producer() as producer:
        for number in range(9):
            properties = {"colour": COLOURS[number % 3], "price": f"{number}.5"}
            if number % 3:
                properties["n"] = str(number)
            await producer.send(topic, str(number).encode(), tags="ABC"[number % 3], properties=properties)
        await producer.send(topic, b"untagged", properties={"n": "end"})


@FILTERS.act("tags: one, several, none")
async def tags(stage: Stage) -> None:
    topic = await stage.topic(queues=1)
    await _sent(stage, topic)
    wanted = {"A": "036", "A || C": "023568", "Z": ""}
    for number, (expression, expected) in enumerate(wanted.items()):
        basket = Basket()
        consumer = stage.push(stage.name(f"CG{number}"))
        consumer.on(topic, tags=expression)(basket)
        async with consumer:
            await stage.until(f"messages of {expression}", lambda: len(basket) >= len(expected))  # noqa: B023
            if not expected:
                await _passed_over(stage, stage.name(f"CG{number}"), topic)
        stage.same(f"messages of {expression}", b"".join(basket.bodies).decode(), expected)


async def _passed_over(stage: Stage, group: str, topic: str) -> None:
    """Messages that a filter rejects are skipped: the offset of the group is after them."""
    async with stage.admin() as admin:

        async def is_behind() -> bool:
            return 10 in (await admin.offsets.committed(group, topic)).values()

        await stage.comes("an offset after the rejected messages", is_behind)


@FILTERS.act("SQL92: comparisons, BETWEEN, IN, NULL, AND, OR, NOT, text and numbers, tags as TAGS")
async def sql(stage: Stage) -> None:
    topic = await stage.topic(queues=1)
    await _sent(stage, topic)
    wanted = {
        "n > 3": "4578",
        "n BETWEEN 2 AND 5 AND colour = 'green'": "25",
        "colour IN ('red', 'green') AND TAGS = 'A'": "036",
        "n IS NULL": "036",
        "NOT (colour = 'blue') AND n IS NOT NULL AND n <> 8": "25",
        "price >= 6.5 OR n = 1": "1678",
        "colour NOT IN ('red', 'blue')": "258",
        "colour = 'red' AND TRUE": "036",
    }
    async with stage.pull(stage.name("CG_pull")) as reader:
        (queue,) = await reader.queues(topic)
        for expression, expected in wanted.items():
            pulled = await reader.pull(queue, 0, sql=expression)
            found = b"".join(message.body for message in pulled.messages).decode()
            stage.same(expression, found.replace("untagged", ""), expected)


@FILTERS.act("a push consumer with SQL92 gets the matching messages, old and new")
async def sql_push(stage: Stage) -> None:
    topic, basket = await stage.topic(queues=2), Basket()
    await _sent(stage, topic)
    consumer = stage.push(stage.name("CG"))
    consumer.on(topic, sql="n > 6 AND TAGS IS NOT NULL")(basket)
    async with stage.producer() as producer, consumer:
        await stage.until("old messages", lambda: len(basket) >= 2)
        await producer.send(topic, b"no", properties={"n": "6"}, tags="A")
        await producer.send(topic, b"yes", properties={"n": "7"}, tags="A")
        await stage.until("a new one", lambda: len(basket) >= 3)

    stage.same("bodies", sorted(basket.bodies), [b"7", b"8", b"yes"])


@FILTERS.act("an invalid filter is refused before any request; a filter without matches skips the messages")
async def broken(stage: Stage) -> None:
    topic = await stage.topic(queues=1)
    await _sent(stage, topic)
    async with stage.pull(stage.name("CG_pull")) as reader:
        (queue,) = await reader.queues(topic)
        await stage.refused("of a pull", InvalidExpression, reader.pull(queue, 0, sql="a >>> 1"))
        pulled = await reader.pull(queue, 0, tags="NoSuchTag")

    stage.same("status of a pull that matches nothing", pulled.status, PullStatus.NO_MATCHED_MESSAGE)
    stage.same("the next offset", pulled.next_offset, 10)
