"""A topic of its own for each test, on the broker that all share."""

from collections.abc import Sequence
from datetime import datetime
from itertools import count
from time import monotonic, sleep
from typing import NamedTuple
from uuid import uuid4

from pocketmq import Admin, Message, Producer, PullConsumer, Server
from pocketmq.model.queue import MessageQueue

_RUN = uuid4().hex[:8]
_numbers = count()


class Broker(NamedTuple):
    """A broker to test with, PocketMQ's or another one."""

    name_server: str
    name: str

    @classmethod
    def of(cls, server: Server) -> "Broker":
        return cls(server.name_server, server.broker_settings.broker_name)


def new_topic(broker: Broker, queues: int = 2) -> str:
    topic = f"topic-{_RUN}-{next(_numbers)}"
    with Admin(broker.name_server) as admin:
        admin.topics.create(topic, queues=queues)
    return topic


def queue(broker: Broker, topic: str, number: int) -> MessageQueue:
    return MessageQueue(topic, broker.name, number)


def fill(broker: Broker, topic: str, bodies: Sequence[str], number: int = 0, tags: str | None = None) -> None:
    """Messages in a queue, one after the other; each has its body as key and as the property `said`. They can be
    read on return: Apache adds messages to their queue a moment after it has answered.
    """
    messages = [Message(topic, body.encode(), keys=body, tags=tags, properties={"said": body}) for body in bodies]
    place = queue(broker, topic, number)
    with (
        Producer(broker.name_server, group="filling") as producer,
        PullConsumer(broker.name_server, group="seen") as seen,
    ):
        end = seen.max_offset(place) + len(messages)
        producer.send_many(messages, queue=place)
        deadline = monotonic() + 10
        while seen.max_offset(place) < end:
            assert monotonic() < deadline, f"{place} does not reach {end}"


def options(broker: Broker, **given: str | int) -> dict[str, str]:
    """Options as Spark hands them over."""
    texts = {name.replace("_", "."): str(value) for name, value in given.items()}
    return {"rocketmq.namesrv.addr": broker.name_server, **texts}


def old_broker_settings() -> dict[str, str | int | bool]:
    """Settings of a broker that deletes messages early: its log files are small, and full files may be deleted on request."""
    return {
        "mappedFileSizeCommitLog": 64 * 1024,
        "fileReservedTime": 0,
        "deleteWhen": f"{(datetime.now().hour + 12) % 24:02}",
        "diskMaxUsedSpaceRatio": 85,
        "waitTimeMillsInSendQueue": 30_000,
    }


def delete_old_messages(broker: Broker, topic: str) -> int:
    """Make such a broker delete; returns the start of the first queue of the topic."""
    deadline = monotonic() + 30
    with Admin(broker.name_server) as admin:
        admin.cluster.clean_up(broker.name)
        while not (low := admin.topics.describe(topic).queues[0].min_offset):
            assert monotonic() < deadline, "nothing was deleted"
            sleep(0.02)
    return low
