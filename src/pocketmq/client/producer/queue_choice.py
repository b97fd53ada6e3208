"""The choice of a message's queue, queue selectors, and the order of messages to a chosen queue.

    queue=                     ── this queue ───────────────────────┐
    selector=, selector_key=   ── the queue that it returns ────────┼──► one queue of the topic's route
    a sharding key             ── by its hash ──────────────────────┤
    otherwise                  ── next in turn, see `fault_strategy` ┘

Queue names have no namespace outside this module; inside, they are those of the wire.

A selector sends related messages to one queue, which keeps their order:

    select(queues, message, key) ──► queue            key: an order number, a customer …

`queues` are all writable queues of the topic, in the order of its route, which is the same for all producers. A Java producer
that selects by the hash of the same key uses the same queue. When the number of queues changes, keys move: for a while, the messages of one
key may be in two queues.

Send order: messages to a chosen queue that cannot be written at once wait in turns.

    send ── cannot be written at once ──► turn(queue) ── first ──► waits for its broker ──► written ──► the next turn
    send ── other messages wait ──► turn(queue), behind them

A turn ends when the request is written, not when the response arrives. Without waiting messages there are no turns.
"""

import asyncio
from collections import deque
from collections.abc import Collection, Sequence
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from pocketmq.client.cluster.instance import Instance
from pocketmq.client.cluster.routes import QueueNames, TopicRoute
from pocketmq.client.producer.fault_strategy import BrokerHealth, QueueChooser
from pocketmq.client.settings import ProducerSettings
from pocketmq.errors import CallTimedOut, ConnectFailed, NoPermission, UsageError
from pocketmq.model import Message, MessageQueue
from pocketmq.model import properties as names
from pocketmq.model.java_hash import java_hash
from pocketmq.model.names import wrap


class QueueSelector(Protocol):
    """Chooses the queue of a message. `key` is the `selector_key` of the send, or None."""

    def __call__(self, queues: Sequence[MessageQueue], message: Message, key: object) -> MessageQueue: ...


def by_hash(queues: Sequence[MessageQueue], message: Message, key: object = None) -> MessageQueue:
    """Chooses by Java's hash of the key; without a key, by that of the message's sharding key."""
    if key is None:
        key = message.properties.get(names.SHARDING_KEY)
    return queues[abs(java_hash_of(key)) % len(queues)]


def java_hash_of(key: object) -> int:
    """Java's hash of a String, Integer or (for larger numbers) Long. UsageError for other keys."""
    if isinstance(key, str):
        return java_hash(key)
    if isinstance(key, int) and not isinstance(key, bool) and -(2**63) <= key < 2**63:
        return key if -(2**31) <= key < 2**31 else _signed((key ^ key >> 32) & 0xFFFFFFFF)
    raise UsageError(f"invalid selector key {key!r:.80}; expected a str or an int, or a message with a sharding key")


def _signed(low: int) -> int:
    return (low ^ 0x80000000) - 0x80000000


class SendOrder:
    """The turns of one producer, for each chosen queue."""

    def __init__(self) -> None:
        self._turns: dict[MessageQueue, deque[Turn]] = {}

    def is_waited_for(self, queue: MessageQueue) -> bool:
        """Whether messages to `queue` wait for their turn. Thread-safe."""
        return queue in self._turns

    def turn(self, queue: MessageQueue) -> "Turn":
        """The next turn, behind all waiting messages; a context manager."""
        turn = Turn(self, queue)
        self._turns.setdefault(queue, deque()).append(turn)
        return turn

    def is_first(self, turn: "Turn") -> bool:
        return self._turns[turn.queue][0] is turn

    def end(self, turn: "Turn") -> None:
        """End a turn, and start the next."""
        turns = self._turns[turn.queue]
        turns.remove(turn)
        if not turns:
            del self._turns[turn.queue]
        elif not turns[0].came.done():
            turns[0].came.set_result(None)


