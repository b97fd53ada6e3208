"""Replicas: the slaves that follow the log of this broker, as the rest of the broker sees them.

    log grew ──► log_grew ──► each slave sends itself the new bytes
    a slave reported ──► its `acked` ──► sends of a SYNC_MASTER that waited for it are answered

Without slaves, a turn costs one comparison more.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from pocketmq.broker.settings import SettingsInUse
from pocketmq.codes import ResponseCode
from pocketmq.net import Address
from pocketmq.protocol.bodies.topics import ReplicaClient, ReplicaConnection


class Slave(Protocol):
    """A connected slave."""

    @property
    def address(self) -> Address: ...

    @property
    def acked(self) -> int:
        """The slave has the log up to this offset; -1 until it has reported, or if its log is another one."""

    @property
    def next_offset(self) -> int:
        """The offset of the next byte to send."""

    @property
    def bytes_per_s(self) -> int:
        """How many bytes it was sent in the last second."""

    def wake(self) -> None:
        """There are new bytes in the log."""


class MasterProgress(Protocol):
    """The connection of a slave to its master."""

    @property
    def address(self) -> Address: ...

    @property
    def read_ms(self) -> int:
        """When the slave was sent something last."""

    @property
    def written_ms(self) -> int:
        """When it reported last."""


class KnownMaster:
    """The master of this slave, as the name servers report it."""

    def __init__(self) -> None:
        self.connection: MasterProgress | None = None
        """The connection to it; None without one."""
        self._reported: dict[Address, tuple[Address, Address | None]] = {}

    def report(self, name_server: Address, master: str | None, ha_address: str | None) -> None:
        """A name server has answered a registration."""
        if master:
            self._reported[name_server] = Address.parse(master), Address.parse(ha_address) if ha_address else None
        else:
            self._reported.pop(name_server, None)

    def progress(self, log_end: int) -> ReplicaClient:
        """How far the slave is, as administrators see it."""
        if self.connection is None:
            return ReplicaClient(max_offset=log_end)
        one = self.connection
        return ReplicaClient(str(one.address), 0, log_end, one.read_ms, one.written_ms)

    @property
    def address(self) -> Address | None:
        """Its address for requests; None if no name server has a master."""
        return next((master for master, _ in self._reported.values()), None)

    @property
    def ha_address(self) -> Address | None:
        """Its address for slaves."""
        return next((address for _, address in self._reported.values()), None)


class _Wait(NamedTuple):
    """A callback for the moment when enough slaves have the log up to an offset."""

    upto: int
    deadline: float
    callback: Callable[[ResponseCode], None]


class Replicas:
    """The connected slaves, and the sends that wait for them."""

    def __init__(self, settings: SettingsInUse) -> None:
        self._settings = settings
        self._slaves: list[Slave] = []
        self._waits: deque[_Wait] = deque()
        self._expiring: asyncio.TimerHandle | None = None

    @property
    def count(self) -> int:
        return len(self._slaves)

    def __iter__(self) -> Iterator[Slave]:
        return iter(self._slaves)

    def add(self, slave: Slave) -> None:
        self._slaves.append(slave)

    def remove(self, slave: Slave) -> None:
        self._slaves.remove(slave)

    def log_grew(self) -> None:
        for slave in self._slaves:
            slave.wake()

    # a master that waits for its slaves

    @property
    def promised(self) -> bool:
        """Whether sends are answered when slaves have them."""
        return self._settings.now.waits_for_slaves

    def when_copied(self, upto: int, callback: Callable[[ResponseCode], None]) -> None:
        """Call back with SUCCESS once enough slaves have the log up to `upto`, with FLUSH_SLAVE_TIMEOUT after the time limit;
        immediately with SLAVE_NOT_AVAILABLE if fewer slaves are in sync.
        """
        settings = self._settings.now.replication
        in_sync = sum(slave.acked >= 0 and upto - slave.acked < settings.max_gap_bytes for slave in self._slaves)
        if in_sync < self._needed:
            callback(ResponseCode.SLAVE_NOT_AVAILABLE)
        elif self._copied_to() >= upto:
            callback(ResponseCode.SUCCESS)
        else:
            loop = asyncio.get_running_loop()
            self._waits.append(_Wait(upto, loop.time() + settings.slave_timeout_ms / 1000, callback))
            if self._expiring is None:
                self._expiring = loop.call_at(self._waits[0].deadline, self._expire)

    @property
    def _needed(self) -> int:
        """How many slaves must have a message: the master itself counts as one."""
        return max(self._settings.now.replication.in_sync_replicas - 1, 1)

    def _copied_to(self) -> int:
        """The log offset up to which enough slaves have the log."""
        acked = sorted((slave.acked for slave in self._slaves), reverse=True)
        return acked[self._needed - 1] if len(acked) >= self._needed else -1

    def acked(self) -> None:
        """A slave has reported."""
        if not self._waits:
            return
        copied_to = self._copied_to()
        while self._waits and self._waits[0].upto <= copied_to:
            self._waits.popleft().callback(ResponseCode.SUCCESS)

    def _expire(self) -> None:
        self._expiring = None
        loop = asyncio.get_running_loop()
        while self._waits and self._waits[0].deadline <= loop.time():
            self._waits.popleft().callback(ResponseCode.FLUSH_SLAVE_TIMEOUT)
        if self._waits:
            self._expiring = loop.call_at(self._waits[0].deadline, self._expire)

    def rows(self, log_end: int, max_gap_bytes: int) -> tuple[ReplicaConnection, ...]:
        """The slaves as administrators see them."""
        return tuple(
            ReplicaConnection(
                addr=str(slave.address),
                slave_ack_offset=slave.acked,
                diff=log_end - slave.acked,
                in_sync=slave.acked >= 0 and log_end - slave.acked < max_gap_bytes,
                transferred_byte_in_second=slave.bytes_per_s,
                transfer_from_where=slave.next_offset,
            )
            for slave in self._slaves
        )
