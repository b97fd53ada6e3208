"""Heartbeats: brokers learn from them which client is connected and which groups it belongs to.

    a new connection ─────────┐
    a new member ─────────────┼──► heartbeat ──► the response has the broker's version
    every 30 s ───────────────┘

A heartbeat is the first request on every connection. So a broker knows the subscription before the first pull, and
where to send the reply before the first request. Brokers remove a client after 120 s without a heartbeat.

The members are the producers and consumers of one client. Several producers of a group may share a client: any of
them answers a request of the broker. A client has at most one consumer of a group, because brokers distinguish
members by client id.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Protocol

from pocketmq.client.cluster.brokers import BrokerConnections
from pocketmq.client.cluster.rpc import RpcClient
from pocketmq.codes import VERSION, RequestCode, Version
from pocketmq.errors import InvalidExpression, PocketMQError, WrongState
from pocketmq.model import MessageQueue, StoredMessage
from pocketmq.net import Address, Peer
from pocketmq.protocol.api.messages import CheckTransactionState
from pocketmq.protocol.bodies.clients import (
    ConsumerData,
    ConsumerRunningInfo,
    DirectConsumption,
    HeartbeatData,
    ProducerData,
)
from pocketmq.protocol.bodies.topics import ResetOffsets
from pocketmq.protocol.command import Command


class ProducerMember(ABC):
    """A producer in a heartbeat. Names include the namespace. By default it has no transactions, and keeps nothing about topics."""

    decides_transactions = False
    """Whether this producer can answer `check_transaction`."""

    @property
    @abstractmethod
    def wire_group(self) -> str: ...

    def topics(self) -> Iterable[str]:
        """Topics whose brokers this producer must be connected to, even if it sends nothing."""
        return ()

    def topic_forgotten(self, topic: str) -> None:  # noqa: B027 optional
        """Drop cached data of a topic that was not used for a long time."""

    def check_transaction(  # noqa: B027 optional
        self, peer: Peer, header: CheckTransactionState, message: StoredMessage, broker_name: str | None
    ) -> None:
        """Handle a broker's check of a transaction. Must not wait; the decision is sent later."""


class ConsumerMember(Protocol):
    """A consumer in a heartbeat. Names include the namespace. Methods that are not `async` must not wait."""

    @property
    def wire_group(self) -> str: ...

    def topics(self) -> Iterable[str]:
        """The topics whose routes must stay known."""

    def heartbeat(self) -> ConsumerData:
        """Its part of the heartbeat."""

    def rebalance_soon(self) -> None:
        """Schedule a rebalance: the members of the group may have changed."""

    def route_changed(self, topic: str) -> None:
        """Handle a change of the queues of a topic."""

    async def reset_offsets(self, topic: str, offsets: ResetOffsets) -> None:
        """Continue from these offsets."""

    def positions(self, topic: str) -> Mapping[MessageQueue, int]:
        """The consume offsets of its assigned queues."""

    def running_info(self, *, stacks: bool) -> ConsumerRunningInfo:
        """Its state, for `mqadmin consumerStatus`."""

    async def consume_directly(self, message: StoredMessage, broker_name: str | None) -> DirectConsumption:
        """Consume one message now, outside its queue; returns the result."""


class Members:
    """The producers and consumers of one client. Each heartbeat also includes the producer group `inner_group`."""

    def __init__(self, inner_group: str) -> None:
        self._inner_group = inner_group
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
        """Remove a producer; True when its group has no other member here and must be unregistered."""
        group = self._producers.get(member.wire_group, [])
        if member in group:
            group.remove(member)
        if group:
            return False
        return self._producers.pop(member.wire_group, None) is not None

    def add_consumer(self, member: ConsumerMember) -> None:
        if member.wire_group in self._consumers:
            raise WrongState(
                f"this client already has a consumer of group {member.wire_group!r}, and brokers cannot distinguish the two: "
                "set a different instance_name for the second consumer"
            )
        self._consumers[member.wire_group] = member

    def remove_consumer(self, member: ConsumerMember) -> bool:
        """Remove a consumer; False when it was not a member."""
        if self._consumers.get(member.wire_group) is not member:
            return False
        del self._consumers[member.wire_group]
        return True

    def consumer(self, group: str) -> ConsumerMember | None:
        return self._consumers.get(group)

    def decider(self, group: str) -> ProducerMember | None:
        """A producer of the group that can check transactions."""
        return next((member for member in self._producers.get(group, ()) if member.decides_transactions), None)

    def topics(self) -> set[str]:
        """The topics that consumers read, and those of producers that answer transaction checks."""
        members: list[ProducerMember | ConsumerMember] = [*self._consumers.values(), *self.producers]
        return {topic for member in members for topic in member.topics()}

    def heartbeat(self, client_id: str) -> HeartbeatData:
        """The heartbeat with all groups."""
        return HeartbeatData(
            client_id,
            tuple(ProducerData(group) for group in dict.fromkeys([*self._producers, self._inner_group])),
            tuple(consumer.heartbeat() for consumer in self._consumers.values()),
        )