class Turn:
    """The turn of one message."""

    __slots__ = ("_has_ended", "_order", "came", "queue")

    def __init__(self, order: SendOrder, queue: MessageQueue) -> None:
        self._order = order
        self._has_ended = False
        self.queue = queue
        self.came: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def wait(self, deadline: float) -> None:
        """Wait until all earlier messages are written or cancelled; ConnectFailed when the deadline passes first."""
        if self._order.is_first(self):
            return
        try:
            async with asyncio.timeout_at(deadline):
                await self.came
        except TimeoutError:
            raise ConnectFailed(
                f"no connection to {self.queue.broker_name} before the send timed out; nothing was sent: earlier messages "
                f"wait for {self.queue}"
            ) from None

    def end(self) -> None:
        """End the turn: the message is written or cancelled. May be called twice."""
        if not self._has_ended:
            self._has_ended = True
            self._order.end(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end()


class Destination(NamedTuple):
    """A queue, a selector with its `key`, or any queue."""

    queue: MessageQueue | None = None
    selector: QueueSelector | None = None
    key: object = None

    @property
    def is_any(self) -> bool:
        return self.queue is None and self.selector is None


ANY_QUEUE = Destination()
_BY_SHARDING_KEY = Destination(selector=by_hash)


def destination_of(
    message: Message, queue: MessageQueue | None, selector: QueueSelector | None, selector_key: object
) -> Destination:
    """The destination in a caller's arguments. By default, a sharding key selects by its hash."""
    if queue is None and selector is None and selector_key is None:
        return _BY_SHARDING_KEY if names.SHARDING_KEY in message.properties else ANY_QUEUE
    if queue is not None:
        if selector is not None or selector_key is not None:
            raise UsageError("set queue, or selector and selector_key, not both")
        if not isinstance(queue, MessageQueue):
            raise UsageError(f"queue = {queue!r} must be a MessageQueue(topic, broker_name, queue_id)")
        return Destination(queue)
    return Destination(selector=selector or by_hash, key=selector_key)


class QueueChoice:
    """Chooses the queues of one producer."""

    def __init__(self, instance: Instance, settings: ProducerSettings, health: BrokerHealth | None) -> None:
        self._routes = instance.routes
        self._reconnects = instance.reconnects
        self._clock = instance.clock
        self._settings = settings
        self._names = QueueNames(settings.namespace)
        self._chooser = QueueChooser(lambda: instance.dice.randrange(2**31), health)
        self._looks_at_time = health is not None
        self.shown = self._names.shown
        self.order = SendOrder()

    def at_once(self, topic: str, message: Message, destination: Destination) -> MessageQueue | None:
        """The queue for a first attempt; None when the route is not known yet."""
        route = self._routes.get(topic)
        if route is None or not route.writable:
            return None
        return self._choose(message, destination, route, None)

    def in_turn(self, topic: str, count: int) -> tuple[TopicRoute, int] | None:
        """The route for `count` messages to any queue, and the position of the first, when no broker is avoided.

        None when the route is not known yet.
        """
        route = self._routes.get(topic)
        return None if route is None or not route.writable else (route, self._chooser.reserve_turns(topic, count))

    async def find(
        self,
        topic: str,
        message: Message,
        destination: Destination,
        deadline: float,
        last_broker: str | None = None,
        unreached: Collection[str] = (),
    ) -> MessageQueue:
        """The queue for an attempt, after one at `last_broker` failed and brokers `unreached` could not be connected.

        Queries name servers if the route is unknown, and waits for a connection to them until the deadline.
        """
        route = self._routes.get(topic)
        if route is None:
            route = await self.route(topic, deadline)
        if not route.writable and destination.queue is None:
            raise NoPermission(f"topic {topic!r} has no writable queue: its brokers have no master, or it is read-only")
        return self._choose(message, destination, route, last_broker, unreached)

    def brokers(self, topic: str) -> set[str]:
        """The known brokers with writable queues of a topic."""
        route = self._routes.get(topic)
        return set() if route is None else {queue.broker_name for queue in route.writable}

    async def pinned(self, message: Message, destination: Destination, deadline: float) -> Destination:
        """Replace a selector by the queue that it chooses: messages to one queue share batches."""
        topic = wrap(self._settings.namespace, message.topic)
        return Destination(self.shown(await self.find(topic, message, destination, deadline)))

    def pinned_at_once(self, message: Message, destination: Destination) -> Destination:
        """`pinned` without waiting; unchanged when the route is not known yet."""
        queue = self.at_once(wrap(self._settings.namespace, message.topic), message, destination)
        return destination if queue is None else Destination(self.shown(queue))

    async def all_of(self, topic: str) -> list[MessageQueue]:
        """The writable queues of a user's topic; TopicNotFound when it does not exist."""
        route = await self._routes.find(wrap(self._settings.namespace, topic))
        return [self.shown(queue) for queue in route.writable]

    def forget(self, topic: str) -> None:
        """Delete the state of a topic that is not used any more."""
        self._chooser.forget(topic)
        self._names.forget(topic)

    def _choose(
        self,
        message: Message,
        destination: Destination,
        route: TopicRoute,
        last_broker: str | None,
        unreached: Collection[str] = (),
    ) -> MessageQueue:
        if destination.queue is not None:
            return self._names.on_the_wire(destination.queue, route.topic)
        if destination.selector is not None:
            shown = [self.shown(queue) for queue in route.writable]
            return self._names.on_the_wire(destination.selector(shown, message, destination.key), route.topic)
        now = self._clock.monotonic() if self._looks_at_time else 0.0
        queues: Sequence[MessageQueue] = route.writable
        if unreached:
            queues = [queue for queue in queues if queue.broker_name not in unreached] or queues
        return self._chooser.choose(route.topic, queues, now, last_broker)

    async def route(self, topic: str, deadline: float) -> TopicRoute:
        """The route for sends. Waits for a connection to a name server until the deadline."""
        settings = self._settings
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    return await self._routes.find_or_template(
                        topic, settings.template_topic, settings.new_topic_queues
                    )
            except ConnectFailed:
                if not await self._reconnects.wait(topic, None, deadline):
                    raise
            except TimeoutError as error:
                if isinstance(error, CallTimedOut):
                    raise
                raise CallTimedOut(
                    f"no route for topic {topic!r} before the send timed out: no name server answered; nothing was sent"
                ) from None
