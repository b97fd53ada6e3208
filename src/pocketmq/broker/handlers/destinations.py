"""Where a send goes: its topic, which may be created, and its queue."""

import asyncio
import logging
import random

from pocketmq.broker.settings import SettingsInUse
from pocketmq.broker.topics import Announced, TopicTable
from pocketmq.clock import Clock
from pocketmq.codes import Perm, TopicFlag
from pocketmq.errors import InvalidParameter, NoPermission
from pocketmq.model import TIMER_TOPIC, UNSENDABLE_TOPICS, TopicName, is_retry, parse_topic
from pocketmq.net import Peer
from pocketmq.protocol.api.messages import SendMessage
from pocketmq.protocol.bodies.topics import TopicConfig

log = logging.getLogger("pocketmq.broker")


class TopicIsNew(Exception):
    """A send to a topic that the name servers do not know yet. Retry it when `known` is done."""

    def __init__(self, known: asyncio.Future[None]) -> None:
        super().__init__("the name servers do not know the topic yet")
        self.known = known


class Destinations:
    """Checks the topic and queue of each send."""

    def __init__(self, topics: TopicTable, settings: SettingsInUse, clock: Clock, announced: Announced) -> None:
        self._topics = topics
        self._settings = settings
        self._clock = clock
        self._announced = announced
        self._unknown: dict[str, asyncio.Future[None]] = {}
        self._random = random.Random()  # noqa: S311 the choice of a queue is no secret

    def require_known(self, topic: str) -> None:
        """TopicIsNew while the name servers have not confirmed this topic."""
        if self._unknown and (known := self._unknown.get(topic)) is not None:
            raise TopicIsNew(known)

    def queue_id(self, peer: Peer, header: SendMessage) -> int:
        """The queue of a send: the one that it names, or a random one if it names none."""
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
        return self._topics.get(name) or self._create(name, peer, header)

    def _create(self, name: TopicName, peer: Peer, header: SendMessage) -> TopicConfig:
        unit = TopicFlag.UNIT_SUB if is_retry(name) else TopicFlag.UNIT
        created = self._topics.create_for_send(
            name,
            header.default_topic,
            header.default_topic_queue_nums,
            self._clock.now_ms(),
            sys_flag=unit if header.unit_mode else 0,
        )
        log.info("Created topic %s for a send of %s", name, peer.address)
        known = self._announced()
        if known is not None:
            self._unknown[name] = known
            known.add_done_callback(lambda _: self._unknown.pop(name, None))
        return created
