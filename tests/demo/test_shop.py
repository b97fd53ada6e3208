"""The day of the shop: the same for the same seed, with the documented irregularities."""

from datetime import datetime
from itertools import islice, pairwise

import msgspec
import pytest

from pocketmq.demo.shop import BLOCK, BUSY, LATE_AFTER_MS, RECENT, Day, Event, Kind, yesterday_ms
from pocketmq.demo.staff import Order

DAY = Day(seed=1, begin_ms=1_767_225_600_000, orders=4_000)
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def events() -> list[Event]:
    return list(DAY.events())


def test_a_day_has_the_requested_number_of_events(events: list[Event]) -> None:
    assert [event.number for event in events] == list(range(4_000))


def test_the_same_seed_gives_the_same_day(events: list[Event]) -> None:
    assert list(DAY.events()) == events


def test_another_seed_gives_another_day(events: list[Event]) -> None:
    assert list(DAY._replace(seed=2).events()) != events


def test_all_kinds_of_events_occur_and_most_are_valid(events: list[Event]) -> None:
    kinds = [event.kind for event in events]

    assert set(kinds) == set(Kind)
    assert kinds.count(Kind.FINE) > 0.9 * len(kinds)


def test_a_retry_is_one_of_the_last_orders_byte_by_byte(events: list[Event]) -> None:
    for again in (event for event in events if event.kind is Kind.AGAIN):
        before = events[max(0, again.number - 2 * RECENT) : again.number]
        first = [event for event in before if event.key == again.key and event.kind in (Kind.FINE, Kind.LATE)]

        assert [(event.body, event.tag, event.customer) for event in first] == [(again.body, again.tag, again.customer)]


def test_broken_orders_cannot_be_parsed_and_all_others_can(events: list[Event]) -> None:
    for event in events:
        if event.kind is Kind.BROKEN:
            with pytest.raises(msgspec.DecodeError):
                msgspec.json.decode(event.body, type=Order)
        else:
            assert msgspec.json.decode(event.body, type=Order).order_id == event.key


def test_an_order_is_late_if_it_arrived_hours_after_it_was_placed(events: list[Event]) -> None:
    for event in (event for event in events if event.kind in (Kind.FINE, Kind.LATE)):
        told = msgspec.json.decode(event.body)
        placed, received = (msgspec.convert(told[name], type=datetime) for name in ("placed_at", "received_at"))

        is_late = (received - placed).total_seconds() * 1000 > LATE_AFTER_MS

        assert is_late == (event.kind is Kind.LATE)


def test_event_times_increase_and_busy_hours_have_more_events() -> None:
    moments = [DAY.moment_ms(number) for number in range(DAY.orders)]
    by_hour = [sum(1 for ms in moments if (ms - DAY.begin_ms) // HOUR_MS == hour) for hour in range(24)]

    assert all(one <= next_one for one, next_one in pairwise(moments))
    assert DAY.begin_ms <= moments[0] <= moments[-1] < DAY.begin_ms + 24 * HOUR_MS
    assert by_hour.index(max(by_hour)) == BUSY.index(max(BUSY))


def test_the_events_of_a_block_do_not_depend_on_earlier_blocks() -> None:
    longer = Day(DAY.seed, DAY.begin_ms, 2 * BLOCK)

    kinds = [event.kind for event in islice(longer.events(), BLOCK, None)]

    assert kinds == [event.kind for event in islice(DAY.events(), BLOCK, 2 * BLOCK)]


def test_yesterday_starts_at_midnight() -> None:
    assert yesterday_ms(1_767_225_600_000 + 5) == 1_767_225_600_000 - 86_400_000
