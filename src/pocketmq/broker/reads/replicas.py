"""Replicas: the slaves that follow the log of this broker, as the rest of the broker sees them.

    log grew ──► log_grew ──► each slave sends itself the new bytes
    a slave reported ──► its `acked`

Without slaves, a turn costs one comparison more.
"""

from collections.abc import Iterator
from typing import Protocol

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


class Replicas:
    """The connected slaves."""

    def __init__(self) -> None:
        self._slaves: list[Slave] = []

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
