"""The bank: payments are there once if they were paid, also when the bank dies in the middle."""

import threading

from pocketmq import Admin
from pocketmq.demo.servers import messages_of
from pocketmq.demo.shop import PAYMENTS, Fate, Payment
from pocketmq.demo.staff import Bank

MADE = [
    Payment("a", Fate.PAID),
    Payment("b", Fate.REFUSED),
    Payment("c", Fate.FORGOTTEN_PAID),
    Payment("d", Fate.FORGOTTEN_REFUSED),
    Payment("e", Fate.PAID),
]


def paid(name_servers: str) -> list[str]:
    with Admin(name_servers) as admin:
        return sorted(message.keys[0] for message in messages_of(admin, PAYMENTS))


def test_payments_are_stored_and_forgotten_ones_are_checked(shop: str) -> None:
    bank = Bank(MADE, threading.Event().wait)

    bank.pay_all(shop)

    assert paid(shop) == ["a", "c", "e"]
    assert bank.checks >= 2
    assert bank.is_done


def test_a_restarted_bank_with_open_payments_does_not_pay_twice(shop: str) -> None:
    looks = iter([False, False, False])
    dead = Bank(MADE, lambda s: next(looks, True))
    dead.pay_all(shop)
    assert (dead.begun, dead.is_done) == (4, False)

    bank = Bank(MADE, threading.Event().wait)
    bank.pay_all(shop)

    assert paid(shop) == ["a", "c", "e"]
    assert bank.begun == len(MADE)
