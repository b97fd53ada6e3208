"""Locks on queues: in a group that consumes in order, one member at a time owns a queue.

    free ── lock ──► owned by a client ── lock again ──► the lease is renewed
      ▲                    │
      └── unlock, release ─┴── 60 s without lock ──► any member may lock it

A lost connection frees nothing: its client may still process messages, and relies on its lock for up to 30 s. A client
that leaves properly unlocks first.
"""

from collections.abc import Iterable
from math import inf
from typing import NamedTuple

from pocketmq.model import MessageQueue

LEASE_SECONDS = 60.0
MAX_LOCKS = 200_000
"""Limit on the locks of all groups. When it is reached, expired locks are removed; if none is, new locks fail."""
SWEEP_SECONDS = 1.0
"""The least time between two sweeps of a full table."""


class _Lock(NamedTuple):
    client_id: str
    until: float


class QueueLockTable:
    """The owner of each locked queue, by group. Callers pass the monotonic time. `refused` counts locks above the
    limit.
    """

    def __init__(self, *, lease: float = LEASE_SECONDS, max_locks: int = MAX_LOCKS) -> None:
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}
        self.lease = lease
        self._max_locks = max_locks
        self._count = 0
        self._next_sweep = -inf
        self.refused = 0

    def __len__(self) -> int:
        """The number of locks, including expired ones that were not swept yet."""
        return self._count

    def lock(self, group: str, client_id: str, queues: Iterable[MessageQueue], now: float) -> tuple[MessageQueue, ...]:
        """Lock these queues, or renew their leases. Return those that the client now owns."""
        wanted = dict.fromkeys(queues)
        return tuple(queue for queue in wanted if self._lock(group, client_id, queue, now))

    def _lock(self, group: str, client_id: str, queue: MessageQueue, now: float) -> bool:
        lock = self._groups.get(group, {}).get(queue)
        if lock and lock.client_id != client_id and now <= lock.until:
            return False
        if not lock and not self._has_capacity(now):
            self.refused += 1
            return False
        self._count += lock is None
        self._groups.setdefault(group, {})[queue] = _Lock(client_id, now + self.lease)
        return True

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Free those of the queues that the client owns."""
        locks = self._groups.get(group, {})
        self._drop(group, [queue for queue in queues if (lock := locks.get(queue)) and lock.client_id == client_id])

    def release(self, client_id: str, group: str | None = None) -> None:
        """Free all queues that the client owns, in one group or in all."""
        for name in list(self._groups) if group is None else [group]:
            locks = self._groups.get(name, {})
            self._drop(name, [queue for queue, lock in locks.items() if lock.client_id == client_id])

    def sweep(self, now: float) -> None:
        for group, locks in list(self._groups.items()):
            self._drop(group, [queue for queue, lock in locks.items() if now > lock.until])

    def owner(self, group: str, queue: MessageQueue, now: float) -> str | None:
        """The client that owns the queue; None if no client does."""
        lock = self._groups.get(group, {}).get(queue)
        return lock.client_id if lock and now <= lock.until else None

    def has_locks(self, group: str, now: float) -> bool:
        """Whether the group consumes in order now: a retry that it sends then becomes a dead letter."""
        return any(now <= lock.until for lock in self._groups.get(group, {}).values())

    def _has_capacity(self, now: float) -> bool:
        if self._count >= self._max_locks and now >= self._next_sweep:
            self._next_sweep = now + SWEEP_SECONDS
            self.sweep(now)
        return self._count < self._max_locks

    def _drop(self, group: str, queues: Iterable[MessageQueue]) -> None:
        locks = self._groups.get(group, {})
        for queue in dict.fromkeys(queues):
            del locks[queue]
            self._count -= 1
        if not locks:
            self._groups.pop(group, None)
