"""Looking for an answer before sleeping: whether that is worth it.

    request ──► look, look, look … ── it is there ──► look again with the next request
                   └─ 200 us are over ──► sleep, and also with the next 1, 2, 4 … 1024 requests

To wake a thread on an idle core takes longer than a broker on the same machine takes to answer. Where answers are far, or no core is free
to make them, looking is work for nothing, so each time that it fails the next try is put off for twice as long.
"""

import os
import select
from typing import Final

from pocketmq.clock import Clock

LOOK_S: Final = 0.000_2
"""The longest look. Answers that take longer gain little from it."""
MOST_PUT_OFF: Final = 1024
"""Waits without a look after many looks for nothing; then it is tried again."""


def can_watch() -> bool:
    """Whether there is a second core that could make an answer while this one looks for it."""
    allowed = getattr(os, "sched_getaffinity", None)
    cores = (os.cpu_count() or 1) if allowed is None else len(allowed(0))
    return cores > 1 and hasattr(select, "poll")


class Watch:
    """The looks of one thread at a time at one socket, which is open for as long."""

    def __init__(self, descriptor: int, clock: Clock) -> None:
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)
        self._clock = clock
        self._missed = 0
        self._put_off = 0

    def look(self) -> None:
        """Return when something can be read, or when it is time to sleep. Other threads may run meanwhile."""
        if self._put_off:
            self._put_off -= 1
            return
        poll, monotonic = self._poll.poll, self._clock.monotonic
        end = monotonic() + LOOK_S
        while not poll(0):
            if monotonic() >= end:
                self._put_off = min(2**self._missed, MOST_PUT_OFF)
                self._missed += 1
                return
        self._missed = 0
