"""Shares: which queues of a topic are this member's.

ByStrategy    the members of the group share them, each computing the same
All           every member reads all of them: broadcasting
Chosen        the ones that the user named, whoever else reads them
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from pocketmq.client.allocation import AllocationStrategy, allocate, sort_queues
from pocketmq.client.instance import Instance
from pocketmq.client.routes import TopicRoute
from pocketmq.errors import PocketMQError
from pocketmq.model.queue import MessageQueue


class Share(NamedTuple):
    """What this member gets of a topic. `is_shared`: queues may come from other members, who may still be at work on them."""

    all_queues: Sequence[MessageQueue]
    mine: Sequence[MessageQueue]
    is_shared: bool = False


class Shares(Protocol):
    """Tells this member's share."""

    async def of(self, route: TopicRoute) -> Share | None:
        """None when it cannot be known now: then everything stays as it is."""


class ByStrategy:
    """The queues of a topic are shared out among the members that a broker of the topic knows."""

    def __init__(self, instance: Instance, group: str, strategy: AllocationStrategy) -> None:
        self._instance = instance
        self._group = group
        self._strategy = strategy

    async def of(self, route: TopicRoute) -> Share | None:
        members = await self._members(route)
        if not members:
            return None
        queues = sort_queues(route.readable)
        mine = allocate(self._strategy, queues, members, self._instance.client_id)
        return Share(queues, mine, len(members) > 1)

    async def _members(self, route: TopicRoute) -> list[str]:
        """As one broker of the topic knows them; another one is asked when it is away, slaves last."""
        names = [data.broker_name for data in route.data.broker_datas if data.broker_name]
        self._instance.dice.shuffle(names)
        failure: PocketMQError | None = None
        brokers = self._instance.brokers
        known = [brokers.holders(name) for name in names if brokers.knows(name)]
        for address in [*(each[0] for each in known), *(slave for each in known for slave in each[1:])]:
            try:
                return await brokers.members.of_group(address, self._group)
            except PocketMQError as error:
                failure = error
        if failure is not None:
            raise failure
        return []


class All:
    """All queues."""

    async def of(self, route: TopicRoute) -> Share | None:
        queues = sort_queues(route.readable)
        return Share(queues, queues)


class Chosen:
    """The queues that the user named last; of those, the ones that exist."""

    def __init__(self) -> None:
        self.queues: frozenset[MessageQueue] = frozenset()

    async def of(self, route: TopicRoute) -> Share | None:
        queues = sort_queues(route.readable)
        return Share(queues, [queue for queue in queues if queue in self.queues])