log = logging.getLogger("pocketmq.client")


class Heartbeats:
    """Sends heartbeats. `versions` are the broker versions by address."""

    def __init__(self, client_id: str, members: Members, rpc: RpcClient, *, timeout_s: float) -> None:
        self._client_id = client_id
        self._members = members
        self._rpc = rpc
        self._timeout_s = timeout_s
        self._unanswered: dict[Address, asyncio.Future[Command]] = {}
        self._logged_failures: dict[Address, str] = {}
        self.versions: dict[Address, int] = {}

    def send(self, address: Address, peer: Peer) -> None:
        """Send one heartbeat without waiting for the response."""
        try:
            future = self._rpc.start(peer, self._command(), self._timeout_s)
        except PocketMQError as error:
            self._log_failure(address, error)
            return
        self._unanswered[address] = future
        future.add_done_callback(lambda done: self._answered(address, done))

    async def send_to_all(self, brokers: BrokerConnections) -> None:
        """Send a heartbeat to every known broker; without consumers, only to masters."""
        addresses = brokers.all_addresses(masters_only=not self._members.consumers)
        await asyncio.gather(*(self._send_and_wait(address, brokers) for address in addresses))
        for unknown in self._logged_failures.keys() - set(addresses):
            del self._logged_failures[unknown]

    def is_answered(self, address: Address) -> bool:
        """Whether no heartbeat to `address` waits for its response."""
        return address not in self._unanswered

    async def wait_answered(self, address: Address) -> None:
        """Wait until the last heartbeat to `address` has its response or has failed."""
        future = self._unanswered.get(address)
        if future is not None:
            await asyncio.wait((future,))

    def require_sql(self, address: Address, name: str) -> None:
        """InvalidExpression when the broker is too old for SQL filters. A broker of unknown version passes."""
        version = self.versions.get(address, VERSION)
        if version < Version.V4_1_0_SNAPSHOT:
            raise InvalidExpression(
                f"broker {name} at {address} has version {version} and cannot filter by SQL: RocketMQ 4.1 "
                f"({int(Version.V4_1_0_SNAPSHOT)}) and newer can; upgrade it, or filter by tags"
            )

    async def _send_and_wait(self, address: Address, brokers: BrokerConnections) -> None:
        connected = brokers.live(address) is not None
        try:
            peer = await brokers.peer(address)
        except PocketMQError as error:
            self._log_failure(address, error)
            return
        if connected:  # a new connection has sent its heartbeat already
            self.send(address, peer)
        await self.wait_answered(address)

    def _command(self) -> Command:
        heartbeat = self._members.heartbeat(self._client_id)
        return self._rpc.command(RequestCode.HEART_BEAT, body=heartbeat.encode())

    def _answered(self, address: Address, future: asyncio.Future[Command]) -> None:
        if self._unanswered.get(address) is future:
            del self._unanswered[address]
        if future.cancelled():
            return
        error = future.exception() or future.result().error()
        if error is not None:
            self._log_failure(address, error)
            return
        self.versions[address] = future.result().version
        if self._logged_failures.pop(address, None):
            log.info("heartbeats to %s succeed again", address)

    def _log_failure(self, address: Address, error: BaseException) -> None:
        """Log a failure once until its cause changes."""
        failure = f"{type(error).__name__}: {error}"
        kind = type(error).__name__
        if self._logged_failures.get(address) != kind:
            self._logged_failures[address] = kind
            log.warning("heartbeat to %s failed: %s; retrying with the next heartbeat", address, failure)
