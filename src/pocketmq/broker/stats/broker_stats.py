"""All statistics of a broker, under RocketMQ's names.

    sent(topic)              topic            TOPIC_PUT_NUMS, TOPIC_PUT_SIZE
    pulled(group, topic)     topic@group      GROUP_GET_NUMS, GROUP_GET_SIZE, GROUP_GET_LATENCY
    sent_back(group, topic)  topic@group      SNDBCK_PUT_NUMS
    the sums of these        cluster          BROKER_PUT_NUMS, BROKER_GET_NUMS, both also …_WITHOUT_SYSTEM_TOPIC

A number is one of the last sample, at most ten seconds old. Unlike in Apache RocketMQ, the last hour and the last day
end at that sample, so they are useful from the first minute on.

Rates and totals of the whole broker: per second over ten seconds, a minute and ten minutes, and per day.

Retention deletes by age and disk usage, as in RocketMQ, whether or not messages were consumed. `UnreadDrops` logs and
counts what groups lost because they were stopped for too long, or because the disk was full.
"""

import logging
from collections import deque
from collections.abc import Callable
from datetime import date
from functools import partial
from typing import Final, NamedTuple

from pocketmq.broker.groups.offsets import OffsetTable
from pocketmq.broker.stats.rows import DAY, HOUR, MINUTE, Growth, Key, Rows, Tally, Timeline, Total
from pocketmq.model import is_system_group, is_system_topic
from pocketmq.model.durations import Durations
from pocketmq.protocol.bodies.topics import BrokerStatsData, BrokerStatsItem
from pocketmq.store.retention import Dropped

log = logging.getLogger("pocketmq.broker")

RATE_SAMPLES: Final = (1, 6, 60)
"""Samples of each rate: ten seconds, a minute, ten minutes."""


class Counts(NamedTuple):
    """Totals of a broker. A transfer is a pulled message; found and missed are pulls."""

    stored: float = 0
    transferred: float = 0
    found: float = 0
    missed: float = 0


class Rates:
    """The counts at the last samples."""

    def __init__(self, now: float) -> None:
        self._samples = deque([(now, Counts())], max(RATE_SAMPLES) + 1)

    def record(self, now: float, counts: Counts) -> None:
        self._samples.append((now, counts))

    def per_second(self) -> tuple[Counts, ...]:
        """Per second over each of `RATE_SAMPLES`, or over all samples if there are fewer. Zero before the first."""
        return tuple(self._over(samples) for samples in RATE_SAMPLES)

    def _over(self, samples: int) -> Counts:
        now, last = self._samples[-1]
        since, first = self._samples[max(-samples - 1, -len(self._samples))]
        seconds = now - since
        if seconds <= 0:
            return Counts(0.0, 0.0, 0.0, 0.0)
        return Counts(*((new - old) / seconds for new, old in zip(last, first, strict=True)))


class MidnightTotals(NamedTuple):
    """A total at the last two midnights."""

    yesterday: int = 0
    today: int = 0

    def after(self, midnights: int, total: int) -> "MidnightTotals":
        """The totals after this many midnights. If there were several, no earlier sample exists: all are the same."""
        return MidnightTotals(self.today if midnights == 1 else total, total)


class DailyTotals:
    """Sent and pulled messages until the last two local midnights. A wall clock that is set back changes nothing."""

    def __init__(self, now_ms: int) -> None:
        self._day = _day(now_ms)
        self.put = MidnightTotals()
        self.got = MidnightTotals()

    def update(self, now_ms: int, put: int, got: int) -> None:
        """Record the totals if a new day has begun."""
        day = _day(now_ms)
        midnights = (day - self._day).days
        if midnights > 0:
            self._day = day
            self.put, self.got = self.put.after(midnights, put), self.got.after(midnights, got)


def _day(now_ms: int) -> date:
    return date.fromtimestamp(now_ms / 1000)


SAMPLE_SECONDS: Final = 10.0
"""Interval for calls of `sample`."""
MAX_ROWS: Final = 20_000
"""Limit on topics with statistics of their own, and on pairs of group and topic."""

_WITHOUT_SYSTEM: Final = "_WITHOUT_SYSTEM_TOPIC"


class _Named(NamedTuple):
    """A statistic: its tables, and its field of the growth."""

    tables: tuple[Rows, ...]
    number: str
    key: Callable[[str], Key]


