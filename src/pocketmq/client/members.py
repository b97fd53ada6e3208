"""Members: the producers and consumers of one client, who speak for groups. The client asks them what brokers ask it.

Producers of one group may share a client: whatever is asked of the group, any of them that can may answer. Of a consumer group a
client has one member at most, because brokers tell members apart by client id.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol

from pocketmq.errors import WrongState
from pocketmq.model.message import StoredMessage
from pocketmq.model.names import INNER_PRODUCER_GROUP
from pocketmq.model.queue import MessageQueue
from pocketmq.net.peer import Peer
from pocketmq.protocol.api.transactions import CheckTransactionState
from pocketmq.protocol.bodies.heartbeat import ConsumerData, HeartbeatData, ProducerData
from pocketmq.protocol.bodies.offsets import ResetOffsets
from pocketmq.protocol.bodies.running_info import ConsumerRunningInfo, DirectConsumption


class ProducerMember(Protocol):
    """A producer, as brokers see it. Names are those of the wire."""

    @property
    def wire_group(self) -> str: ...

    @property
    def decides_transactions(self) -> bool:
        """Whether `check_transaction` can be answered here."""

    def topic_forgotten(self, topic: str) -> None:
        """Nothing was sent to this topic for a long time: whatever is kept about it may go."""

    def check_transaction(
        self, peer: Peer, header: CheckTransactionState, message: StoredMessage, broker_name: str | None
    ) -> None:
        """A broker asks how a transaction ended. Must not wait: the answer is sent when it is known."""


class ConsumerMember(Protocol):
    """A consumer, as brokers see it. Names are those of the wire. Nothing here may wait, unless it is `async`."""

    @property
    def wire_group(self) -> str: ...

    def topics(self) -> Iterable[str]:
        """The topics whose routes it needs to be kept."""

    def heartbeat(self) -> ConsumerData:
        """What brokers are told of it."""

    def rebalance_soon(self) -> None:
        """The members of its group changed, or a broker says that they may have."""

    def route_changed(self, topic: str) -> None:
        """One of its topics has other queues now."""

    async def reset_offsets(self, topic: str, offsets: ResetOffsets) -> None:
        """Go on from these offsets."""

    def positions(self, topic: str) -> Mapping[MessageQueue, int]:
        """Where it stands in the queues that it owns."""

    def running_info(self, *, stacks: bool) -> ConsumerRunningInfo:
        """What it is doing."""

    async def consume_directly(self, message: StoredMessage, broker_name: str | None) -> DirectConsumption:
        """Consume one message now, outside its queue, and say what came of it."""


class Members:
    """Who is a member now."""

    def __init__(self) -> None:
        self._producers: dict[str, list[ProducerMember]] = {}
        self._consumers: dict[str, ConsumerMember] = {}

    @property
    def consumers(self) -> list[ConsumerMember]:
        return list(self._consumers.values())

    @property
    def producers(self) -> list[ProducerMember]:
        return [member for group in self._producers.values() for member in group]

    def add_producer(self, member: ProducerMember) -> None:
        self._producers.setdefault(member.wire_group, []).append(member)

    def remove_producer(self, member: ProducerMember) -> bool:
        """Whether its group has no other member here, so that brokers should hear that it left."""
        group = self._producers.get(member.wire_group, [])
        if member in group:
            group.remove(member)
        if group:
            return False
        return self._producers.pop(member.wire_group, None) is not None

    def add_consumer(self, member: ConsumerMember) -> None:
        if member.wire_group in self._consumers:
            raise WrongState(
                f"this client is a member of the group {member.wire_group!r} already, and brokers would take both for one: "
                "give the second consumer an instance_name of its own"
            )
        self._consumers[member.wire_group] = member

    def remove_consumer(self, member: ConsumerMember) -> bool:
        """Whether it was a member."""
        if self._consumers.get(member.wire_group) is not member:
            return False
        del self._consumers[member.wire_group]
        return True

    def consumer(self, group: str) -> ConsumerMember | None:
        return self._consumers.get(group)

    def decider(self, group: str) -> ProducerMember | None:
        """A producer of the group that knows how transactions ended."""
        return next((member for member in self._producers.get(group, ()) if member.decides_transactions), None)

    def topics(self) -> set[str]:
        """The topics that consumers read."""
        return {topic for consumer in self._consumers.values() for topic in consumer.topics()}

    def heartbeat(self, client_id: str) -> HeartbeatData:
        """What brokers are told of all of them. Java's clients always name a producer of their own as well."""
        return HeartbeatData(
            client_id,
            tuple(ProducerData(group) for group in dict.fromkeys([*self._producers, INNER_PRODUCER_GROUP])),
            tuple(consumer.heartbeat() for consumer in self._consumers.values()),
        )
