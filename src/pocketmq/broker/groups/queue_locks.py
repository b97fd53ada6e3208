"""Locks on queues: in a group that consumes in order, one member at a time has a queue.

    free ── lock ──► held by a client ── lock again ──► held, the lease begins anew
      ▲                    │
      └── unlock, release ─┴── 60 s without lock ──► anybody may take it

A lost connection frees nothing: its client may still be working on what it has, and believes in its lock for up to 30 s.
Whoever leaves properly unlocks before it goes.
"""

from collections.abc import Iterable
from math import inf
from typing import NamedTuple

from pocketmq.model.queue import MessageQueue

LEASE_SECONDS = 60.0
MAX_LOCKS = 200_000
"""Locks of all groups together. When it is reached, expired ones are swept out; then no further queue can be locked."""
SWEEP_SECONDS = 1.0
"""A full table is swept at most so often, however often somebody asks for more."""


class _Lock(NamedTuple):
    client_id: str
    until: float


class QueueLockTable:
    """Who holds which queue, by group. Told the monotonic time. `refused` counts queues for which there was no room."""

    def __init__(self, *, lease: float = LEASE_SECONDS, max_locks: int = MAX_LOCKS) -> None:
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}
        self.lease = lease
        self._max_locks = max_locks
        self._count = 0
        self._next_sweep = -inf
        self.refused = 0

    def __len__(self) -> int:
        """How many locks are kept, expired ones that nobody swept out yet among them."""
        return self._count

    def lock(self, group: str, client_id: str, queues: Iterable[MessageQueue], now: float) -> tuple[MessageQueue, ...]:
        """Lock these queues, or begin their leases anew; those that the client now holds."""
        wanted = dict.fromkeys(queues)
        return tuple(queue for queue in wanted if self._lock(group, client_id, queue, now))

    def _lock(self, group: str, client_id: str, queue: MessageQueue, now: float) -> bool:
        held = self._groups.get(group, {}).get(queue)
        if held and held.client_id != client_id and now <= held.until:
            return False
        if not held and not self._has_room(now):
            self.refused += 1
            return False
        self._count += held is None
        self._groups.setdefault(group, {})[queue] = _Lock(client_id, now + self.lease)
        return True

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Free those of the queues that the client holds; others are not its business."""
        locks = self._groups.get(group, {})
        self._drop(group, [queue for queue in queues if (held := locks.get(queue)) and held.client_id == client_id])

    def release(self, client_id: str, group: str | None = None) -> None:
        """Free everything that the client holds, in one group or in all."""
        for name in list(self._groups) if group is None else [group]:
            locks = self._groups.get(name, {})
            self._drop(name, [queue for queue, held in locks.items() if held.client_id == client_id])

    def sweep(self, now: float) -> None:
        """Forget the locks that have expired."""
        for group, locks in list(self._groups.items()):
            self._drop(group, [queue for queue, held in locks.items() if now > held.until])

    def holder(self, group: str, queue: MessageQueue, now: float) -> str | None:
        """The client that holds the queue; None when nobody does."""
        held = self._groups.get(group, {}).get(queue)
        return held.client_id if held and now <= held.until else None

    def holds_any(self, group: str, now: float) -> bool:
        """Whether the group consumes in order just now: a retry that it sends is then meant to be a dead letter."""
        return any(now <= held.until for held in self._groups.get(group, {}).values())

    def _has_room(self, now: float) -> bool:
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
