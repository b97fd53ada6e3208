"""Brokers: clusters, the names in them, the addresses behind each name, and when each was heard. Pure.

    cluster ──► broker names          broker name ──► id ──► member       id 0 is the master, others are its slaves
    (cluster, address) ──► member          line ──► members that registered by it last

Every member is in all four tables or in none: one address is one broker. Times are seconds of a clock that only grows.

Topics: which broker names have each of them, with how many queues and which permission. Pure.

    topic ──► broker name ──► QueueData           a "place": one topic on one broker name
        └───► broker name ──► QueueMappingInfo    static topics only, and only where there is a place

A topic without a place is no topic: it goes with its last one.

Bounds of what brokers may tell, so that no broker, and nobody who pretends to be one, fills the memory of a name server.
"""

from collections.abc import Callable, Collection, Hashable, Iterable
from typing import Final, NamedTuple

import msgspec

from pocketmq.errors import ServerFailed
from pocketmq.model.names import is_group_topic
from pocketmq.protocol.bodies.body import DataVersion
from pocketmq.protocol.bodies.routes import BrokerData, BrokerMembers, ClusterInfo, QueueData, RegisterBrokerBody
from pocketmq.protocol.bodies.topics import QueueMappingInfo

MASTER_ID: Final = 0


class Registration(NamedTuple):
    """What a broker says about itself. `line` stands for the connection it came by; losing it removes the broker."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    ha_address: str
    body: RegisterBrokerBody
    connection: Hashable = None
    timeout_s: float | None = None
    """How long it may be silent; None: as long as the name server allows everybody."""
    acting_master: bool | None = None
    """May a slave act for a lost master? None: a broker before 5.0, which does not know the question."""
    zone: str | None = None

    @property
    def version(self) -> DataVersion:
        return self.body.topics.data_version


class Member:
    """One address behind a broker name."""

    __slots__ = (
        "address",
        "broker_id",
        "broker_name",
        "cluster",
        "connection",
        "filter_servers",
        "ha_address",
        "heard_at",
        "timeout_s",
        "version",
    )

    def __init__(self, told: Registration, timeout_s: float, now: float) -> None:
        self.cluster = told.cluster
        self.broker_name = told.broker_name
        self.broker_id = told.broker_id
        self.address = told.address
        self.ha_address = told.ha_address
        self.connection = told.connection
        self.version = told.version
        self.filter_servers = told.body.filter_server_list
        self.timeout_s = timeout_s if told.timeout_s is None else told.timeout_s
        self.heard_at = now

    def __str__(self) -> str:
        return f"broker {self.broker_name} {self.broker_id} at {self.address} of {self.cluster}"


class Broker:
    """A broker name. It belongs to the cluster that it was first registered in."""

    __slots__ = ("acting_master", "cluster", "members", "name", "zone")

    def __init__(self, name: str, cluster: str) -> None:
        self.name = name
        self.cluster = cluster
        self.members: dict[int, Member] = {}
        self.acting_master = False
        self.zone: str | None = None

    @property
    def addresses(self) -> dict[int, str]:
        return {number: member.address for number, member in self.members.items()}

    @property
    def data(self) -> BrokerData:
        return BrokerData(self.cluster, self.name, self.addresses, self.acting_master, self.zone)


class BrokerTable:
    """All brokers, by name, cluster, address and line."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._brokers: dict[str, Broker] = {}
        self._clusters: dict[str, dict[str, None]] = {}
        self._members: dict[tuple[str, str], Member] = {}
        self._by_connection: dict[Hashable, dict[Member, None]] = {}

    def __len__(self) -> int:
        """How many addresses there are."""
        return len(self._members)

    def named(self, name: str) -> Broker | None:
        return self._brokers.get(name)

    def at(self, cluster: str, address: str) -> Member | None:
        return self._members.get((cluster, address))

    def of_connection(self, connection: Hashable) -> list[Member]:
        return list(self._by_connection.get(connection, ()))

    def overdue(self, now: float) -> list[Member]:
        """Those that were not heard within their time."""
        return [member for member in self._members.values() if member.heard_at + member.timeout_s < now]

    def enter(self, told: Registration, now: float) -> Member:
        """Put a member in its place; out goes who had its id before, and what its address was under this name before."""
        broker = self._brokers.setdefault(told.broker_name, Broker(told.broker_name, told.cluster))
        broker.acting_master = bool(told.acting_master)
        broker.zone = told.zone
        self._clusters.setdefault(told.cluster, {})[told.broker_name] = None
        for old in list(broker.members.values()):
            if old.broker_id == told.broker_id or old.address == told.address:
                self._unlink(old)
        member = Member(told, self._timeout_s, now)
        broker.members[member.broker_id] = member
        self._members[member.cluster, member.address] = member
        self._by_connection.setdefault(member.connection, {})[member] = None
        return member

    def remove(self, member: Member) -> Broker | None:
        """Take a member out. Its broker name while others are behind it; None when the name is gone with it."""
        self._unlink(member)
        name = member.broker_name
        if self._brokers[name].members:
            return self._brokers[name]
        del self._brokers[name]
        for cluster in [cluster for cluster, names in self._clusters.items() if name in names]:
            del self._clusters[cluster][name]
            if not self._clusters[cluster]:
                del self._clusters[cluster]
        return None

    def names_of(self, cluster: str) -> tuple[str, ...]:
        """The broker names of a cluster."""
        return tuple(self._clusters.get(cluster, ()))

    def info(self) -> ClusterInfo:
        return ClusterInfo(
            {name: broker.data for name, broker in self._brokers.items()},
            {cluster: tuple(names) for cluster, names in self._clusters.items()},
        )

    def members(self, cluster: str, name: str) -> BrokerMembers:
        """The addresses behind a broker name, none when it is unknown."""
        broker = self._brokers.get(name)
        return BrokerMembers(cluster, name, broker.addresses if broker else {})

    def first_address(self) -> str | None:
        return next((member.address for member in self._members.values()), None)

    def _unlink(self, member: Member) -> None:
        """Out of all tables but those of names."""
        del self._brokers[member.broker_name].members[member.broker_id]
        del self._members[member.cluster, member.address]
        connection = self._by_connection[member.connection]
        del connection[member]
        if not connection:
            del self._by_connection[member.connection]


