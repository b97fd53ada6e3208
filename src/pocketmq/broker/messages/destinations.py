"""Destinations: may a client send to this topic, and which queue does it mean? Checks in RocketMQ's order.

the broker takes writes? ── a good name? ── not one of the broker's own? ── known, or made like its template? ── the queue
"""

import asyncio
import logging
import random
from collections.abc import Callable

from pocketmq.broker.settings import SettingsInUse
from pocketmq.broker.topics import TopicTable
from pocketmq.clock import Clock
from pocketmq.errors import InvalidParameter, NoPermission
from pocketmq.model.flags import Perm, TopicFlag
from pocketmq.model.names import TIMER_TOPIC, UNSENDABLE_TOPICS, TopicName, is_retry, parse_topic
from pocketmq.net.peer import Peer
from pocketmq.protocol.api.sending import SendMessage
from pocketmq.protocol.bodies.topics import TopicConfig

log = logging.getLogger("pocketmq.broker")


Announced = Callable[[], asyncio.Future[None] | None]
"""Tells the name servers of new topics. What it gives is done when they know; None when there is nothing to wait for."""


class TopicIsNew(Exception):
    """A send to a topic that the name servers do not know yet: to be taken again when `known` is done."""

    def __init__(self, known: asyncio.Future[None]) -> None:
        super().__init__("the name servers do not know the topic yet")
        self.known = known


class Destinations:
    """Topics as senders see them."""

    def __init__(self, topics: TopicTable, settings: SettingsInUse, clock: Clock, announced: Announced) -> None:
        self._topics = topics
        self._settings = settings
        self._clock = clock
        self._announced = announced
        self._unknown: dict[str, asyncio.Future[None]] = {}
        self._random = random.Random()  # noqa: S311 which queue it is need not be a secret

    def require_known(self, topic: str) -> None:
        """TopicIsNew when the name servers have not answered yet that they know this topic."""
        if self._unknown and (known := self._unknown.get(topic)) is not None:
            raise TopicIsNew(known)

    def queue_id(self, peer: Peer, header: SendMessage) -> int:
        """The queue that a send goes to: the one that it names, or any when it names none."""
        topic = self._topic(peer, header)
        queues = max(topic.read_queue_nums, topic.write_queue_nums)
        if header.queue_id >= queues:
            raise InvalidParameter(
                f"request queueId[{header.queue_id}] is illegal, topic {topic.topic_name} has {queues} queues. "
                f"Producer: {peer.address}"
            )
        if header.queue_id >= 0:
            return header.queue_id
        if not topic.write_queue_nums:
            raise InvalidParameter(f"topic {topic.topic_name} has no queue to write to")
        return self._random.randrange(topic.write_queue_nums)

    def _topic(self, peer: Peer, header: SendMessage) -> TopicConfig:
        settings = self._settings.now
        if not settings.permission & Perm.WRITE and self._topics.is_order(header.topic):
            raise NoPermission(f"the broker[{settings.broker_name}] sending message is forbidden")
        name = parse_topic(header.topic)
        if name in UNSENDABLE_TOPICS or name == TIMER_TOPIC:
            raise NoPermission(f"Sending message to topic[{name}] is forbidden.")
        return self._topics.get(name) or self._made(name, peer, header)

    def _made(self, name: TopicName, peer: Peer, header: SendMessage) -> TopicConfig:
        unit = TopicFlag.UNIT_SUB if is_retry(name) else TopicFlag.UNIT
        made = self._topics.create_for_send(
            name,
            header.default_topic,
            header.default_topic_queue_nums,
            self._clock.now_ms(),
            sys_flag=unit if header.unit_mode else 0,
        )
        log.info("topic %s is new: sent to by %s", name, peer.address)
        known = self._announced()
        if known is not None:
            self._unknown[name] = known
            known.add_done_callback(lambda _: self._unknown.pop(name, None))
        return made
