"""The till: sends the day's orders, each customer's in order, and goes on where an earlier run was cut off.

The queue of an order follows from its customer, and each queue gets its orders one chunk after the other. So what a queue holds is
the beginning of what it should hold, whenever the sender died: as many of its orders as it has messages are there already.

    queue 3 should hold   o17 o21 o40 o42 o58 …
    it has 3 messages ──► o17 o21 o40 are there, o42 is next
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from pocketmq.client import Admin, Producer
from pocketmq.client.selectors import by_hash
from pocketmq.clock import Clock
from pocketmq.demo.names import ORDERS, TILL
from pocketmq.demo.shop import Day, Event
from pocketmq.demo.tally import Tally
from pocketmq.model.message import Message
from pocketmq.model.queue import MessageQueue

MAX_CHUNK: Final = 500
"""Orders that go to a queue together. Small beside the day, so that no queue is hours ahead of another."""
CHUNKS_A_DAY: Final = 400
OPEN_S: Final = 30.0
"""How long a day takes, if the machine can: there should be something to see."""

Wait = Callable[[float], bool]
"""Waits for seconds; True when it was told to stop instead."""


class Till:
    """Sends a day; `sent` and `found` tell how far it is."""

    def __init__(self, day: Day, clock: Clock, wait: Wait, open_s: float = OPEN_S) -> None:
        self.tally = Tally()
        self.found = 0
        """Orders that an earlier run had sent."""
        self.sent = 0
        self.is_done = False
        self._day = day
        self._clock = clock
        self._wait = wait
        self._chunk = min(MAX_CHUNK, max(1, day.orders // CHUNKS_A_DAY))
        self._pace = _Pace(day.orders, open_s)

    @property
    def there(self) -> int:
        """Orders that the topic has."""
        return self.found + self.sent

    def send_all(self, name_servers: str) -> None:
        """Send what is not there yet. When told to stop, it just ends: the next run goes on."""
        with Admin(name_servers) as admin:
            there = {state.queue: state.max_offset for state in admin.topics.describe(ORDERS).queues}
        self.found = sum(there.values())
        with Producer(name_servers, group=TILL, send_timeout_ms=30_000, retry_when_busy=True) as producer:
            queues = producer.queues(ORDERS)
            waiting: dict[MessageQueue, list[Message]] = {queue: [] for queue in queues}
            began = self._clock.monotonic()
            for event in self._day.events():
                self.tally.add(event)
                message = _message(event)
                queue = by_hash(queues, message)
                if there.get(queue, 0):
                    there[queue] -= 1
                    continue
                waiting[queue].append(message)
                if len(waiting[queue]) >= self._chunk:
                    self._send(producer, queue, waiting[queue])
                    if self._wait(self._pace.ahead_s(self.sent, self._clock.monotonic() - began)):
                        return
            for queue, messages in waiting.items():
                self._send(producer, queue, messages)
        self.is_done = True

    def _send(self, producer: Producer, queue: MessageQueue, messages: list[Message]) -> None:
        if messages:
            producer.send_many(messages, queue=queue)
            self.sent += len(messages)
            messages.clear()


class _Pace(NamedTuple):
    """So many orders in so many seconds."""

    orders: int
    open_s: float

    def ahead_s(self, sent: int, passed_s: float) -> float:
        """How long to wait; 0 when the sender is behind."""
        return max(0.0, sent / self.orders * self.open_s - passed_s)


def _message(event: Event) -> Message:
    return Message(ORDERS, event.body, keys=event.key, tags=event.tag, sharding_key=event.customer)
