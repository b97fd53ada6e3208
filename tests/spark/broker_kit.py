"""A topic of its own for each test, on the broker that all share."""

from collections.abc import Sequence
from itertools import count

from pocketmq import Admin, Message, Producer, Server
from pocketmq.model.queue import MessageQueue

_numbers = count()


def new_topic(broker: Server, queues: int = 2) -> str:
    topic = f"topic-{next(_numbers)}"
    with Admin(broker.name_server) as admin:
        admin.topics.create(topic, queues=queues)
    return topic


def queue(broker: Server, topic: str, number: int) -> MessageQueue:
    return MessageQueue(topic, broker.broker_settings.broker_name, number)


def fill(broker: Server, topic: str, bodies: Sequence[str], number: int = 0, tags: str | None = None) -> None:
    """One message after the other into a queue; each has its body as key and as the property `said`."""
    messages = [Message(topic, body.encode(), keys=body, tags=tags, properties={"said": body}) for body in bodies]
    with Producer(broker.name_server, group="filling") as producer:
        producer.send_many(messages, queue=queue(broker, topic, number))


def options(broker: Server, **given: str | int) -> dict[str, str]:
    """Options as Spark hands them over."""
    texts = {name.replace("_", "."): str(value) for name, value in given.items()}
    return {"rocketmq.namesrv.addr": broker.name_server, **texts}
