"""When a task may look for what an earlier attempt wrote: not before brokers let it be read.

    sent ─── on its way ───► in the broker's log ─── entered ───► in its queue: found
             IN_FLIGHT_S      asked for: where the log ends       until that is entered

A broker acknowledges a message that is in its log. The queue comes later: some milliseconds with Apache, more the more it has to do, and
PocketMQ's transient pool waits for the disk. So a task asks each broker of its topic where its log ends, and waits until the
queues are there. It does so

    in a later attempt       always: Spark starts it at once when the one before has failed
    in a first attempt       once in each process for each launch of the query or write: it may be the rest of one that was killed,
                             and what that wrote was in the log before the launch. The question costs Apache 5 some 20 ms of CPU

What is found then: every message that was in the log when it was asked. What no question can tell of: a request that the broker has
yet to take, from a process that was killed a moment ago. Later attempts therefore wait a fixed time first. Apache refuses what
has waited for 200 ms in its own line of requests (`waitTimeMillsInSendQueue`), shows what its transient pool took within 200 ms, and
with SYNC_FLUSH does not count as behind what it has yet to flush: all that is over by then. A network that was cut and brings a request
later still is not waited for; there, a row may be there twice.
"""

import time
from collections.abc import Callable, Collection, Mapping
from typing import Final, Protocol
from weakref import WeakKeyDictionary

from pocketmq.clock import Clock, SystemClock
from pocketmq.errors import SystemBusy
from pocketmq.spark.broker_facts import LogState

IN_FLIGHT_S: Final = 0.5
"""What the requests of an attempt that was killed are given to arrive. All there is where a broker does not tell how far it is."""
ENTERING_TIMEOUT_S: Final = 120.0
"""How long a broker may need to enter what it has; then the task fails, as it could write rows twice."""
LOOK_S: Final = 0.05
"""Between two questions."""
MAX_LAUNCHES: Final = 1_000
"""How many launches, times brokers, a process remembers; for those before it would ask again."""


class Logs(Protocol):
    """Who can be asked; see `metadata.ClientMetadata`."""

    def log_states(self, brokers: Collection[str]) -> dict[str, LogState]:
        """How far they are; those that do not tell are left out."""


class Settling:
    """What a process knows of the brokers of one cluster; see `settling_of`."""

    def __init__(self, clock: Clock, sleep: Callable[[float], None] = time.sleep) -> None:
        self._clock = clock
        self._sleep = sleep
        self._asked: dict[tuple[str, str], None] = {}

    def wait(self, logs: Logs, brokers: Collection[str], launch: str | None) -> None:
        """Return when all can be read that these brokers have in their logs now, or had when they were asked in this launch.

        SystemBusy when that takes too long. Brokers that do not tell are not waited for.
        """
        asked = [broker for broker in sorted(brokers) if launch is None or (launch, broker) not in self._asked]
        if not asked:
            return
        deadline = self._clock.monotonic() + ENTERING_TIMEOUT_S
        self._wait_for(logs, logs.log_states(asked), deadline)
        if launch is not None:
            self._asked.update(((launch, broker), None) for broker in asked)
            for oldest in list(self._asked)[:-MAX_LAUNCHES]:
                del self._asked[oldest]

    def _wait_for(self, logs: Logs, states: Mapping[str, LogState], deadline: float) -> None:
        """What comes meanwhile is not waited for: on a busy broker that would never end."""
        ends = {broker: state.end for broker, state in states.items()}
        while behind := {
            broker: lacking for broker, state in states.items() if (lacking := _lacking(ends[broker], state))
        }:
            if self._clock.monotonic() >= deadline:
                broker, lacking = max(behind.items(), key=lambda each: each[1])
                raise SystemBusy(
                    f"the broker {broker} has {lacking} bytes in its log that are in no queue after {ENTERING_TIMEOUT_S:.0f} s "
                    "(dispatchBehindBytes), and rows of an earlier attempt may be among them: find out what slows it down, "
                    "or set deliveryGuarantee = at-least-once"
                )
            self._sleep(LOOK_S)
            states = logs.log_states(behind)


_BY_CLIENT: Final[WeakKeyDictionary[object, Settling]] = WeakKeyDictionary()


def settling_of(client: object) -> Settling:
    """What this process knows by a client that asks, for as long as the client is kept: another one may find other brokers of the same names."""
    known = _BY_CLIENT.get(client)
    if known is None:
        known = _BY_CLIENT[client] = Settling(SystemClock())
    return known


def _lacking(end: int, state: LogState) -> int:
    """Bytes up to `end` that are not entered. A log that ends before that now is the one of another master."""
    return max(0, min(end, state.end) - state.entered)
