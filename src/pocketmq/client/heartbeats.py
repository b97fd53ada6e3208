"""Heartbeats: how brokers know that this client is here and for which groups it speaks.

    a line is made ───────────┐
    a member comes ───────────┼──► heartbeat ──► the broker's answer tells its version
    every 30 s ───────────────┘

The first thing said on every line is a heartbeat, so a pull never comes before its subscription, nor a request before the broker
knows where to send the reply. Brokers forget a client after 120 s of silence.
"""

import asyncio
import logging

from pocketmq.client.brokers import Brokers
from pocketmq.client.links import Links
from pocketmq.client.members import Members
from pocketmq.codes import VERSION, RequestCode, Version
from pocketmq.errors import InvalidExpression, PocketMQError
from pocketmq.net.address import Address
from pocketmq.net.peer import Peer
from pocketmq.protocol.command import Command
from pocketmq.protocol.java_json import write_body

log = logging.getLogger("pocketmq.client")


class Heartbeats:
    """Says who is here. `versions` are those of the brokers that answered, by address."""

    def __init__(self, client_id: str, members: Members, links: Links, *, timeout_s: float) -> None:
        self._client_id = client_id
        self._members = members
        self._links = links
        self._timeout_s = timeout_s
        self._unheard: dict[Address, asyncio.Future[Command]] = {}
        self._complaints: dict[Address, str] = {}
        self.versions: dict[Address, int] = {}

    def say(self, address: Address, peer: Peer) -> None:
        """One heartbeat, now. What comes of it is noted when it is known."""
        try:
            future = self._links.start(peer, self._command(), self._timeout_s)
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
        return self._links.command(RequestCode.HEART_BEAT, body=write_body(heartbeat))

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