class TopicTable:
    """All topics. `places` counts every topic on every broker name."""

    def __init__(self) -> None:
        self._queues: dict[str, dict[str, QueueData]] = {}
        self._mappings: dict[str, dict[str, QueueMappingInfo]] = {}
        self.places = 0

    def __len__(self) -> int:
        return len(self._queues)

    def __contains__(self, topic: str) -> bool:
        return topic in self._queues

    def names(self) -> tuple[str, ...]:
        return tuple(self._queues)

    def queues(self, topic: str) -> dict[str, QueueData]:
        """Broker name → queues; empty for a topic that nobody has. Not to be changed."""
        return self._queues.get(topic, {})

    def mappings(self, topic: str) -> dict[str, QueueMappingInfo] | None:
        """Broker name → queue mapping of a static topic; None for any other."""
        return self._mappings.get(topic)

    def put(self, topic: str, queues: QueueData) -> None:
        places = self._queues.setdefault(topic, {})
        self.places += queues.broker_name not in places
        places[queues.broker_name] = queues

    def put_mapping(self, topic: str, broker_name: str, mapping: QueueMappingInfo) -> None:
        """Without a place the mapping is forgotten at once: nothing would ever remove it."""
        if broker_name in self.queues(topic):
            self._mappings.setdefault(topic, {})[broker_name] = mapping

    def remove(self, topic: str, broker_names: Iterable[str]) -> None:
        """Take a topic from some broker names."""
        places = self._queues.get(topic, {})
        mappings = self._mappings.get(topic, {})
        for name in broker_names:
            self.places -= places.pop(name, None) is not None
            mappings.pop(name, None)
        if not places:
            self._queues.pop(topic, None)
        if not mappings:
            self._mappings.pop(topic, None)

    def delete(self, topic: str) -> None:
        """Take a topic from everybody."""
        self.remove(topic, list(self.queues(topic)))

    def remove_broker(self, broker_name: str) -> None:
        """Take all topics from a broker name."""
        for topic in self.of_broker(broker_name):
            self.remove(topic, (broker_name,))

    def of_broker(self, broker_name: str) -> list[str]:
        return [topic for topic, places in self._queues.items() if broker_name in places]

    def of_brokers(self, broker_names: Iterable[str]) -> list[str]:
        """Topics that at least one of these has."""
        wanted = frozenset(broker_names)
        return [topic for topic, places in self._queues.items() if not wanted.isdisjoint(places)]

    def with_flag(self, fits: Callable[[int], bool]) -> list[str]:
        """Topics whose topicSysFlag fits; it is the same at every place, so the first one is asked."""
        return [topic for topic, places in self._queues.items() if fits(next(iter(places.values())).topic_sys_flag)]

    def change_perm(self, broker_name: str, change: Callable[[int], int]) -> int:
        """Change the permission of all topics of a broker name; how many there are."""
        topics = self.of_broker(broker_name)
        for topic in topics:
            places = self._queues[topic]
            queues = places[broker_name]
            places[broker_name] = msgspec.structs.replace(queues, perm=change(queues.perm))
        return len(topics)


class Admitted(NamedTuple):
    """Topics of a registration that fit; how many do not, and the first reason."""

    topics: set[str]
    rejected: int = 0
    why: str = ""


class RouteLimits(msgspec.Struct, frozen=True):
    """A broker that would pass one of these is refused as a whole. Of its topics those are taken that fit."""

    max_brokers: int = 10_000
    """Limit on addresses of brokers, slaves included. A registration above it is refused."""
    max_topics: int = 200_000
    """Limit on topics. Set it to at least `maxTopics` plus `maxRetryTopics` of a broker. A registration above it gets
    routes for the topics that fit, retry and dead-letter topics last; the answer, the log and the metrics report the
    rest."""
    max_places: int = 1_000_000
    """Limit on topics counted per broker name: a topic on three broker names counts three times."""
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
