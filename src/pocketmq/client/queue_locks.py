"""Locks on queues, which orderly consumption needs: a broker gives each to one client of a group at a time.

    owned queues, by broker ── lock, again every 20 s ──► those that are ours now ── believed in for 30 s
    a queue given up ── unlock

A broker forgets a lock 60 s after it was last asked for, so a client that is gone holds nobody up for longer. It forgets all of them
when it is restarted: so a lock is believed in only as long as the line lasts on which it was given.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable

from pocketmq.client.instance import Instance
from pocketmq.client.owned_queue import OwnedQueue
from pocketmq.errors import PocketMQError
from pocketmq.model.queue import MessageQueue
from pocketmq.net.peer import Peer

log = logging.getLogger("pocketmq.client")

RENEW_S = 20.0
FIRST_RENEWAL_S = 1.0


class QueueLocks:
    """The locks of one consumer."""

    def __init__(self, instance: Instance, group: str) -> None:
        self._instance = instance
        self._calls = instance.brokers.members
        self._group = group
        self._lines: dict[MessageQueue, Peer] = {}
        """On which line each was given last."""

    def holds(self, owned: OwnedQueue) -> bool:
        """Whether the lock of `owned` is ours, as far as anybody can know without asking."""
        line = self._lines.get(owned.queue)
        return owned.flight.is_locked(self._instance.clock.monotonic()) and line is not None and line.is_open

    async def lock(self, queues: Iterable[MessageQueue]) -> frozenset[MessageQueue]:
        """Those of `queues` that are ours now. A broker that cannot be asked gives none."""
        of_brokers = await asyncio.gather(*(self._lock(*each) for each in by_broker(queues).items()))
        return frozenset(queue for locked, _ in of_brokers for queue in locked)

    async def renew(self, owned: Collection[OwnedQueue]) -> None:
        """Ask for the locks of all owned queues; each is told how it stands."""
        queues = {one.queue: one for one in owned if not one.flight.is_dropped}
        asked_at = self._instance.clock.monotonic()

        async def of_broker(name: str, wanted: list[MessageQueue]) -> None:
            locked, is_answered = await self._lock(name, wanted)
            for queue in wanted:
                if queue in locked:
                    queues[queue].flight.lock(asked_at)
                elif is_answered:
                    log.warning(
                        "the lock of %s is another client's; nothing of it is consumed here until it is ours", queue
                    )
                    queues[queue].flight.unlock()

        await asyncio.gather(*(of_broker(*each) for each in by_broker(queues).items()))

    async def unlock(self, queues: Iterable[MessageQueue], *, wait: bool) -> None:
        """Let go of them; with `wait`, hear that it happened. What fails ends by itself, 60 s later."""
        queues = list(queues)
        for queue in queues:
            self._lines.pop(queue, None)
        for name, of_broker in by_broker(queues).items():
            try:
                await self._calls.unlock(name, self._group, self._instance.client_id, of_broker, wait=wait)
            except PocketMQError as error:
                log.warning("queues of %s could not be unlocked, which ends by itself after 60 s: %s", name, error)

    async def _lock(self, name: str, queues: list[MessageQueue]) -> tuple[frozenset[MessageQueue], bool]:
        """Those that are ours, and whether the broker has answered."""
        try:
            line = await self._instance.brokers.peer(self._instance.brokers.master(name))
            locked = await self._calls.lock(name, self._group, self._instance.client_id, queues)
            self._lines.update(dict.fromkeys(locked, line))
            return locked, True
        except PocketMQError as error:
            log.warning("queues of %s could not be locked, which is tried again: %s", name, error)
            return frozenset(), False


def by_broker(queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
    found: dict[str, list[MessageQueue]] = {}
    for queue in queues:
        found.setdefault(queue.broker_name, []).append(queue)
    return found
