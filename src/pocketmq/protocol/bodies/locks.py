"""Locks on queues, which orderly consumers hold."""

import msgspec

from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.bodies.body import Body


class QueueLocks(Body, frozen=True):
    """Queues that a client wants to lock or to unlock."""

    consumer_group: str
    client_id: str
    mq_set: tuple[MessageQueue, ...] = ()
    only_this_broker: bool = False


class LockedQueues(Body, frozen=True):
    """Those of the wanted queues that the client holds now."""

    locked: tuple[MessageQueue, ...] = msgspec.field(default=(), name="lockOKMQSet")
