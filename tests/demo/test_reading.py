"""The readers of the orders: they check the order, retry failures, and give up on unreadable orders."""

import pytest

from pocketmq import RetryLater
from pocketmq.demo.shop import Day, Event, Kind, is_flaky
from pocketmq.demo.staff import Mail, Shipping
from pocketmq.model.message import StoredMessage
from pocketmq.model.properties import format_properties
from pocketmq.protocol.record import decode_record, encode_record

EVENTS = list(Day(seed=1, begin_ms=1_767_225_600_000, orders=1_000).events())


def stored(event: Event, reconsume_times: int = 0) -> StoredMessage:
    raw = format_properties({"KEYS": event.key, "TAGS": event.tag}).encode()
    hosts = bytes(8)
    return decode_record(encode_record(b"t", 0, 0, 0, event.body, raw, 0, 0, 0, hosts, 0, hosts, reconsume_times))


def first(kind: Kind) -> Event:
    return next(event for event in EVENTS if event.kind is kind and not is_flaky(event.key))


def test_shipping_counts_duplicates_and_unreadable_orders() -> None:
    shipping = Shipping()

    shipping.ship([stored(event) for event in EVENTS])

    kinds = [event.kind for event in EVENTS]
    assert (shipping.twice, shipping.unreadable) == (kinds.count(Kind.AGAIN), kinds.count(Kind.BROKEN))
    assert (shipping.handled, shipping.overtaken) == (1_000, 0)


def test_shipping_detects_orders_out_of_order() -> None:
    customer = next(event.customer for event in EVENTS if event.kind is Kind.FINE)
    theirs = [event for event in EVENTS if event.customer == customer and event.kind is Kind.FINE]
    shipping = Shipping()

    shipping.ship([stored(theirs[1]), stored(theirs[0])])

    assert shipping.overtaken == 1


def test_mail_sends_readable_orders() -> None:
    mail = Mail()

    mail.mail(stored(first(Kind.FINE)))

    assert (mail.mailed, mail.failed) == (1, 0)


def test_mail_retries_an_unreadable_order_each_time() -> None:
    mail = Mail()

    for attempt in range(3):
        with pytest.raises(RetryLater):
            mail.mail(stored(first(Kind.BROKEN), attempt))

    assert (mail.mailed, mail.failed) == (0, 3)


def test_mail_fails_at_a_flaky_order_once() -> None:
    flaky = next(event for event in EVENTS if event.kind is Kind.FINE and is_flaky(event.key))
    mail = Mail()

    with pytest.raises(RetryLater, match="the mail server is busy"):
        mail.mail(stored(flaky))
    mail.mail(stored(flaky, reconsume_times=1))

    assert (mail.mailed, mail.failed) == (1, 1)
