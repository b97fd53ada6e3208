"""Fault strategy: which queue gets a message, which brokers are avoided for a while, and which failures are retried.

    latency of a send  ≥  50   100   550   1800   3000    5000   15000 ms
    broker is avoided      0     0     2      5      6      10      30 s        a failed send counts as 10 s

    queue of an available broker, not the last one ──► else of a reachable one, not the last one ──► else the next in turn

Each topic has its own turn, which starts at a random queue, so that producers do not all start at queue 0. Without `BrokerHealth`
(avoiding is off, as RocketMQ's default) only the broker that just failed is skipped. A fast send does not end an avoidance
early: fast and slow sends overlap. Times are monotonic seconds.

                                          awaited send    callback send   one-way, or a chosen queue
    connection lost, timeout              another broker  another broker  no
    too many calls in flight here         another broker  no              no
    response 1 14 16 17 204 205 1500      another broker  no              no
    stored, but not safely (10 11 12)     optional        no              no
    flow control (2, 215)                 optional        optional        no
    anything else                         no              no              no

These rules are RocketMQ's, except for flow control: RocketMQ's 5.x client retries twice at once, which triples the load of an overloaded
broker. PocketMQ raises the error. With `retry_when_busy` it retries after the time that the broker requests, plus a random part so that
producers do not retry at the same time.

A retry uses another queue, of another broker if there is one; a chosen queue has no alternative. One deadline covers all attempts. A
message that found no connection was not sent, which is not an attempt: see `attempts`.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from enum import Enum
from typing import Final

import msgspec

from pocketmq.codes import ResponseCode
from pocketmq.errors import (
    CallTimedOut,
    ConnectionLost,
    PocketMQError,
    RemoteError,
    TooManyCalls,
)
from pocketmq.model import MessageQueue
from pocketmq.model.retries import retry_after_ms

LATENCY_STEPS: Final = (
    (50, 0),
    (100, 0),
    (550, 2_000),
    (1_800, 5_000),
    (3_000, 6_000),
    (5_000, 10_000),
    (15_000, 30_000),
)
"""Latency of a send in ms, and how many ms its broker is avoided."""
FAILURE_LATENCY_MS: Final = 10_000
PROBE_SECONDS: Final = 2.0
"""Interval of probes of an unreachable broker."""

_LATENCIES = [latency_ms for latency_ms, _ in LATENCY_STEPS]


def avoid_ms(latency_ms: float) -> int:
    """How long a broker is avoided after a send with this latency."""
    step = bisect_right(_LATENCIES, latency_ms)
    return LATENCY_STEPS[step - 1][1] if step else 0


class _Health:
    """The health of one broker."""

    __slots__ = ("avoided_until", "is_reachable", "next_probe")

    def __init__(self) -> None:
        self.avoided_until = float("-inf")
        self.is_reachable = True
        self.next_probe = float("-inf")


class BrokerHealth:
    """The availability of brokers by name. An unknown broker is available."""

    def __init__(self) -> None:
        self._brokers: dict[str, _Health] = {}

    def record_success(self, broker: str, latency_ms: float, now: float) -> None:
        """A send got a response of any code."""
        avoid = avoid_ms(latency_ms)
        known = self._brokers.get(broker)
        if known is None and not avoid:
            return
        health = known or self._brokers.setdefault(broker, _Health())
        health.is_reachable = True
        self._avoid(health, avoid, now)

    def record_failure(self, broker: str, now: float, *, is_reachable: bool = True) -> None:
        """A send failed. An unreachable broker is only used when no other is left, until a probe or send succeeds."""
        health = self._brokers.setdefault(broker, _Health())
        health.is_reachable = is_reachable
        self._avoid(health, avoid_ms(FAILURE_LATENCY_MS), now)

    def _avoid(self, health: _Health, avoid: int, now: float) -> None:
        if avoid:
            health.avoided_until = max(health.avoided_until, now + avoid / 1000)

    def is_available(self, broker: str, now: float) -> bool:
        health = self._brokers.get(broker)
        return health is None or now >= health.avoided_until

    def is_reachable(self, broker: str) -> bool:
        health = self._brokers.get(broker)
        return health is None or health.is_reachable

    def due_probes(self, now: float) -> list[str]:
        """Unreachable brokers to probe now; each is due again after `PROBE_SECONDS`."""
        due = [name for name, one in self._brokers.items() if not one.is_reachable and now >= one.next_probe]
        for name in due:
            self._brokers[name].next_probe = now + PROBE_SECONDS
        return due

    def record_reachable(self, broker: str) -> None:
        """A probe succeeded."""
        health = self._brokers.get(broker)
        if health is not None:
            health.is_reachable = True

    def keep_only(self, brokers: Collection[str]) -> None:
        """Delete brokers that are in no route any more."""
        for name in self._brokers.keys() - set(brokers):
            del self._brokers[name]


class QueueChooser:
    """Chooses the queues of each topic in turn. `first` returns the first position of a topic, usually a random one."""

    def __init__(self, first: Callable[[], int], health: BrokerHealth | None = None) -> None:
        self._first = first
        self._health = health
        self._turns: dict[str, int] = {}

    def choose(
        self, topic: str, queues: Sequence[MessageQueue], now: float, last_broker: str | None = None
    ) -> MessageQueue:
        """The queue for one attempt, of a non-empty sequence. The previous attempt failed at `last_broker`."""
        turn = self._turns.get(topic)
        if turn is None:
            turn = self._first()
        at = turn
        if last_broker is not None or self._health is not None:
            at = self._position(queues, turn, now, last_broker)
        self._turns[topic] = at + 1
        return queues[at % len(queues)]

    def reserve_turns(self, topic: str, count: int) -> int:
        """The position of the first of `count` consecutive messages, when no broker is avoided."""
        turn = self._turns.get(topic)
        if turn is None:
            turn = self._first()
        self._turns[topic] = turn + count
        return turn

    def _position(self, queues: Sequence[MessageQueue], turn: int, now: float, last_broker: str | None) -> int:
        health = self._health
        at: int | None = turn
        if health is not None:
            at = _first_fit(queues, turn, last_broker, lambda broker: health.is_available(broker, now))
            if at is None:
                at = _first_fit(queues, turn, last_broker, health.is_reachable)
        elif last_broker is not None:
            at = _first_fit(queues, turn, last_broker, lambda _: True)
        return turn if at is None else at

    def forget(self, topic: str) -> None:
        """Delete the turn of a topic that is not used any more."""
        self._turns.pop(topic, None)


def _first_fit(
    queues: Sequence[MessageQueue], turn: int, last_broker: str | None, fits: Callable[[str], bool]
) -> int | None:
    """The first position from `turn` on whose broker fits and is not `last_broker`."""
    count = len(queues)
    for at in range(turn, turn + count):
        broker = queues[at % count].broker_name
        if broker != last_broker and fits(broker):
            return at
    return None


RETRIED_CODES: Final = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.GO_AWAY,
    }
)
FLOW_CONTROL_CODES: Final = frozenset({ResponseCode.SYSTEM_BUSY, ResponseCode.FLOW_CONTROL})
UNSAFE_CODES: Final = frozenset(
    {ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE, ResponseCode.FLUSH_SLAVE_TIMEOUT}
)
"""The message is stored, but not flushed or replicated as configured: a result with a status, not an error."""

BUSY_WAIT_MS: Final = 100
"""Pause before the first retry when the broker requests no time; it doubles with each retry."""
SPREAD: Final = 0.5
"""The largest random part that is added to a pause."""

_CONNECTION_FAILURES = (ConnectionLost, CallTimedOut)


class SendKind(Enum):
    """How the caller receives the result of a send."""

    AWAITED = "awaited"
    CALLBACK = "callback"
    ONE_WAY = "one way"


class SendRetries(msgspec.Struct, frozen=True, kw_only=True):
    """The retry settings of a producer. `retries` does not count the first attempt."""

    retries: int = 2
    when_not_stored: bool = False
    when_busy: bool = False

    def wait_ms(
        self,
        failure: PocketMQError,
        *,
        attempts: int,
        left_ms: float,
        kind: SendKind = SendKind.AWAITED,
        is_pinned: bool = False,
        chance: float = 0.0,
    ) -> int | None:
        """The pause before the next attempt; None for no retry.

        `attempts` were made so far, `left_ms` is the time until the deadline, `is_pinned` means that the caller chose the queue, and
        `chance` (0 to 1) spreads the retries of several producers.
        """
        if is_pinned or kind is SendKind.ONE_WAY or attempts > self.retries or left_ms <= 0:
            return None
        if isinstance(failure, RemoteError) and failure.response_code in FLOW_CONTROL_CODES:
            wait_ms = _busy_wait_ms(failure, attempts, chance)
            return wait_ms if self.when_busy and wait_ms < left_ms else None
        return 0 if self._is_worth_it(failure, kind) else None

    def _is_worth_it(self, failure: PocketMQError, kind: SendKind) -> bool:
        if isinstance(failure, _CONNECTION_FAILURES):
            return True
        if kind is not SendKind.AWAITED:
            return False
        if isinstance(failure, RemoteError):
            code = failure.response_code
            return code in RETRIED_CODES or (self.when_not_stored and code in UNSAFE_CODES)
        return isinstance(failure, TooManyCalls)


def _busy_wait_ms(refusal: RemoteError, attempts: int, chance: float) -> int:
    requested = retry_after_ms(refusal.remark)
    wait_ms = BUSY_WAIT_MS << max(attempts - 1, 0) if requested is None else requested
    return wait_ms + int(wait_ms * SPREAD * chance)
