"""Which queue a message goes to: the one that was wished for, or the next in turn.

    a queue ── kept to ────────────────────────────────┐
    a selector and its key ── the queue that it gives ─┼──► one queue of the topic's route
    a sharding key ── by its hash ─────────────────────┤
    nothing ── the next in turn, see `fault_strategy` ─┘

Queues outside have the names that users know, inside those of the wire.
"""

import asyncio
from collections.abc import Collection, Sequence
from typing import NamedTuple

from pocketmq.client.fault_strategy import BrokerHealth, QueueChooser
from pocketmq.client.instance import Instance
from pocketmq.client.queue_names import QueueNames
from pocketmq.client.routes import TopicRoute
from pocketmq.client.selectors import QueueSelector, by_hash
from pocketmq.client.send_order import SendOrder
from pocketmq.client.settings import ProducerSettings
from pocketmq.errors import CallTimedOut, ConnectFailed, NoPermission, UsageError
from pocketmq.model import properties as names
from pocketmq.model.message import Message
from pocketmq.model.names import wrap
from pocketmq.model.queue import MessageQueue


class Wish(NamedTuple):
    """This queue, the one that a selector chooses by `key`, or any."""

    queue: MessageQueue | None = None
    selector: QueueSelector | None = None
    key: object = None

    @property
    def is_any(self) -> bool:
        return self.queue is None and self.selector is None


ANY_QUEUE = Wish()
_BY_SHARDING_KEY = Wish(selector=by_hash)


def wish_for(
    message: Message, queue: MessageQueue | None, selector: QueueSelector | None, selector_key: object
) -> Wish:
    """What a caller says about queues. A message with a sharding key goes by its hash, unless something else is said."""
    if queue is None and selector is None and selector_key is None:
        return _BY_SHARDING_KEY if names.SHARDING_KEY in message.properties else ANY_QUEUE
    if queue is not None:
        if selector is not None or selector_key is not None:
            raise UsageError("give a queue, or a selector with its key, but not both")
        return Wish(queue)
    return Wish(selector=selector or by_hash, key=selector_key)


class QueueChoice:
    """Chooses for one producer."""

    def __init__(self, instance: Instance, settings: ProducerSettings, health: BrokerHealth | None) -> None:
        self._routes = instance.routes
        self._comebacks = instance.comebacks
        self._clock = instance.clock
        self._settings = settings
        self._names = QueueNames(settings.namespace)
        self._chooser = QueueChooser(lambda: instance.dice.randrange(2**31), health)
        self._looks_at_time = health is not None
        self.shown = self._names.shown
        self.order = SendOrder()

    def at_once(self, topic: str, message: Message, wish: Wish) -> MessageQueue | None:
        """The queue for a first attempt; None when nobody knows yet where the topic is."""
        route = self._routes.get(topic)
        if route is None or not route.writable:
            return None
        return self._choose(message, wish, route, None)

    def in_turn(self, topic: str, count: int) -> tuple[TopicRoute, int] | None:
        """For so many messages to any queue, where no broker is avoided: the route, and the place in it of the first.

        None when nobody knows yet where the topic is.
        """
        route = self._routes.get(topic)
        return None if route is None or not route.writable else (route, self._chooser.take_turns(topic, count))

    async def find(
        self,
        topic: str,
        message: Message,
        wish: Wish,
        deadline: float,
        last_broker: str | None = None,
        unreached: Collection[str] = (),
    ) -> MessageQueue:
        """The queue for an attempt, after one at `last_broker` failed and those at `unreached` could not be made.

        Asks name servers if need be, and waits for them until the deadline when none can be connected.
        """
        route = self._routes.get(topic)
        if route is None:
            route = await self.route(topic, deadline)
        if not route.writable and wish.queue is None:
            raise NoPermission(
                f"topic {topic!r} has no queue that can be written to: its brokers have no master, or it is read-only"
            )
        return self._choose(message, wish, route, last_broker, unreached)

    def brokers(self, topic: str) -> set[str]:
        """The brokers of a topic that can be written to, as far as is known."""
        route = self._routes.get(topic)
        return set() if route is None else {queue.broker_name for queue in route.writable}

    async def pinned(self, message: Message, wish: Wish, deadline: float) -> Wish:
        """The queue that a selector chooses, as a wish for it: messages to one queue share its batches."""
        topic = wrap(self._settings.namespace, message.topic)
        return Wish(self.shown(await self.find(topic, message, wish, deadline)))

    def pinned_at_once(self, message: Message, wish: Wish) -> Wish:
        """The same, as far as it can be told without waiting."""
        queue = self.at_once(wrap(self._settings.namespace, message.topic), message, wish)
        return wish if queue is None else Wish(self.shown(queue))

    async def all_of(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic of users that can be written to; TopicNotFound when it does not exist."""
        route = await self._routes.find(wrap(self._settings.namespace, topic))
        return [self.shown(queue) for queue in route.writable]

    def forget(self, topic: str) -> None:
        """Nobody sends to `topic` any more."""
        self._chooser.forget(topic)
        self._names.forget(topic)

    def _choose(
        self,
        message: Message,
        wish: Wish,
        route: TopicRoute,
        last_broker: str | None,
        unreached: Collection[str] = (),
    ) -> MessageQueue:
        if wish.queue is not None:
            return self._names.on_the_wire(wish.queue, route.topic)
        if wish.selector is not None:
            shown = [self.shown(queue) for queue in route.writable]
            return self._names.on_the_wire(wish.selector(shown, message, wish.key), route.topic)
        now = self._clock.monotonic() if self._looks_at_time else 0.0
        queues: Sequence[MessageQueue] = route.writable
        if unreached:
            queues = [queue for queue in queues if queue.broker_name not in unreached] or queues
        return self._chooser.choose(route.topic, queues, now, last_broker)

    async def route(self, topic: str, deadline: float) -> TopicRoute:
        """The route to send by; name servers that cannot be connected are waited for until the deadline."""
        settings = self._settings
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    return await self._routes.find_or_template(
                        topic, settings.template_topic, settings.new_topic_queues
                    )
            except ConnectFailed:
                if not await self._comebacks.wait(topic, None, deadline):
                    raise
            except TimeoutError as error:
                if isinstance(error, CallTimedOut):
                    raise
                raise CallTimedOut(f"no name server told in time where topic {topic!r} is; nothing was sent") from None
