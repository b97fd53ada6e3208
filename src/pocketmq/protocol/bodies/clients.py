"""Heartbeats, connections of clients, and queue locks.

With version 2 of the heartbeat, a client sends a fingerprint of its subscriptions. While it stays the same, the client omits the
subscriptions (`without_sub`) and the broker keeps the ones it has.
"""

from enum import StrEnum

import msgspec
from msgspec.structs import replace

from pocketmq.model.java_hash import java_hash
from pocketmq.model.queue import MessageQueue
from pocketmq.model.subscription import Subscription
from pocketmq.protocol.bodies.body import EMPTY_MAP, Body
from pocketmq.protocol.fields import Int32, Int64
from pocketmq.protocol.java_json import write_body


class ConsumeType(StrEnum):
    """How a consumer gets messages. Java's order, because some clients send the number."""

    CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
    CONSUME_PASSIVELY = "CONSUME_PASSIVELY"
    CONSUME_POP = "CONSUME_POP"


class MessageModel(StrEnum):
    """Broadcasting: each member gets every message. Clustering: one member gets each message."""

    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"


class ConsumeFromWhere(StrEnum):
    """Where a group without an offset starts. Three values are deprecated."""

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
    CONSUME_FROM_MIN_OFFSET = "CONSUME_FROM_MIN_OFFSET"
    CONSUME_FROM_MAX_OFFSET = "CONSUME_FROM_MAX_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class ProducerData(Body, frozen=True):
    group_name: str


class ConsumerData(Body, frozen=True):
    """One consumer group that the client is a member of."""

    group_name: str
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    subscription_data_set: tuple[Subscription, ...] = ()
    unit_mode: bool = False


class HeartbeatData(Body, frozen=True):
    """Fingerprint 0 means version 1."""

    client_id: str = msgspec.field(default="", name="clientID")
    producer_data_set: tuple[ProducerData, ...] = ()
    consumer_data_set: tuple[ConsumerData, ...] = ()
    heartbeat_fingerprint: Int32 = 0
    without_sub: bool = False


def fingerprint(heartbeat: HeartbeatData) -> int:
    """Java's hash of the heartbeat without client id and versions, with sorted sets."""
    anonymous = HeartbeatData(
        "",
        tuple(sorted(heartbeat.producer_data_set, key=lambda producer: producer.group_name)),
        tuple(map(_unversioned, sorted(heartbeat.consumer_data_set, key=lambda consumer: consumer.group_name))),
    )
    return java_hash(write_body(anonymous).decode())


def _unversioned(consumer: ConsumerData) -> ConsumerData:
    subscriptions = sorted(consumer.subscription_data_set, key=lambda subscription: subscription.topic)
    ordered = (
        replace(one, sub_version=0, tags_set=tuple(sorted(one.tags_set)), code_set=tuple(sorted(one.code_set)))
        for one in subscriptions
    )
    return replace(consumer, subscription_data_set=tuple(ordered))


class ClientConnection(Body, frozen=True):
    """One client. `language` is the name of a `codes.Language`."""

    client_id: str
    client_addr: str | None = None
    language: str | None = None
    version: Int32 = 0


class ConsumerConnection(Body, frozen=True):
    """The members of a consumer group, and its last settings from a heartbeat."""

    connection_set: tuple[ClientConnection, ...] = ()
    subscription_table: dict[str, Subscription] = EMPTY_MAP
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None


class ProducerConnection(Body, frozen=True):
    """The members of a producer group."""

    connection_set: tuple[ClientConnection, ...] = ()


class ProducerInfo(Body, frozen=True):
    """One producer; its address has a slash in front, as Java prints addresses."""

    client_id: str
    remote_ip: str | None = msgspec.field(default=None, name="remoteIP")
    language: str | None = None
    version: Int32 = 0
    last_update_timestamp: Int64 = 0


class ProducerTable(Body, frozen=True):
    """All producers of a broker, by group."""

    data: dict[str, tuple[ProducerInfo, ...]] = EMPTY_MAP


class QueueLocks(Body, frozen=True):
    """Queues to lock or unlock for a client."""

    consumer_group: str
    client_id: str
    mq_set: tuple[MessageQueue, ...] = ()
    only_this_broker: bool = False


class LockedQueues(Body, frozen=True):
    """The requested queues that the client has locked now."""

    locked: tuple[MessageQueue, ...] = msgspec.field(default=(), name="lockOKMQSet")
