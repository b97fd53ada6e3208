"""Fault strategy: which queue a message goes to, and which brokers are better left alone for a while.

    a send took    ≥  50   100   550   1800   3000    5000   15000 ms
    avoid it for       0     0     2      5      6      10      30 s        a failed send counts as one of 10 s

    queue of an available broker, not the last tried ──► else of a reachable one, not the last tried ──► else the next in turn

Every topic has its own turn, which begins at a place of its own so that many producers do not all begin at queue 0. Without
a table of brokers (avoiding is off, as in RocketMQ by default) only the broker that just failed is passed over.
A quick send does not end an avoidance early: slow and quick sends overlap, and the slow ones are the news.

Told the time, as monotonic seconds.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from typing import Final

from pocketmq.model.queue import MessageQueue

LATENCY_STEPS: Final = (
    (50, 0),
    (100, 0),
    (550, 2_000),
    (1_800, 5_000),
    (3_000, 6_000),
    (5_000, 10_000),
    (15_000, 30_000),
)
"""A send that took at least so many ms makes its broker avoided for so many ms."""
FAILURE_LATENCY_MS: Final = 10_000
PROBE_SECONDS: Final = 2.0
"""An unreachable broker is probed so often."""

_LATENCIES = [latency_ms for latency_ms, _ in LATENCY_STEPS]


def avoid_ms(latency_ms: float) -> int:
    """How long a broker is avoided after a send that took so long."""
    step = bisect_right(_LATENCIES, latency_ms)
    return LATENCY_STEPS[step - 1][1] if step else 0


class _Health:
    """What is known of one broker."""

    __slots__ = ("avoided_until", "is_reachable", "next_probe")

    def __init__(self) -> None:
        self.avoided_until = float("-inf")
        self.is_reachable = True
        self.next_probe = float("-inf")


class BrokerHealth:
    """Which brokers answer, and how fast, by name. One that was never heard of is fine."""

    def __init__(self) -> None:
        self._brokers: dict[str, _Health] = {}

    def note_success(self, broker: str, latency_ms: float, now: float) -> None:
        """It answered a send, whatever it said."""
        avoid = avoid_ms(latency_ms)
        known = self._brokers.get(broker)
        if known is None and not avoid:
            return
        health = known or self._brokers.setdefault(broker, _Health())
        health.is_reachable = True
        self._avoid(health, avoid, now)

    def note_failure(self, broker: str, now: float, *, is_reachable: bool = True) -> None:
        """A send to it failed. `is_reachable` False: until a probe or a send succeeds, it is only used when no other is left."""
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
        """Unreachable brokers to connect to now; each comes up again after `PROBE_SECONDS`."""
        due = [name for name, one in self._brokers.items() if not one.is_reachable and now >= one.next_probe]
        for name in due:
            self._brokers[name].next_probe = now + PROBE_SECONDS
        return due

    def note_reachable(self, broker: str) -> None:
        """A probe got through."""
        health = self._brokers.get(broker)
        if health is not None:
            health.is_reachable = True

    def keep_only(self, brokers: Collection[str]) -> None:
        """Forget brokers that no route names any more."""
        for name in self._brokers.keys() - set(brokers):
            del self._brokers[name]


class QueueChooser:
    """Whose turn it is, by topic. `first` gives each topic the place where its turn begins, a random one in programs."""

    def __init__(self, first: Callable[[], int], health: BrokerHealth | None = None) -> None:
        self._first = first
        self._health = health
        self._turns: dict[str, int] = {}

    def choose(
        self, topic: str, queues: Sequence[MessageQueue], now: float, last_broker: str | None = None
    ) -> MessageQueue:
        """The queue for one attempt; `last_broker` is where the attempt before it failed. There must be a queue."""
        turn = self._turns.get(topic)
        if turn is None:
            turn = self._first()
        at = turn
        if last_broker is not None or self._health is not None:
            at = self._place(queues, turn, now, last_broker)
        self._turns[topic] = at + 1
        return queues[at % len(queues)]

    def take_turns(self, topic: str, count: int) -> int:
        """The place of the first of `count` messages that follow one another, where no broker is to be avoided."""
        turn = self._turns.get(topic)
        if turn is None:
            turn = self._first()
        self._turns[topic] = turn + count
        return turn

    def _place(self, queues: Sequence[MessageQueue], turn: int, now: float, last_broker: str | None) -> int:
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
        """Nobody sends to the topic any more."""
        self._turns.pop(topic, None)


def _first_fit(
    queues: Sequence[MessageQueue], turn: int, last_broker: str | None, fits: Callable[[str], bool]
) -> int | None:
    """The first place from `turn` on whose broker fits and is not the last one tried."""
    count = len(queues)
    for at in range(turn, turn + count):
        broker = queues[at % count].broker_name
        if broker != last_broker and fits(broker):
            return at
    return None
