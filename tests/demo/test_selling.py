"""The till sends the orders of a day, those of each customer in order, and continues after an interruption."""

from collections import defaultdict
from collections.abc import Callable

import pytest

from pocketmq import Admin
from pocketmq.clock import SystemClock
from pocketmq.demo.servers import messages_of
from pocketmq.demo.shop import ORDERS, Day
from pocketmq.demo.staff import Till, _Pace
from pocketmq.model.message import StoredMessage

DAY = Day(seed=5, begin_ms=1_767_225_600_000, orders=2_000)


def till(wait: Callable[[float], bool] = lambda s: False) -> Till:
    return Till(DAY, SystemClock(), wait, open_s=0.0)


def stored(name_servers: str) -> list[StoredMessage]:
    with Admin(name_servers) as admin:
        return messages_of(admin, ORDERS)


def by_customer(name_servers: str) -> dict[str, list[bytes]]:
    found = defaultdict(list)
    for message in stored(name_servers):
        found[message.properties["__SHARDINGKEY"]].append(message.body)
    return found


def expected() -> dict[str, list[bytes]]:
    made = defaultdict(list)
    for event in DAY.events():
        made[event.customer].append(event.body)
    return made


def test_a_day_is_sent_in_the_order_of_each_customer_with_keys_and_tags(shop: str) -> None:
    selling = till()

    selling.send_all(shop)

    assert by_customer(shop) == expected()
    assert {(message.keys[0], message.tags) for message in stored(shop)} == {(e.key, e.tag) for e in DAY.events()}
    assert (selling.sent, selling.found, selling.is_done) == (2_000, 0, True)


@pytest.mark.parametrize("chunks", [1, 37, 200])
def test_an_interrupted_till_continues_without_loss_or_duplicates(shop: str, chunks: int) -> None:
    calls = iter([False] * (chunks - 1))
    cut_off = till(lambda s: next(calls, True))
    cut_off.send_all(shop)
    assert not cut_off.is_done

    second = till()
    second.send_all(shop)

    assert by_customer(shop) == expected()
    assert second.found == cut_off.sent
    assert second.total == DAY.orders
    assert second.tally.events == DAY.orders


def test_a_day_that_was_sent_is_not_sent_again(shop: str) -> None:
    till().send_all(shop)

    second = till()
    second.send_all(shop)

    assert (second.found, second.sent, second.is_done) == (2_000, 0, True)


def test_the_pace_limits_the_rate_of_orders() -> None:
    pace = _Pace(orders=1_000, open_s=20.0)

    assert pace.ahead_s(sent=500, passed_s=4.0) == 6.0
    assert pace.ahead_s(sent=500, passed_s=12.0) == 0.0
