"""Connections: the clients that a broker knows."""

import msgspec

from pocketmq.model.subscription import Subscription
from pocketmq.protocol.bodies.body import EMPTY_MAP, Body
from pocketmq.protocol.bodies.heartbeat import ConsumeFromWhere, ConsumeType, MessageModel
from pocketmq.protocol.header import Int32, Int64


class ClientConnection(Body, frozen=True):
    """One client. `language` is the name of a `codes.Language`."""

    client_id: str
    client_addr: str | None = None
    language: str | None = None
    version: Int32 = 0


class ConsumerConnection(Body, frozen=True):
    """The members of a consumer group, and what it was last told to be."""

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
