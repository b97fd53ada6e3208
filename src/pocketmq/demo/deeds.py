"""What the shop does beside selling, with an outcome that follows from its number alone: payments and reminders."""

import random
from enum import Enum
from typing import Final, NamedTuple

from pocketmq.demo.shop import Day

FIRST_REMINDER_MS: Final = 2_000
LAST_REMINDER_MS: Final = 12_000


class Fate(Enum):
    """How a payment ends."""

    PAID = "paid"
    REFUSED = "refused"
    FORGOTTEN_PAID = "forgotten, but paid"
    """The program died before it could say so: the broker asks."""
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
