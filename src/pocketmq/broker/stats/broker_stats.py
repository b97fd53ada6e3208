"""All statistics of a broker, under the names that RocketMQ gives them.

    sent(topic)              topic            TOPIC_PUT_NUMS, TOPIC_PUT_SIZE
    pulled(group, topic)     topic@group      GROUP_GET_NUMS, GROUP_GET_SIZE, GROUP_GET_LATENCY
    sent_back(group, topic)  topic@group      SNDBCK_PUT_NUMS
    the sums of these        cluster          BROKER_PUT_NUMS, BROKER_GET_NUMS, both also …_WITHOUT_SYSTEM_TOPIC

A number that is asked for is one of the last sample, at most ten seconds old. Unlike in Apache the last hour and the last day
reach up to it, so that they tell something from the first minute on.

Rates and totals of the whole broker: per second over ten seconds, a minute and ten minutes, and day by day.
"""

from collections import deque
from collections.abc import Callable
from datetime import date
from functools import partial
from typing import Final, NamedTuple

from pocketmq.broker.stats.rows import DAY, HOUR, MINUTE, Growth, Key, Rows, Tally, Timeline, Total
from pocketmq.model.durations import Durations
from pocketmq.model.names import is_system_group, is_system_topic
from pocketmq.protocol.bodies.stats import BrokerStatsData, BrokerStatsItem

RATE_SAMPLES: Final = (1, 6, 60)
"""Over how many samples a rate is told: ten seconds, a minute, ten minutes."""


class Counts(NamedTuple):
    """What a broker did. A transfer is a message that was pulled; found and missed are pulls."""

    stored: float = 0
    transferred: float = 0
    found: float = 0
    missed: float = 0


class Rates:
    """The counts at the last samples."""

    def __init__(self, now: float) -> None:
        self._samples = deque([(now, Counts())], max(RATE_SAMPLES) + 1)

    def note(self, now: float, counts: Counts) -> None:
        self._samples.append((now, counts))

    def per_second(self) -> tuple[Counts, ...]:
        """Per second over each of `RATE_SAMPLES`, or over as many samples as there are. Zero before the first."""
        return tuple(self._over(samples) for samples in RATE_SAMPLES)

    def _over(self, samples: int) -> Counts:
        now, last = self._samples[-1]
        since, first = self._samples[max(-samples - 1, -len(self._samples))]
        seconds = now - since
        if seconds <= 0:
            return Counts(0.0, 0.0, 0.0, 0.0)
        return Counts(*((new - old) / seconds for new, old in zip(last, first, strict=True)))


class Mornings(NamedTuple):
    """A total as it was at the last two midnights."""

    yesterday: int = 0
    today: int = 0

    def after(self, midnights: int, total: int) -> "Mornings":
        """As it is after so many midnights. When there were several, nobody looked at the earlier ones: all are the same."""
        return Mornings(self.today if midnights == 1 else total, total)


class DailyTotals:
    """What was put and got until the last two local midnights. A wall clock that is set back changes nothing."""

    def __init__(self, now_ms: int) -> None:
        self._day = _day(now_ms)
        self.put = Mornings()
        self.got = Mornings()

    def look(self, now_ms: int, put: int, got: int) -> None:
        """Note the totals if a new day has begun."""
        day = _day(now_ms)
        midnights = (day - self._day).days
        if midnights > 0:
            self._day = day
            self.put, self.got = self.put.after(midnights, put), self.got.after(midnights, got)


def _day(now_ms: int) -> date:
    return date.fromtimestamp(now_ms / 1000)


SAMPLE_SECONDS: Final = 10.0
"""How often `sample` is to be called."""
MAX_ROWS: Final = 20_000
"""Topics that have statistics of their own; as many pairs of group and topic."""

_WITHOUT_SYSTEM: Final = "_WITHOUT_SYSTEM_TOPIC"


class _Named(NamedTuple):
    """Where a statistic is found: in which tables, and which number of the growth it is."""

    tables: tuple[Rows, ...]
    number: str
    key: Callable[[str], Key]


