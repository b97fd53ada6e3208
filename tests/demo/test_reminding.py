"""The calendar: reminders are delivered when they are due, once each, also after a crash."""

import threading
from collections.abc import Callable
from time import monotonic

from pocketmq import Admin
from pocketmq.clock import SystemClock
from pocketmq.demo.servers import messages_of
from pocketmq.demo.shop import REMINDERS, Reminder
from pocketmq.demo.staff import DUE, Calendar
from pocketmq.model.message import StoredMessage

MADE = [Reminder(f"r{number}", 300 + 100 * number) for number in range(5)]
DEADLINE_S = 60


def calendar(wait: Callable[[float], bool]) -> Calendar:
    return Calendar(MADE, SystemClock(), wait)


def arrived(name_servers: str, count: int) -> list[StoredMessage]:
    """The stored ones, when there are this many."""
    deadline = monotonic() + DEADLINE_S
    with Admin(name_servers) as admin:
        while len(found := messages_of(admin, REMINDERS)) < count:
            assert monotonic() < deadline, f"{len(found)} reminders came"
            threading.Event().wait(0.05)
    return found


def test_reminders_arrive_when_they_are_due(shop: str) -> None:
    calendar(threading.Event().wait).remind_all(shop)

    found = arrived(shop, len(MADE))

    assert sorted(message.keys[0] for message in found) == [reminder.key for reminder in MADE]
    assert all(message.store_ms >= int(message.properties[DUE]) for message in found)


def test_a_restarted_calendar_does_not_remind_twice(shop: str) -> None:
    looks = iter([False, False])
    dead = calendar(lambda s: next(looks, True))
    dead.remind_all(shop)
    assert not dead.is_done

    calendar(threading.Event().wait).remind_all(shop)
    calendar(threading.Event().wait).remind_all(shop)

    found = arrived(shop, len(MADE))
    assert sorted(message.keys[0] for message in found) == [reminder.key for reminder in MADE]
