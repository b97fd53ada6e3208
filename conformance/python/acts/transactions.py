"""Transactions: delivered after a commit, never after a rollback, and checked if they are undecided."""

import asyncio
from typing import Final

from conformance.python.stage import Basket, Programme, Stage
from pocketmq.client import TransactionState
from pocketmq.model.message import Message, StoredMessage

TRANSACTIONS: Final = Programme("transactions")
LATE_S: Final = 30


class Notary:
    """Both sides of a transaction: does as the message says, and remembers who was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.messages: list[StoredMessage] = []

    def execute(self, message: Message, argument: object) -> TransactionState:
        return TransactionState[str(argument)]

    def check(self, message: StoredMessage) -> TransactionState:
        self.asked.append(message.keys[0])
        self.messages.append(message)
        return TransactionState.COMMIT if message.keys[0].endswith("commit") else TransactionState.ROLLBACK


@TRANSACTIONS.act("committed messages are delivered, those of a block that raises never are")
async def blocks(stage: Stage) -> None:
    topic, basket, notary = await stage.topic(queues=2), Basket(), Notary()
    consumer = stage.push(stage.name("CG"))
    consumer.on(topic)(basket)
    async with stage.producer(check=notary.check) as producer, consumer:
        await stage.owns(consumer, 2)
        async with producer.transaction(topic) as tx:
            await tx.send(b"one", keys="commit", tags="TagX", properties={"mine": "yes"})
            await tx.send(b"two", keys="commit")
            await asyncio.sleep(1)
            stage.same("seen before the end of the block", len(basket), 0)
        await stage.until("two messages", lambda: len(basket) == 2)
        try:
            async with producer.transaction(topic) as tx:
                await tx.send(b"dropped", keys="rollback")
                raise ZeroDivisionError
        except ZeroDivisionError:
            pass
        await producer.send(topic, b"end")
        await stage.until("the last message", lambda: b"end" in basket.bodies)

    stage.same("bodies", sorted(basket.bodies), [b"end", b"one", b"two"])
    one = next(message for message in basket.messages if message.body == b"one")
    stage.same("tag and property", (one.tags, one.properties.get("mine")), ("TagX", "yes"))


@TRANSACTIONS.act("a producer gets a check for an open transaction, and its answer decides")
async def asked(stage: Stage) -> None:
    topic, basket, notary = await stage.topic(queues=1), Basket(), Notary()
    consumer = stage.push(stage.name("CG"))
    consumer.on(topic)(basket)
    async with stage.producer(listener=notary) as producer, consumer:
        began = stage.now
        for key in ("later-commit", "later-rollback"):
            await producer.send_in_transaction(Message(topic, key.encode(), keys=key), "UNKNOWN")
        await producer.send_in_transaction(Message(topic, b"at once", keys="commit"), "COMMIT")
        await stage.until("both questions", lambda: {"later-commit", "later-rollback"} <= set(notary.asked))
        took = stage.now - began
        await stage.until("the messages that count", lambda: len(basket) >= 2)
        await asyncio.sleep(1)

    # Apache notes decisions late, and asks about some that it knows already: such a message comes twice.
    stage.same("bodies", sorted(set(basket.bodies)), [b"at once", b"later-commit"])
    stage.between("until it is asked, in s", took, 1.9, 2 + 2 * stage.check_interval_s + LATE_S)
    message = next(one for one in notary.messages if one.keys == ["later-commit"])
    stage.same("what it is asked about", (message.body, message.topic), (b"later-commit", topic))


@TRANSACTIONS.act("if its producer has ended, another of the same group gets the check")
async def heirs(stage: Stage) -> None:
    topic, basket, notary = await stage.topic(queues=1), Basket(), Notary()
    group = stage.name("PG_heirs")
    async with stage.producer(group=group, check=notary.check) as first, first.transaction(topic) as tx:
        await tx.send(b"left", keys="left-commit")
        await tx.leave_open()
    consumer = stage.push(stage.name("CG"))
    consumer.on(topic)(basket)
    async with stage.producer(group=group, check=notary.check) as heir, consumer:
        await heir.send(topic, b"here I am")
        await stage.until("both messages", lambda: len(basket) >= 2)

    stage.same("bodies", set(basket.bodies), {b"left", b"here I am"})
    stage.same("who was asked about", set(notary.asked), {"left-commit"})
