"""Heartbeats: who a client is, which groups it speaks for, and what they subscribe to.

A client may save work by version 2 of the exchange: it sends a fingerprint of everything that says what it wants; while that
stays the same, it leaves the subscriptions out (`without_sub`), and the broker keeps those it has.
"""

from enum import StrEnum

import msgspec
from msgspec.structs import replace

from pocketmq.model.java_hash import java_hash
from pocketmq.model.subscription import Subscription
from pocketmq.protocol.bodies.body import Body
from pocketmq.protocol.header import Int32
from pocketmq.protocol.java_json import write_body


class ConsumeType(StrEnum):
    """Who asks for the next message. The order is Java's: some clients send the number."""

    CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
    CONSUME_PASSIVELY = "CONSUME_PASSIVELY"
    CONSUME_POP = "CONSUME_POP"


class MessageModel(StrEnum):
    """Whether each member gets every message, or the members share them."""

    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"


class ConsumeFromWhere(StrEnum):
    """Where a group starts in a queue that it has no offset for. Three of them nobody should use any more."""

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
    """Fingerprint 0 is version 1 of the exchange."""

    client_id: str = msgspec.field(default="", name="clientID")
    producer_data_set: tuple[ProducerData, ...] = ()
    consumer_data_set: tuple[ConsumerData, ...] = ()
    heartbeat_fingerprint: Int32 = 0
    without_sub: bool = False


def fingerprint(heartbeat: HeartbeatData) -> int:
    """Java's hash of the heartbeat without client and versions, its sets in order, so that equal wishes hash equally."""
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