class BrokerStats:
    """Given out as tallies, sampled by the broker. Told the monotonic time, and the wall time for the days."""

    def __init__(
        self,
        cluster: str,
        now: float,
        now_ms: int,
        *,
        is_system: Callable[[str], bool] = is_system_topic,
        max_rows: int = MAX_ROWS,
    ) -> None:
        self._is_system = is_system
        self._timeline = timeline = Timeline(now)
        self._sent = Rows("topics", max_rows, timeline)
        self._sent_inside = Rows("system topics", max_rows, timeline)
        self._pulled = Rows("groups in topics", max_rows, timeline)
        self._pulled_inside = Rows("groups in system topics", max_rows, timeline)
        self._sent_back = Rows("messages sent back", max_rows, timeline)
        self._whole = Rows("broker", 4, timeline)
        self._cluster = cluster
        self._names = self._all_names()
        self._rates = Rates(now)
        self.days = DailyTotals(now_ms)
        self.put_times = Durations()
        """How long storing took, turn by turn."""
        self.get_times = Durations()
        """How long reading took, pull by pull."""
        self.missed = 0
        """Pulls that found nothing."""
        self.failed_puts = 0
        """Messages that could not be stored."""

    # counting

    def sent(self, topic: str) -> Tally:
        """What is sent to a topic."""
        return (self._sent_inside if self._is_system(topic) else self._sent).get(topic)

    def pulled(self, group: str, topic: str) -> Tally:
        """What a group pulls from a topic."""
        inside = self._is_system(topic) or is_system_group(group)
        return (self._pulled_inside if inside else self._pulled).get(topic, group)

    def sent_back(self, group: str, topic: str) -> Tally:
        """What a group could not consume and sends back."""
        return self._sent_back.get(topic, group)

    def forget_topic(self, topic: str) -> None:
        """A topic was deleted. Whoever has a tally of it at hand has to ask for another."""
        for rows in (self._sent, self._pulled, self._pulled_inside, self._sent_back):
            rows.forget(0, topic)

    def forget_group(self, group: str) -> None:
        """A group was deleted. Whoever has a tally of it at hand has to ask for another."""
        for rows in (self._pulled, self._pulled_inside, self._sent_back):
            rows.forget(1, group)

    # sampling

    def sample(self, now: float, now_ms: int, stored: int) -> None:
        """Look at everything. `stored` is how many messages the store took since it was opened, whoever they came from."""
        self._timeline.advance(now)
        put, got = self._sent.total(), self._pulled.total()
        self.days.look(now_ms, put.messages, got.messages)
        self._note_whole("BROKER_PUT_NUMS", put, self._sent_inside.total())
        everything = self._note_whole("BROKER_GET_NUMS", got, self._pulled_inside.total())
        self._rates.note(now, Counts(stored, everything.messages, everything.calls, self.missed))
        for rows in (self._sent, self._sent_inside, self._pulled, self._pulled_inside, self._sent_back, self._whole):
            rows.sample()
        if self._timeline.sample % MINUTE.samples == 0:
            self.put_times.turn_over()
            self.get_times.turn_over()

    def _note_whole(self, name: str, outside: Total, inside: Total) -> Total:
        """Keep a sum of the broker, without and with what happens in topics of its own; the latter."""
        everything = outside.and_of(inside)
        for whole, total in ((name + _WITHOUT_SYSTEM, outside), (name, everything)):
            tally = self._whole.get(whole, self._cluster)
            tally.count, tally.joined = total.messages, total.messages - total.calls
        return everything

    # telling

    def view(self, name: str, key: str) -> BrokerStatsData | None:
        """A statistic by its name and key (code 315); None when there is no such one."""
        named = self._names.get(name)
        if named is None:
            return None
        row_key = named.key(key)
        rows = next((rows for rows in named.tables if row_key in rows), None)
        if rows is None:
            return None
        growths = (rows.growth(row_key, span) for span in (MINUTE, HOUR, DAY))
        return BrokerStatsData(*(_item(growth, named.number) for growth in growths if growth is not None))

    def put_tps(self, topic: str) -> float:
        """Messages sent to a topic per second, over the last minute."""
        return self._tps("TOPIC_PUT_NUMS", topic)

    def get_tps(self, group: str, topic: str) -> float:
        """Messages pulled from a topic by a group per second, over the last minute."""
        return self._tps("GROUP_GET_NUMS", f"{topic}@{group}")

    def _tps(self, name: str, key: str) -> float:
        found = self.view(name, key)
        return found.stats_minute.tps if found else 0.0

    def rates(self) -> tuple[Counts, ...]:
        """What happens per second: over the last ten seconds, the last minute, the last ten minutes."""
        return self._rates.per_second()

    @property
    def put_total(self) -> int:
        """Messages sent since the start, without those in topics of the broker itself."""
        return self._sent.total().messages

    @property
    def get_total(self) -> int:
        """Messages pulled since the start, without topics and groups of the broker itself."""
        return self._pulled.total().messages

    def sent_rows(self) -> list[tuple[Key, Tally]]:
        """What was sent, by topic."""
        return self._sent.tallies() + self._sent_inside.tallies()

    def pulled_rows(self) -> list[tuple[Key, Tally]]:
        """What was pulled, by topic and group."""
        return self._pulled.tallies() + self._pulled_inside.tallies()

    def sent_back_rows(self) -> list[tuple[Key, Tally]]:
        """What came back, by topic and group."""
        return self._sent_back.tallies()

    def _all_names(self) -> dict[str, _Named]:
        sent, pulled = (self._sent, self._sent_inside), (self._pulled, self._pulled_inside)
        names = {
            "TOPIC_PUT_NUMS": _Named(sent, "messages", _topic),
            "TOPIC_PUT_SIZE": _Named(sent, "size", _topic),
            "GROUP_GET_NUMS": _Named(pulled, "messages", _topic_and_group),
            "GROUP_GET_SIZE": _Named(pulled, "size", _topic_and_group),
            "GROUP_GET_LATENCY": _Named(pulled, "ms", _topic_and_group),
            "SNDBCK_PUT_NUMS": _Named((self._sent_back,), "messages", _topic_and_group),
        }
        for name in ("BROKER_PUT_NUMS", "BROKER_GET_NUMS"):
            for whole in (name, name + _WITHOUT_SYSTEM):
                names[whole] = _Named((self._whole,), "messages", partial(_whole, whole))
        return names


def _whole(name: str, cluster: str) -> Key:
    return name, cluster


def _topic(key: str) -> Key:
    return (key,)


def _topic_and_group(key: str) -> Key:
    """The key of a pair. Latencies are asked for with a queue id before it; here all queues of a topic count together."""
    return tuple(key.split("@")[-2:])


def _item(growth: Growth, number: str) -> BrokerStatsItem:
    added = getattr(growth, number)
    return BrokerStatsItem(
        round(added),
        added / growth.seconds if growth.seconds > 0 else 0.0,
        added / growth.calls if growth.calls else 0.0,
    )
