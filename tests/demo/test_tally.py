"""The expected counts of a day."""

from pocketmq.demo.shop import Event, Kind, Tally


def event(number: int, kind: Kind, tag: str = "standard") -> Event:
    return Event(number, kind, f"order-{number:08}", "customer-1", tag, b"{}", 100)


def test_each_event_is_counted_as_valid_dead_or_duplicate() -> None:
    tally = Tally()
    for number, kind in enumerate([Kind.FINE, Kind.LATE, Kind.AGAIN, Kind.BROKEN, Kind.FINE]):
        tally.add(event(number, kind))

    assert (tally.events, tally.valid, tally.broken, tally.again) == (5, 3, 1, 1)
    assert (tally.late, tally.punctual) == (1, 2)


def test_sums_are_those_of_valid_orders() -> None:
    tally = Tally()
    for number, kind in enumerate([Kind.FINE, Kind.LATE, Kind.AGAIN, Kind.BROKEN]):
        tally.add(event(number, kind))

    assert (tally.amount_cents, tally.punctual_cents, tally.numbers) == (200, 100, 1)


def test_only_express_orders_are_for_the_mail() -> None:
    tally = Tally()
    tally.add(event(1, Kind.BROKEN))
    tally.add(event(2, Kind.BROKEN, tag="express"))

    assert tally.express_broken == 1
