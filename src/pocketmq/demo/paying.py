"""The bank: payments in transactions, of which some are dropped, and some are left for the broker to ask about.

Whatever was begun is a half message at the broker, in a topic of its own, and is decided by the bank or by the broker's question. So a
run that goes on after another begins only what is not there yet:

    begun ──► half message ──┬─ commit ──► topic of payments
                             ├─ roll back
                             └─ nobody said ──► the broker asks ──► the book knows
"""

from contextlib import suppress
from typing import Final

from pocketmq.client import Admin, Producer, TransactionState
from pocketmq.demo.deeds import Fate, Payment
from pocketmq.demo.names import BANK, PAYMENTS
from pocketmq.demo.selling import Wait
from pocketmq.demo.topics import keys_of
from pocketmq.model.message import StoredMessage
from pocketmq.model.names import HALF_TOPIC

CHECKS: Final = {"transactionTimeOut": 2_000, "transactionCheckInterval": 1_000}
"""Settings of the broker: how soon it asks about a payment that nobody decided."""
LOOK_S: Final = 0.5
HEARTBEAT_MS: Final = 1_000


class Refused(Exception):
    """The customer has no money."""


class Bank:
    """Sends payments. Whether one was paid stands in its book, which also answers when the broker asks."""

    def __init__(self, payments: list[Payment], wait: Wait) -> None:
        self.begun = 0
        self.asked = 0
        """Questions of the broker."""
        self.is_done = False
        self._book = {payment.key: payment.fate for payment in payments}
        self._wait = wait

    def pay_all(self, name_servers: str) -> None:
        with (
            Admin(name_servers) as admin,
            Producer(name_servers, group=BANK, check=self._check, heartbeat_ms=HEARTBEAT_MS) as producer,
        ):
            producer.queues(PAYMENTS)  # brokers hear of a producer, and can ask it, when it knows a topic of theirs
            there = keys_of(admin, HALF_TOPIC)
            for key, fate in self._book.items():
                if key not in there:
                    _pay(producer, key, fate)
                self.begun += 1
                if self._wait(0):
                    return
            while not self._wait(LOOK_S) and admin.transactions.undecided().found:
                pass
        self.is_done = True

    def _check(self, message: StoredMessage) -> TransactionState:
        self.asked += 1
        is_paid = self._book[message.keys[0]].is_paid
        return TransactionState.COMMIT if is_paid else TransactionState.ROLLBACK


def _pay(producer: Producer, key: str, fate: Fate) -> None:
    with suppress(Refused), producer.transaction(PAYMENTS) as transaction:
        transaction.send(b"1", keys=key)
        if fate.is_forgotten:
            transaction.leave_open()
        elif not fate.is_paid:
            raise Refused