class BrokerStats:
    """Counters for the handlers, sampled by the broker. Callers pass the monotonic time, and the wall time for days."""

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
        """Durations of writes, per turn."""
        self.get_times = Durations()
        """Durations of reads, per pull."""
        self.missed = 0
        """Pulls that found nothing."""
        self.failed_puts = 0
        """Messages that could not be stored."""

    # counting

    def sent(self, topic: str) -> Tally:
        return (self._sent_inside if self._is_system(topic) else self._sent).get(topic)

    def pulled(self, group: str, topic: str) -> Tally:
        inside = self._is_system(topic) or is_system_group(group)
        return (self._pulled_inside if inside else self._pulled).get(topic, group)

    def sent_back(self, group: str, topic: str) -> Tally:
        """The counter of messages that a group sends back."""
        return self._sent_back.get(topic, group)

    def forget_topic(self, topic: str) -> None:
        """A topic was deleted. Its counters are no longer valid."""
        for rows in (self._sent, self._pulled, self._pulled_inside, self._sent_back):
            rows.forget(0, topic)

    def forget_group(self, group: str) -> None:
        """A group was deleted. Its counters are no longer valid."""
        for rows in (self._pulled, self._pulled_inside, self._sent_back):
            rows.forget(1, group)

    # sampling

    def sample(self, now: float, now_ms: int, stored: int) -> None:
        """Take a sample. `stored` is the number of messages that the store accepted since it was opened."""
        self._timeline.advance(now)
        put, got = self._sent.total(), self._pulled.total()
        self.days.update(now_ms, put.messages, got.messages)
        self._record_broker("BROKER_PUT_NUMS", put, self._sent_inside.total())
        everything = self._record_broker("BROKER_GET_NUMS", got, self._pulled_inside.total())
        self._rates.record(now, Counts(stored, everything.messages, everything.calls, self.missed))
        for rows in (self._sent, self._sent_inside, self._pulled, self._pulled_inside, self._sent_back, self._whole):
            rows.sample()
        if self._timeline.sample % MINUTE.samples == 0:
            self.put_times.turn_over()
            self.get_times.turn_over()

    def _record_broker(self, name: str, outside: Total, inside: Total) -> Total:
        """Record a sum of the broker, without and with its system topics. Return the latter."""
        everything = outside.and_of(inside)
        for whole, total in ((name + _WITHOUT_SYSTEM, outside), (name, everything)):
            tally = self._whole.get(whole, self._cluster)
            tally.count, tally.joined = total.messages, total.messages - total.calls
        return everything

    # queries

    def view(self, name: str, key: str) -> BrokerStatsData | None:
        """A statistic by its name and key (code 315); None if there is none."""
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
        """Rates per second: over the last ten seconds, minute and ten minutes."""
        return self._rates.per_second()

    @property
    def put_total(self) -> int:
        """Messages sent since the start, without system topics."""
        return self._sent.total().messages

    @property
    def get_total(self) -> int:
        """Messages pulled since the start, without system topics and groups."""
        return self._pulled.total().messages

    def sent_rows(self) -> list[tuple[Key, Tally]]:
        return self._sent.tallies() + self._sent_inside.tallies()

    def pulled_rows(self) -> list[tuple[Key, Tally]]:
        return self._pulled.tallies() + self._pulled_inside.tallies()

    def sent_back_rows(self) -> list[tuple[Key, Tally]]:
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
    """The key of a pair. Requests for latencies put a queue id first; here all queues of a topic count together."""
    return tuple(key.split("@")[-2:])


def _item(growth: Growth, number: str) -> BrokerStatsItem:
    added = getattr(growth, number)
    return BrokerStatsItem(
        round(added),
        added / growth.seconds if growth.seconds > 0 else 0.0,
        added / growth.calls if growth.calls else 0.0,
    )


MAX_NAMED: Final = 20
"""Limit on groups and topics in the log message of one deletion; all are counted."""
MAX_QUEUES_NAMED: Final = 8


class Unread(NamedTuple):
    """Messages that a group had not consumed when they were deleted. `group` is empty if no group has an offset."""

    group: str
    topic: str
    queues: tuple[tuple[int, int, int], ...]
    """Queue id, first queue offset, and the end offset."""

    @property
    def messages(self) -> int:
        return sum(end - first for _, first, end in self.queues)

    def __str__(self) -> str:
        ranges = [f"queue {queue_id}: {first} to {end - 1}" for queue_id, first, end in self.queues[:MAX_QUEUES_NAMED]]
        ranges += ["…"] if len(self.queues) > MAX_QUEUES_NAMED else []
        who = f"group {self.group} had not consumed" if self.group else "no group has an offset for"
        return f"{who} {self.messages} messages of topic {self.topic} ({', '.join(ranges)})"


def unread_of(dropped: Dropped, offsets: OffsetTable, is_system: Callable[[str], bool]) -> list[Unread]:
    """Unread messages among those that retention deleted, the largest number first."""
    by_topic: dict[str, list[tuple[int, int, int]]] = {}
    for (topic, queue_id), (first, end) in sorted(dropped.ranges.items()):
        if not is_system(topic):
            by_topic.setdefault(topic, []).append((queue_id, first, end))
    found = []
    consumed = offsets.by_topic(by_topic)
    for topic, ranges in by_topic.items():
        for group, stored in consumed.get(topic, {"": {}}).items():
            rests = ((queue_id, max(first, stored.get(queue_id, first)), end) for queue_id, first, end in ranges)
            queues = tuple((queue_id, first, end) for queue_id, first, end in rests if first < end)
            if queues:
                found.append(Unread(group, topic, queues))
    return sorted(found, key=lambda one: -one.messages)


class UnreadDrops:
    """Logs each deletion of unread messages, and counts them."""

    def __init__(self, offsets: OffsetTable, is_system: Callable[[str], bool]) -> None:
        self._offsets = offsets
        self._is_system = is_system
        self.messages = 0
        """Deleted unread messages, counted once for each group."""

    def record(self, dropped: Dropped) -> None:
        unread = unread_of(dropped, self._offsets, self._is_system)
        if not unread:
            return
        self.messages += sum(one.messages for one in unread)
        more = [f"and {len(unread) - MAX_NAMED} more"] if len(unread) > MAX_NAMED else []
        log.warning(
            "Retention deleted unread messages with log offsets %d to %d (%s): %s",
            dropped.first_offset,
            dropped.end_offset,
            dropped.why,
            "; ".join([*map(str, unread[:MAX_NAMED]), *more]),
        )
