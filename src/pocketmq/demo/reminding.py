"""The calendar: reminders that come some seconds later.

A reminder that is not due yet waits in a topic of the broker's own, where it stays after it was delivered. So a run that goes on after
another sends only what is not there yet.
"""

from typing import Final

from pocketmq.client import Admin, Producer
from pocketmq.clock import Clock
from pocketmq.demo.deeds import Reminder
from pocketmq.demo.names import CALENDAR, REMINDERS
from pocketmq.demo.selling import Wait
from pocketmq.demo.topics import keys_of
from pocketmq.model.names import TIMER_TOPIC

DUE: Final = "dueMs"
"""The property that says when a reminder was to come."""


class Calendar:
    """Sends reminders for later."""

    def __init__(self, reminders: list[Reminder], clock: Clock, wait: Wait) -> None:
        self.sent = 0
        self.is_done = False
        self._reminders = reminders
        self._clock = clock
        self._wait = wait

    def remind_all(self, name_servers: str) -> None:
        with Admin(name_servers) as admin, Producer(name_servers, group=CALENDAR) as producer:
            there = keys_of(admin, TIMER_TOPIC)
            for key, delay_ms in self._reminders:
                if key not in there:
                    due_ms = self._clock.now_ms() + delay_ms
                    producer.send(
                        REMINDERS, b"your order waits", keys=key, deliver_at_ms=due_ms, properties={DUE: str(due_ms)}
                    )
                self.sent += 1
                if self._wait(0):
                    return
        self.is_done = True
