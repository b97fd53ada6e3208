"""Bounds of what brokers may tell, so that no broker, and nobody who pretends to be one, fills the memory of a name server."""

from collections.abc import Collection, Iterable
from typing import NamedTuple

import msgspec

from pocketmq.errors import ServerFailed
from pocketmq.model.names import is_group_topic
from pocketmq.nameserver.brokers import Registration
from pocketmq.nameserver.topics import TopicTable


class Admitted(NamedTuple):
    """Topics of a registration that fit; how many do not, and the first reason."""

    topics: set[str]
    rejected: int = 0
    why: str = ""


class RouteLimits(msgspec.Struct, frozen=True):
    """A broker that would pass one of these is refused as a whole. Of its topics those are taken that fit."""

    max_brokers: int = 10_000
    """Addresses, slaves included."""
    max_topics: int = 200_000
    """Should be at least what each broker may make: its `maxTopics` and `maxRetryTopics` together."""
    max_places: int = 1_000_000
    """Topics on broker names: a topic that three of them have counts three times."""
    max_name_chars: int = 255
    """Of clusters, brokers, addresses, zones and topics."""
    max_filter_servers: int = 16
    """Of one broker. Brokers since 4.9.6 have none."""

    def check_broker(self, told: Registration, newcomers: int, brokers: int) -> None:
        """ServerFailed when `newcomers` more than the `brokers` there are would be too many, or this one says too much."""
        for word, text in (("cluster", told.cluster), ("broker", told.broker_name), ("address", told.address)):
            if not text:
                raise _refused(f"it names no {word}")
        names = (told.cluster, told.broker_name, told.address, told.ha_address, told.zone or "")
        if not all(map(str.isprintable, names)):
            raise _refused("one of its names has a control character")
        longest = max(map(len, names))
        if longest > self.max_name_chars:
            raise _refused(f"one of its names has {longest} characters; at most {self.max_name_chars} are allowed")
        if newcomers and brokers + newcomers > self.max_brokers:
            raise _refused(f"{brokers} brokers are registered, the limit of this name server (maxBrokers)")
        if len(told.body.filter_server_list) > self.max_filter_servers:
            raise _refused(f"it has more than {self.max_filter_servers} filter servers")

    def admitted(self, table: TopicTable, topics: Iterable[str], broker_name: str) -> Admitted:
        """Which of `topics` the table can take for a broker: those it has already, then others, retry and DLQ topics last."""
        taken: set[str] = set()
        others = []
        for topic in topics:
            if broker_name in table.queues(topic):
                taken.add(topic)
            else:
                others.append(topic)
        rejected, why = 0, ""
        names, places = len(table), table.places
        for topic in sorted(others, key=is_group_topic):
            is_new = topic not in table
            if not 0 < len(topic) <= self.max_name_chars:
                reason = f"the name of a topic is empty, or has more than {self.max_name_chars} characters"
            elif is_new and names >= self.max_topics:
                reason = f"there are {names} topics, the limit of this name server (maxTopics)"
            elif places >= self.max_places:
                reason = f"topics are at {places} places, the limit of this name server (maxPlaces)"
            else:
                taken.add(topic)
                names, places = names + is_new, places + 1
                continue
            rejected, why = rejected + 1, why or reason
        return Admitted(taken, rejected, why)

    def check_topics(self, table: TopicTable, topics: Collection[str], broker_names: Collection[str]) -> None:
        """ServerFailed when the table cannot take `topics` on `broker_names`."""
        if any(not 0 < len(topic) <= self.max_name_chars for topic in topics):
            raise _refused(f"the name of a topic is empty, or has more than {self.max_name_chars} characters")
        newcomers = sum(topic not in table for topic in topics)
        if newcomers and len(table) + newcomers > self.max_topics:
            raise _refused(
                f"there would be more than {self.max_topics} topics, the limit of this name server (maxTopics)"
            )
        places = sum(name not in table.queues(topic) for topic in topics for name in broker_names)
        if places and table.places + places > self.max_places:
            raise _refused(f"topics would be at more than {self.max_places} places, the limit (maxPlaces)")


def _refused(why: str) -> ServerFailed:
    return ServerFailed(f"registration refused: {why}")
