"""Heartbeats: how brokers know that this client is here and for which groups it speaks.

    a line is made ───────────┐
    a member comes ───────────┼──► heartbeat ──► the broker's answer tells its version
    every 30 s ───────────────┘

The first thing said on every line is a heartbeat, so a pull never comes before its subscription, nor a request before the broker
knows where to send the reply. Brokers forget a client after 120 s of silence.

Members: the producers and consumers of one client, who speak for groups. The client asks them what brokers ask it.

Producers of one group may share a client: whatever is asked of the group, any of them that can may answer. Of a consumer group a
client has one member at most, because brokers tell members apart by client id.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Protocol

from pocketmq.client.cluster.brokers import Brokers
from pocketmq.client.cluster.rpc import RpcClient
from pocketmq.codes import VERSION, RequestCode, Version
from pocketmq.errors import InvalidExpression, PocketMQError, WrongState
from pocketmq.model.message import StoredMessage
from pocketmq.model.names import INNER_PRODUCER_GROUP
from pocketmq.model.queue import MessageQueue
from pocketmq.net.address import Address
from pocketmq.net.peer import Peer
from pocketmq.protocol.api.sending import CheckTransactionState
from pocketmq.protocol.bodies.clients import ConsumerData, HeartbeatData, ProducerData
from pocketmq.protocol.bodies.offsets import ResetOffsets
from pocketmq.protocol.bodies.running_info import ConsumerRunningInfo, DirectConsumption
from pocketmq.protocol.command import Command
from pocketmq.protocol.java_json import write_body


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


log = logging.getLogger("pocketmq.client")


class Heartbeats:
    """Says who is here. `versions` are those of the brokers that answered, by address."""

    def __init__(self, client_id: str, members: Members, rpc: RpcClient, *, timeout_s: float) -> None:
        self._client_id = client_id
        self._members = members
        self._rpc = rpc
        self._timeout_s = timeout_s
        self._unheard: dict[Address, asyncio.Future[Command]] = {}
        self._complaints: dict[Address, str] = {}
        self.versions: dict[Address, int] = {}

    def say(self, address: Address, peer: Peer) -> None:
        """One heartbeat, now. What comes of it is noted when it is known."""
        try:
            future = self._rpc.start(peer, self._command(), self._timeout_s)
        except PocketMQError as error:
            self._complain(address, error)
            return
        self._unheard[address] = future
        future.add_done_callback(lambda done: self._heard(address, done))

    async def say_to_all(self, brokers: Brokers) -> None:
        """One heartbeat to every broker that is known; slaves only hear of consumers."""
        addresses = brokers.all_addresses(masters_only=not self._members.consumers)
        await asyncio.gather(*(self._say_and_wait(address, brokers) for address in addresses))
        for gone in self._complaints.keys() - set(addresses):
            del self._complaints[gone]

    def is_heard(self, address: Address) -> bool:
        """Whether no heartbeat to `address` waits for its answer."""
        return address not in self._unheard

    async def wait_heard(self, address: Address) -> None:
        """Return when the last heartbeat to `address` has been answered, or never will be."""
        future = self._unheard.get(address)
        if future is not None:
            await asyncio.wait((future,))

    def require_sql(self, address: Address, name: str) -> None:
        """InvalidExpression when the broker said that it is older than SQL filters. One that said nothing yet passes."""
        version = self.versions.get(address, VERSION)
        if version < Version.V4_1_0_SNAPSHOT:
            raise InvalidExpression(
                f"broker {name} at {address} has version {version} and cannot filter by SQL: RocketMQ 4.1 "
                f"({int(Version.V4_1_0_SNAPSHOT)}) and newer can; upgrade it, or filter by tags"
            )

    async def _say_and_wait(self, address: Address, brokers: Brokers) -> None:
        connected = brokers.live(address) is not None
        try:
            peer = await brokers.peer(address)
        except PocketMQError as error:
            self._complain(address, error)
            return
        if connected:  # a new line was greeted already
            self.say(address, peer)
        await self.wait_heard(address)

    def _command(self) -> Command:
        heartbeat = self._members.heartbeat(self._client_id)
        return self._rpc.command(RequestCode.HEART_BEAT, body=write_body(heartbeat))

    def _heard(self, address: Address, future: asyncio.Future[Command]) -> None:
        if self._unheard.get(address) is future:
            del self._unheard[address]
        if future.cancelled():
            return
        error = future.exception() or future.result().error()
        if error is not None:
            self._complain(address, error)
            return
        self.versions[address] = future.result().version
        if self._complaints.pop(address, None):
            log.info("%s hears the heartbeats of this client again", address)

    def _complain(self, address: Address, error: BaseException) -> None:
        """Once for each cause."""
        complaint = f"{type(error).__name__}: {error}"
        kind = type(error).__name__
        if self._complaints.get(address) != kind:
            self._complaints[address] = kind
            log.warning("a heartbeat to %s failed, and is repeated: %s", address, complaint)
