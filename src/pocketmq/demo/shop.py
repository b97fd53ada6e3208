"""The shop: its topics and groups, and one day of events, the same for the same seed, so that a demo can continue after a crash.

    seed, day, count ──► blocks of events, each with its own random numbers ──► Event 0 … count - 1

An event is a message of the topic of orders. Only this module knows the expected result, until the end of the day:

    FINE       a new order
    LATE       a new order that the customer's phone sent hours after it was placed
    AGAIN      a repetition of a recent order, byte by byte: the producer received no response, and retried
    BROKEN     an invalid order: truncated, a wrong number, a missing field, a negative price

Payments and reminders have an outcome that follows from their number alone.
"""

import random
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from functools import lru_cache
from itertools import accumulate
from typing import Final, NamedTuple

from pocketmq.model.java_hash import java_hash

BLOCK: Final = 1_000
"""Events with the same random generator."""
DAY_MS: Final = 86_400_000
MINUTE_MS: Final = 60_000
LATE_AFTER_MS: Final = 2 * 60 * MINUTE_MS
"""An order that arrives later than this does not count in its hour."""
RECENT: Final = 50
"""A repetition follows within this number of events."""
FLAKY_ONE_IN: Final = 50
"""The mail server refuses one in this number of express orders at first."""

CITIES: Final = {"Lisbon": 21, "Oslo": 15, "Prague": 18, "Riga": 9, "Turin": 22, "Vienna": 15}
"""Cities, with their share of the orders."""
TAGS: Final = {"express": 1, "pickup": 3, "standard": 6}
EXPRESS: Final = "express"
BUSY: Final = (5, 5, 5, 5, 5, 6, 8, 10, 12, 12, 11, 13, 16, 14, 11, 10, 11, 13, 16, 18, 17, 14, 10, 7)
"""The relative number of orders in each hour."""


class Kind(Enum):
    FINE = "fine"
    LATE = "late"
    AGAIN = "again"
    BROKEN = "broken"


class Event(NamedTuple):
    """One message of the topic of orders, with its expected result."""

    number: int
    kind: Kind
    key: str
    customer: str
    tag: str
    body: bytes
    amount_cents: int


