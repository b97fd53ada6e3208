"""Shared by the tests of pulls: a queue with messages, and the results."""

from tests.broker.running import Client, RunningBroker

from pocketmq.protocol.command import Command
from pocketmq.protocol.record import decode_records


def bodies(answer: Command) -> list[bytes]:
    return [message.body for message in decode_records(answer.body)]


async def filled(broker: RunningBroker, count: int, *, tags: str = "", size: int = 0, topic: str = "T") -> Client:
    """A client that sent `count` messages to queue 0, with these tags by turns."""
    client = await broker.connect()
    for number in range(count):
        properties = {"n": str(number)} | ({"TAGS": tags[number % len(tags)]} if tags else {})
        await client.sent((b"%d" % number).ljust(size, b"."), topic=topic, properties=properties)
    return client
