"""The staff of the shop: three producers and two consumers. Each producer continues where an earlier run was interrupted.

The till sends the day's orders, each customer's in order. The queue of an order follows from its customer, and each queue gets its orders
chunk by chunk. So the orders in a queue are always the first of those that belong there, and their number shows which one is next:

    orders for queue 3    o17 o21 o40 o42 o58 …
    it has 3 messages ──► o17 o21 o40 were sent, o42 is next

The bank sends payments in transactions. Some are rolled back, and some are left undecided for the broker's check. Every payment is a half
message at the broker, in a topic of its own, so a later run only sends the missing ones:

    begun ──► half message ──┬─ commit ──► topic of payments
                             ├─ roll back
                             └─ undecided ──► the broker checks ──► the book has the answer

The calendar sends reminders with a delay of some seconds. The broker keeps them in a topic of its own, also after their delivery, so a
later run only sends the missing ones.

Two consumers read the orders beside Spark:

    shipping   ordered       counts orders that overtook an earlier one of their customer, which must not happen
    mail       concurrent    express orders only, which the broker filters by tag
                 flaky   ──► one retry after a second
                 broken  ──► all retries ──► dead letter
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Annotated, Final, NamedTuple

import msgspec

from pocketmq.client import Admin, Producer, PushConsumer, RetryLater, TransactionState
from pocketmq.client.producer.queue_choice import by_hash
from pocketmq.clock import Clock
from pocketmq.demo.servers import keys_of
from pocketmq.demo.shop import (
    BANK,
    CALENDAR,
    EXPRESS,
    MAIL,
    ORDERS,
    PAYMENTS,
    RECENT,
    REMINDERS,
    SHIPPING,
    TILL,
    Day,
    Event,
    Fate,
    Payment,
    Reminder,
    Tally,
    is_flaky,
)
from pocketmq.model import HALF_TOPIC, TIMER_TOPIC, Message, MessageQueue, StoredMessage

MAX_CHUNK: Final = 500
"""Orders that are sent to a queue together: few, so that no queue is hours ahead of another."""
CHUNKS_A_DAY: Final = 400
OPEN_S: Final = 30.0
"""The duration of a day, if the machine is fast enough."""

Wait = Callable[[float], bool]
"""Waits for seconds; returns True on a request to stop."""


class Till:
    """Sends a day; `sent` and `found` count its orders."""

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
    def total(self) -> int:
        """Orders in the topic."""
        return self.found + self.sent

    def send_all(self, name_servers: str) -> None:
        """Send the missing orders, until done or stopped."""
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
    """A number of orders in a number of seconds."""

    orders: int
    open_s: float

    def ahead_s(self, sent: int, passed_s: float) -> float:
        """How long to wait; 0 if the sender is late."""
        return max(0.0, sent / self.orders * self.open_s - passed_s)


def _message(event: Event) -> Message:
    return Message(ORDERS, event.body, keys=event.key, tags=event.tag, sharding_key=event.customer)


CHECKS: Final = {"transactionTimeOut": 2_000, "transactionCheckInterval": 1_000}
"""Broker settings: the time before it checks an undecided transaction."""
POLL_S: Final = 0.5
HEARTBEAT_MS: Final = 1_000


class Refused(Exception):
    """The customer has no money."""


class Bank:
    """Sends payments. Its book has their outcome, also for transaction checks by the broker."""

    def __init__(self, payments: list[Payment], wait: Wait) -> None:
        self.begun = 0
        self.checks = 0
        """Transaction checks by the broker."""
        self.is_done = False
        self._book = {payment.key: payment.fate for payment in payments}
        self._wait = wait

    def pay_all(self, name_servers: str) -> None:
        with (
            Admin(name_servers) as admin,
            Producer(name_servers, group=BANK, check=self._check, heartbeat_ms=HEARTBEAT_MS) as producer,
        ):
            producer.queues(PAYMENTS)  # registers the producer with the brokers of the topic, so that they can check
            known = keys_of(admin, HALF_TOPIC)
            for key, fate in self._book.items():
                if key not in known:
                    _pay(producer, key, fate)
                self.begun += 1
                if self._wait(0):
                    return
            while not self._wait(POLL_S) and admin.transactions.undecided().found:
                pass
        self.is_done = True

    def _check(self, message: StoredMessage) -> TransactionState:
        self.checks += 1
        is_paid = self._book[message.keys[0]].is_paid
        return TransactionState.COMMIT if is_paid else TransactionState.ROLLBACK


def _pay(producer: Producer, key: str, fate: Fate) -> None:
    with suppress(Refused), producer.transaction(PAYMENTS) as transaction:
        transaction.send(b"1", keys=key)
        if fate.is_forgotten:
            transaction.leave_open()
        elif not fate.is_paid:
            raise Refused


DUE: Final = "dueMs"
"""The property with the due time of a reminder."""


class Calendar:
    """Sends delayed reminders."""

    def __init__(self, reminders: list[Reminder], clock: Clock, wait: Wait) -> None:
        self.sent = 0
        self.is_done = False
        self._reminders = reminders
        self._clock = clock
        self._wait = wait

    def remind_all(self, name_servers: str) -> None:
        with Admin(name_servers) as admin, Producer(name_servers, group=CALENDAR) as producer:
            known = keys_of(admin, TIMER_TOPIC)
            for key, delay_ms in self._reminders:
                if key not in known:
                    due_ms = self._clock.now_ms() + delay_ms
                    producer.send(
                        REMINDERS,
                        b"your order is waiting",
                        keys=key,
                        deliver_at_ms=due_ms,
                        properties={DUE: str(due_ms)},
                    )
                self.sent += 1
                if self._wait(0):
                    return
        self.is_done = True


MAX_RETRIES: Final = 2
"""Retries of an order by mail."""
SOON: Final = 1
"""The delay level of a retry: one second."""
PERSIST_MS: Final = 1_000
MANY: Final = 64
"""The batch size of shipping."""


class Order(msgspec.Struct):
    """A valid order."""

    order_id: str
    number: int
    customer: str
    city: str
    amount_cents: Annotated[int, msgspec.Meta(ge=0)]
    placed_at: str
    received_at: str


_read = msgspec.json.Decoder(Order).decode


class Shipping:
    """Ships orders in the order of each customer: a repeated order once, an invalid one never."""

    def __init__(self) -> None:
        self.handled = 0
        self.unreadable = 0
        self.twice = 0
        self.overtaken = 0
        self._last: dict[str, deque[int]] = defaultdict(lambda: deque([-1], maxlen=RECENT + 1))

    def ship(self, messages: list[StoredMessage]) -> None:
        for message in messages:
            self.handled += 1
            try:
                order = _read(message.body)
            except msgspec.DecodeError:
                self.unreadable += 1
                continue
            last = self._last[order.customer]
            if order.number in last:
                self.twice += 1
            elif order.number < last[-1]:
                self.overtaken += 1
            else:
                last.append(order.number)


class Mail:
    """Mails each express order; the mail server refuses some."""

    def __init__(self) -> None:
        self.mailed = 0
        self.failed = 0

    def mail(self, message: StoredMessage) -> None:
        try:
            _read(message.body)
        except msgspec.DecodeError as error:
            self.failed += 1
            raise RetryLater(str(error), delay_level=SOON) from None
        if message.reconsume_times == 0 and is_flaky(message.keys[0]):
            self.failed += 1
            raise RetryLater("the mail server is busy", delay_level=SOON)
        self.mailed += 1


@contextmanager
def readers(name_servers: str, shipping: Shipping, mail: Mail) -> Iterator[None]:
    """Run both consumers."""
    in_order = PushConsumer(
        name_servers, group=SHIPPING, ordered=True, start_at="first", pull_batch=MANY, persist_ms=PERSIST_MS
    )
    in_order.subscribe(ORDERS, shipping.ship, batch_size=MANY)
    express = PushConsumer(
        name_servers, group=MAIL, start_at="first", max_reconsume_times=MAX_RETRIES, workers=4, persist_ms=PERSIST_MS
    )
    express.subscribe(ORDERS, mail.mail, tags=EXPRESS)
    with ExitStack() as running:
        for consumer in (in_order, express):
            running.enter_context(consumer)
        yield
