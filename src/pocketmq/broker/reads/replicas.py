"""Replicas: the slaves that follow the log of this broker, as the rest of the broker sees them.

    log grew ──► log_grew ──► each slave sends itself the new bytes
    a slave reported ──► its `acked`

Without slaves, a turn costs one comparison more.
"""

from collections.abc import Iterator
from typing import Protocol

from pocketmq.net import Address
from pocketmq.protocol.bodies.topics import ReplicaConnection


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