class Day(NamedTuple):
    """The input of all events."""

    seed: int
    begin_ms: int
    orders: int

    @property
    def customers(self) -> int:
        return max(20, self.orders // 50)

    @property
    def payments(self) -> int:
        return min(1_000, max(20, self.orders // 50))

    @property
    def reminders(self) -> int:
        return min(200, max(10, self.orders // 200))

    def events(self) -> Iterator[Event]:
        for block in range(0, self.orders, BLOCK):
            yield from self._block(block, min(block + BLOCK, self.orders))

    def _block(self, begin: int, end: int) -> Iterator[Event]:
        dice = random.Random(f"{self.seed} {begin}")  # noqa: S311 - a game, not a secret
        recent: deque[Event] = deque(maxlen=RECENT)
        for number in range(begin, end):
            throw = dice.random()
            if throw < 0.02 and recent:
                yield dice.choice(recent)._replace(number=number, kind=Kind.AGAIN)
            elif throw < 0.03:
                yield self._broken(number, dice)
            else:
                event = self._order(number, dice, is_late=throw > 0.99)
                recent.append(event)
                yield event

    def _order(self, number: int, dice: random.Random, *, is_late: bool) -> Event:
        received_ms = self.moment_ms(number)
        waited_ms = LATE_AFTER_MS + dice.randrange(1, 180 * MINUTE_MS) if is_late else dice.randrange(15 * MINUTE_MS)
        city, tag, customer, amount = self._sale(dice)
        key = f"order-{number:08}"
        body = (
            f'{{"order_id":"{key}","number":{number},"customer":"{customer}","city":"{city}","amount_cents":{amount},'
            f'"placed_at":"{_iso(received_ms - waited_ms)}","received_at":"{_iso(received_ms)}"}}'
        )
        kind = Kind.LATE if is_late else Kind.FINE
        return Event(number, kind, key, customer, tag, body.encode(), amount)

    def _broken(self, number: int, dice: random.Random) -> Event:
        whole = self._order(number, dice, is_late=False)
        text = whole.body.decode()
        bodies = (
            text[: len(text) // 2],
            text.replace(f'"amount_cents":{whole.amount_cents}', '"amount_cents":"a lot"'),
            text.replace(f'"customer":"{whole.customer}",', ""),
            text.replace(f'"amount_cents":{whole.amount_cents}', f'"amount_cents":-{whole.amount_cents}'),
        )
        return whole._replace(kind=Kind.BROKEN, body=dice.choice(bodies).encode())

    def _sale(self, dice: random.Random) -> tuple[str, str, str, int]:
        customer = f"customer-{dice.randrange(self.customers):06}"
        city = _CITY_NAMES[bisect_right(_CITY_SHARES, dice.random() * _CITY_SHARES[-1])]
        tag = _TAG_NAMES[bisect_right(_TAG_SHARES, dice.random() * _TAG_SHARES[-1])]
        return city, tag, customer, int(dice.lognormvariate(7.5, 0.6))

    def moment_ms(self, number: int) -> int:
        """When the shop receives an event, by its own clock: in the order of numbers, with more events in busy hours."""
        position = number / self.orders * _BUSY_SUMS[-1]
        hour = bisect_right(_BUSY_SUMS, position)
        before = _BUSY_SUMS[hour - 1] if hour else 0
        return self.begin_ms + int((hour + (position - before) / BUSY[hour]) * 3_600_000)


def is_flaky(key: str) -> bool:
    """Whether the mail server refuses this order on the first attempt."""
    return java_hash(key) % FLAKY_ONE_IN == 0


def yesterday_ms(now_ms: int) -> int:
    """The start of yesterday, in UTC."""
    return (now_ms // DAY_MS - 1) * DAY_MS


def _iso(ms: int) -> str:
    minute, rest_ms = divmod(ms, MINUTE_MS)
    return f"{_minute(minute)}:{rest_ms // 1000:02}.{rest_ms % 1000:03}Z"


@lru_cache(maxsize=4096)
def _minute(number: int) -> str:
    """A minute as text, cached: a day has few of them, and formatting took most of an event's time."""
    return datetime.fromtimestamp(number * 60, UTC).strftime("%Y-%m-%dT%H:%M")


_CITY_NAMES, _CITY_SHARES = list(CITIES), list(accumulate(CITIES.values()))
_TAG_NAMES, _TAG_SHARES = list(TAGS), list(accumulate(TAGS.values()))
_BUSY_SUMS = list(accumulate(BUSY))


FIRST_REMINDER_MS: Final = 2_000
LAST_REMINDER_MS: Final = 12_000


class Fate(Enum):
    """How a payment ends."""

    PAID = "paid"
    REFUSED = "refused"
    FORGOTTEN_PAID = "forgotten, but paid"
    """The program ends before the decision, so the broker checks the transaction."""
    FORGOTTEN_REFUSED = "forgotten, and refused"

    @property
    def is_paid(self) -> bool:
        return self in (Fate.PAID, Fate.FORGOTTEN_PAID)

    @property
    def is_forgotten(self) -> bool:
        return self in (Fate.FORGOTTEN_PAID, Fate.FORGOTTEN_REFUSED)


_SHARES = {Fate.PAID: 84, Fate.REFUSED: 10, Fate.FORGOTTEN_PAID: 4, Fate.FORGOTTEN_REFUSED: 2}


class Payment(NamedTuple):
    key: str
    fate: Fate


class Reminder(NamedTuple):
    key: str
    delay_ms: int


def payments(day: Day) -> list[Payment]:
    dice = random.Random(f"{day.seed} payments")  # noqa: S311 - a game, not a secret
    fates = dice.choices(list(_SHARES), list(_SHARES.values()), k=day.payments)
    return [Payment(f"payment-{number:05}", fate) for number, fate in enumerate(fates)]


def reminders(day: Day) -> list[Reminder]:
    dice = random.Random(f"{day.seed} reminders")  # noqa: S311
    return [
        Reminder(f"reminder-{number:05}", dice.randrange(FIRST_REMINDER_MS, LAST_REMINDER_MS))
        for number in range(day.reminders)
    ]


ORDERS: Final = "shop-orders"
PAYMENTS: Final = "shop-payments"
REMINDERS: Final = "shop-reminders"
DEAD_ORDERS: Final = "shop-orders-dead"
"""Invalid orders, with the reason."""
REVENUE: Final = "shop-revenue"
"""The orders of each city in each hour, one message for each change."""

TOPICS: Final = {ORDERS: 8, PAYMENTS: 4, REMINDERS: 4, DEAD_ORDERS: 2, REVENUE: 2}
"""Topics, with their number of queues."""

TILL: Final = "shop-till"
BANK: Final = "shop-bank"
CALENDAR: Final = "shop-calendar"
SHIPPING: Final = "shop-shipping"
MAIL: Final = "shop-mail"
SPARK: Final = "shop-spark"


@dataclass
class Tally:
    """Counts of events. `amount_cents` and `numbers` are sums over valid orders, to compare two days."""

    events: int = 0
    late: int = 0
    again: int = 0
    broken: int = 0
    amount_cents: int = 0
    numbers: int = 0
    punctual_cents: int = 0
    express_broken: int = 0
    express_flaky: int = 0

    @property
    def valid(self) -> int:
        """Valid orders, each counted once."""
        return self.events - self.again - self.broken

    @property
    def punctual(self) -> int:
        return self.valid - self.late

    def add(self, event: Event) -> None:
        self.events += 1
        is_express = event.tag == EXPRESS
        if event.kind is Kind.BROKEN:
            self.broken += 1
            self.express_broken += is_express
            return
        self.express_flaky += is_express and is_flaky(event.key)
        if event.kind is Kind.AGAIN:
            self.again += 1
            return
        self.amount_cents += event.amount_cents
        self.numbers += event.number
        if event.kind is Kind.LATE:
            self.late += 1
        else:
            self.punctual_cents += event.amount_cents
