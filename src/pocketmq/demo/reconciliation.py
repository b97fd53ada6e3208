"""The end of the day: the messages that were sent are compared with the results, one by one.

    sent = valid + dead + duplicates        valid = punctual + late        punctual = the sum of all hours and cities

The expected numbers follow from the day's events. The actual ones are counted in topics and in the lake, never taken from the memory of the
shop's programs. So they are also right after the programs were killed and started again.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from rich.table import Table
from rich.text import Text

from pocketmq.demo.shop import Payment, Reminder, Tally
from pocketmq.demo.staff import DUE, MAX_RETRIES
from pocketmq.model import StoredMessage


class Check(msgspec.Struct, frozen=True):
    """One line: the expected and the actual number."""

    what: str
    expected: int
    found: int | None
    """None if unknown."""
    is_least: bool = False
    """Whether more is fine, too: at-least-once delivery may repeat messages after a crash."""

    @property
    def holds(self) -> bool:
        if self.found is None:
            return False
        return self.found >= self.expected if self.is_least else self.found == self.expected


class Lake(NamedTuple):
    """Spark's counts in the lake and in the topics that it wrote."""

    orders: int
    distinct: int
    late: int
    amount_cents: int
    numbers: int
    dead: int
    duplicates: int
    """Messages of valid orders in the topic, without one for each order."""
    window_orders: int
    window_cents: int


class Readers(NamedTuple):
    """The state of the consumers at the brokers."""

    shipping_behind: int | None
    mail_behind: int | None
    overtaken: int
    retries: int
    dead_letters: int


def order_checks(tally: Tally, sent: int, lake: Lake) -> list[Check]:
    return [
        Check("orders sent", tally.events, sent),
        Check("  valid, in the lake", tally.valid, lake.orders),
        Check("  dead, with the reason", tally.broken, lake.dead),
        Check("  duplicates, dropped", tally.again, lake.duplicates),
        Check("sent = valid + dead + duplicates", sent, lake.orders + lake.dead + lake.duplicates),
        Check("repeated orders in the lake", 0, lake.orders - lake.distinct),
        Check("sum of their numbers", tally.numbers, lake.numbers),
        Check("sum of their amounts, in cents", tally.amount_cents, lake.amount_cents),
        Check("late rows, not in any hour", tally.late, lake.late),
        Check("orders in the hours of all cities", tally.punctual, lake.window_orders),
        Check("revenue of all hours, in cents", tally.punctual_cents, lake.window_cents),
    ]


def reader_checks(tally: Tally, readers: Readers) -> list[Check]:
    retries = tally.express_flaky + MAX_RETRIES * tally.express_broken
    return [
        Check("shipping: orders behind", 0, readers.shipping_behind),
        Check("shipping: orders that overtook another", 0, readers.overtaken),
        Check("mail: orders behind", 0, readers.mail_behind),
        Check("mail: retries", retries, readers.retries, is_least=True),
        Check("mail: dead letters", tally.express_broken, readers.dead_letters),
    ]


def payment_checks(payments: Sequence[Payment], stored: Iterable[StoredMessage]) -> list[Check]:
    keys = {key for message in stored for key in message.keys}  # a killed broker may have committed one twice
    paid = {payment.key for payment in payments if payment.fate.is_paid}
    forgotten = {payment.key for payment in payments if payment.fate.is_paid and payment.fate.is_forgotten}
    return [
        Check("payments committed", len(paid), len(keys)),
        Check("  of them after a transaction check", len(forgotten), len(keys & forgotten)),
        Check("payments rolled back, but delivered", 0, len(keys - paid)),
    ]


def reminder_checks(reminders: Sequence[Reminder], stored: Sequence[StoredMessage]) -> list[Check]:
    return [
        Check("reminders delivered", len(reminders), len({key for message in stored for key in message.keys})),
        Check("reminders delivered too early", 0, sum(m.store_ms < int(m.properties[DUE]) for m in stored)),
    ]


def table(checks: Iterable[Check]) -> Table:
    made = Table(box=None, pad_edge=False, header_style="bold")
    made.add_column("reconciliation", no_wrap=True)
    for name in ("expected", "found"):
        made.add_column(name, justify="right", no_wrap=True)
    made.add_column("")
    for check in checks:
        least = "≥ " if check.is_least else ""
        found = "unknown" if check.found is None else f"{check.found:,}"
        mark = Text("ok", style="green") if check.holds else Text("WRONG", style="bold red")
        made.add_row(Text(check.what), f"{least}{check.expected:,}", found, mark)
    return made


def as_rows(checks: Iterable[Check]) -> list[Mapping[str, Any]]:
    """For JSON."""
    return [
        {"what": check.what.strip(), "expected": check.expected, "found": check.found, "holds": check.holds}
        for check in checks
    ]
